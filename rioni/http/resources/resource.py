"""Base of the API's resources."""

from rioni.http.dependencies import Dependencies


class Resource:
    """A resource, which uses the dependencies of its process."""

    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies
