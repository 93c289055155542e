"""The ports to what a process gets from its machine: time, threads, spools, and the health of what it depends on."""

from collections.abc import Callable, Sequence
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
    results must have deadlines of their own.
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
