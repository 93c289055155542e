"""The port that elects one process."""

from typing import Protocol


class Leadership(Protocol):
    """Chooses one process of the broker for what one alone need do."""

    def held(self) -> bool:
        """Whether this process is the one; it stays so until it ends, then another one may be. Cheap, never blocks."""

    def close(self) -> None:
        """Let another process be the one."""
