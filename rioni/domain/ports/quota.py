"""The ports to quotas of clients: of connections, and of what they publish."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol


Charge = Callable[[int, int], None]
"""Charges a client for a number of events, and for their bytes; negative numbers are given back.

Raises QuotaExceeded, and charges nothing, if a quota of the client is used up."""


class ConnectionQuota(Protocol):
    """Counts the slots that clients hold, over all processes; slots of a dead process are released.

    Calls block on the disk, but never other greenlets; all raise Unavailable if nothing can be stored.
    """

    def acquire(self, holder: str, slots: Mapping[str, int]) -> Sequence[str]:
        """Acquire one slot of each kind for a holder, all or none.

        Args:
            holder: a new name.
            slots: the limit of each kind.

        Returns:
            The kinds whose limit is reached; empty if all slots were acquired.
        """

    def release(self, holder: str) -> None:
        """Release the slots of a holder; no-op if it has none."""

    def close(self) -> None:
        """Close all files; slots held by this process are released when it has ended."""
