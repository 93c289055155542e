"""Collects per-item errors so that the remaining items are processed, and raises them at the end."""

import contextlib
from collections.abc import Iterator

from rioni.domain.errors import RioniError, Unavailable


class ErrorCollector:
    """Collects errors by item."""

    def __init__(self) -> None:
        self._reasons: list[str] = []

    @contextlib.contextmanager
    def of(self, what: str) -> Iterator[None]:
        """Collect an expected error of the block under a name, and suppress it."""
        try:
            yield
        except RioniError as ex:
            self._reasons.append(f"{what}: {ex}")

    def report(self) -> None:
        """Raise one error that names all collected ones, if there are any.

        Raises:
            Unavailable: something failed.
        """
        if self._reasons:
            raise Unavailable("; ".join(self._reasons))
