"""The ports by which processes act together: notifications, change flags, leader election and quotas of clients."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol


# --- The port to notifications, which wake waiters in all processes when something has changed ---

LOG_KEY = "log"
"""The key notified when the internal log has grown."""
TOPIC, SUBSCRIPTION = "topic:", "subscription:"
"""Beginnings of the keys notified when the events of a topic, or the state of a subscription, have changed.

They raise its flag too; see `ChangeFlags`.
"""
CHANGED = "changed:"
"""The beginning of keys that raise the flag of a topic or subscription, and wake nobody."""


class Waiter(Protocol):
    """Waits for notifications about some keys, from this process or another."""

    def wait(self, timeout_s: float) -> bool:
        """Block this greenlet until a notification since the last call, or the time-out; return whether notified."""

    def close(self) -> None:
        """Stop watching."""


class Notifier(Protocol):
    """Wakes waiters in any process of the broker. A notification may be lost, so waits have time-outs."""

    def notify(self, *keys: str) -> None:
        """Wake all waiters that watch one of the keys. Never blocks, never raises."""

    def watch(self, keys: Iterable[str]) -> Waiter:
        """Begin to watch; notifications from now on are not missed."""

    def version(self, key: str) -> int:
        """A number, 0 at least, that changes with each notification of a watched key, before waiters are woken."""


# --- The port to flags that show what has changed, shared by the processes of a node ---


class ChangeFlags(Protocol):
    """A flag for each hash of a name: it is raised by any process, and taken by the one that handles the changes.

    No change is missed, other than notifications; but names with the same hash share a flag. Nothing blocks.
    """

    def raise_flag(self, name: str) -> None:
        """Raise the flag of a changed topic or subscription."""

    def flag_of(self, name: str) -> int:
        """The number of a name's flag."""

    def take(self) -> Collection[int]:
        """The flags that were raised since the last call; for one process only."""


# --- The port to leader election ---


class Leadership(Protocol):
    """Elects one process of the broker for jobs that only one process runs."""

    def held(self) -> bool:
        """Whether this process is the leader; a leader stays it until its process ends. Cheap, never blocks."""

    def close(self) -> None:
        """Resign, so that another process can become the leader."""


# --- The ports to quotas of clients: for connections, and for publishing ---

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
