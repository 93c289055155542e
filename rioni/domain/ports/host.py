"""The ports to the machine: time, threads, spools, health; and those by which processes act together."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import NamedTuple, ParamSpec, Protocol, TypeVar, runtime_checkable
from uuid import UUID

import msgspec


# --- The port to clocks ---


class Clock(Protocol):
    """Source of wall-clock and monotonic time."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch, by the wall clock."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start, never going back."""


# --- The port to pools of native threads, in which calls that block run ---

P = ParamSpec("P")


T = TypeVar("T")

CLIENT: ContextVar[str] = ContextVar("client", default="")
"""The key of the client that the current greenlet works for, for pools that serve clients in turn; empty for none."""


class ThreadPool(Protocol):
    """Runs a blocking function without blocking other greenlets: in a thread pool under gevent, in place elsewhere."""

    def __call__(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the function's result or raise its exception; blocks the caller only."""


def direct(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """A direct call: the implementation for processes without greenlets."""
    return function(*args, **kwargs)


def without_deadline(pool: ThreadPool) -> ThreadPool:
    """Return the pool without its deadline, so that it waits for as long as the function takes.

    For calls that must not be abandoned, since the next one must not begin before they end. Callers that wait for their
    results must have their own deadlines.
    """
    patient: ThreadPool = getattr(pool, "without_deadline", pool)
    return patient


class StorePools(NamedTuple):
    """Thread pools of an event store: one for each kind of work, so that none starves another."""

    append: ThreadPool = direct
    read: ThreadPool = direct
    topics: ThreadPool = direct
    """Administration: creating, closing, deleting topics, querying their bounds."""
    keep: ThreadPool = direct
    """Retention, compaction and verification, which may take minutes."""
    follow: ThreadPool = direct
    """Loops that poll until the process ends."""

    @classmethod
    def all(cls, pool: ThreadPool) -> "StorePools":
        """One pool for everything."""
        return cls(pool, pool, pool, pool, pool)


def in_place(_storage_id: str) -> StorePools:
    """Direct calls for every storage, for processes without greenlets."""
    return StorePools()


# --- Health of a dependency of the broker ---


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a health check."""

    reason: str = ""
    """Why it has failed; empty if it works."""
    detail: str = ""
    """Further details."""
    warnings: tuple[str, ...] = ()
    """Warnings: it works, but something should be corrected."""

    @property
    def status(self) -> str:
        """One word: ok, warning or failed."""
        return "failed" if self.reason else "warning" if self.warnings else "ok"


@runtime_checkable
class Examined(Protocol):
    """An adapter of a dependency that can fail: external servers, or a disk."""

    def health(self) -> Health:
        """Query the servers, or try a durable write; blocks for some seconds at most.

        Raises:
            Unavailable: they do not answer, or it could not be written.
        """


def examine(adapter: object) -> Health:
    """Check an adapter's servers, if it has any; blocks and raises as `Examined.health` does."""
    return adapter.health() if isinstance(adapter, Examined) else Health()


# --- The ports to spools: files of lines that wait to be published ---


class SpoolFile(Protocol):
    """A file of lines."""

    @property
    def id(self) -> UUID:
        """Unique id, never reused."""

    def lines(self) -> Sequence[bytes]:
        """All lines, in order; damaged ones are possible after a power failure. Blocks on the disk."""

    def remove(self) -> None:
        """Delete the lines."""


class Spool(Protocol):
    """Stores lines until they are processed, even if the process that wrote them dies."""

    def append(self, line: bytes) -> bool:
        """Append a line; return False if there is no room. Cheap, never waits for the disk, never raises."""

    def finished(self, *, current: bool) -> Sequence[SpoolFile]:
        """The completed files, those of dead processes included; this process owns them exclusively.

        Args:
            current: whether to complete the file that is being written.
        """

    def close(self) -> None:
        """Release the remaining files to other processes."""


class Spools(NamedTuple):
    """Spools of measurements."""

    requests: Spool
    streams: Spool
    """Batches of streams, which are summed in reports."""


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
