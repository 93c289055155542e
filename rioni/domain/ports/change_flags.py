"""The port to flags that say what has changed, shared by the processes of a node."""

from collections.abc import Collection
from typing import Protocol


class ChangeFlags(Protocol):
    """A flag for each hash of a name: it is raised by any process, and taken by one that looks at what has changed.

    No change is missed, other than notifications; but names with the same hash share a flag. Nothing blocks.
    """

    def raise_flag(self, name: str) -> None:
        """Say that something has changed: what a topic or a subscription is called."""

    def flag_of(self, name: str) -> int:
        """The number of a name's flag."""

    def take(self) -> Collection[int]:
        """The flags that were raised since the last call; for one process only."""
