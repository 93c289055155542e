"""The port to leader election."""

from typing import Protocol


class Leadership(Protocol):
    """Elects one process of the broker for jobs that only one process runs."""

    def held(self) -> bool:
        """Whether this process is the leader; a leader stays it until its process ends. Cheap, never blocks."""

    def close(self) -> None:
        """Resign, so that another process can become the leader."""
