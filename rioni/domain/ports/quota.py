"""The port that limits the connections of clients."""

from collections.abc import Mapping, Sequence
from typing import Protocol


class ConnectionQuota(Protocol):
    """Counts what clients hold, over all processes; what a process holds is free when it dies.

    Calls block on the disk, but never other greenlets; all raise Unavailable where nothing can be stored.
    """

    def take(self, holder: str, slots: Mapping[str, int]) -> Sequence[str]:
        """Take one of each kind of slots for a holder, or none at all.

        Args:
            holder: a new name.
            slots: for each kind how many may be taken at a time.

        Returns:
            The kinds of which none is left; empty where all were taken.
        """

    def give_back(self, holder: str) -> None:
        """Free what a holder has taken; nothing if that is nothing."""

    def close(self) -> None:
        """Close all files; slots held by this process are released when it has ended."""
