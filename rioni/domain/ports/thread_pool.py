"""The port to pools of native threads, in which calls that block run."""

from collections.abc import Callable
from contextvars import ContextVar
from typing import NamedTuple, ParamSpec, Protocol, TypeVar


P = ParamSpec("P")


T = TypeVar("T")

CLIENT: ContextVar[str] = ContextVar("client", default="")
"""The key of the client that the current greenlet works for, for pools that serve clients in turn; empty for none."""


class ThreadPool(Protocol):
    """Runs a blocking function without blocking other greenlets: in a thread pool under gevent, in place elsewhere."""

    def __call__(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what the function returns, raise what it raises; blocks the caller only."""


def direct(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """A direct call: the implementation for processes without greenlets."""
    return function(*args, **kwargs)


def without_deadline(pool: ThreadPool) -> ThreadPool:
    """The same pool without a deadline: waits for as long as the function takes.

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
    """Loops that poll as long as the process lives."""

    @classmethod
    def all(cls, pool: ThreadPool) -> "StorePools":
        """One pool for everything."""
        return cls(pool, pool, pool, pool, pool)


def in_place(_storage_id: str) -> StorePools:
    """Direct calls for every storage, for processes without greenlets."""
    return StorePools()
