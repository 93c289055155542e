"""The port to pools of native threads, in which calls that block run."""

from collections.abc import Callable
from typing import NamedTuple, ParamSpec, Protocol, TypeVar


P = ParamSpec("P")


T = TypeVar("T")


class ThreadPool(Protocol):
    """Runs a blocking function where it does not stop others: in a thread pool under gevent, in place elsewhere."""

    def __call__(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what the function returns, raise what it raises; blocks the caller alone."""


def direct(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """The offload where blocking stops nobody else: a direct call."""
    return function(*args, **kwargs)


def without_deadline(offload: ThreadPool) -> ThreadPool:
    """The same offload, which waits for as long as the function takes.

    For what may never be given up, since the next one must not begin before it ends. Those who wait for what it does
    must have deadlines of their own.
    """
    patient: ThreadPool = getattr(offload, "without_deadline", offload)
    return patient


class StoreOffloads(NamedTuple):
    """Where an event store blocks: apart for each kind of work, so that none of them starves another."""

    append: ThreadPool = direct
    read: ThreadPool = direct
    topics: ThreadPool = direct
    """Administration: creating, closing, deleting topics, asking for their bounds."""
    keep: ThreadPool = direct
    """Retention, compaction and verification, which may take minutes."""
    follow: ThreadPool = direct
    """What polls for as long as the process lives."""

    @classmethod
    def all(cls, offload: ThreadPool) -> "StoreOffloads":
        """One offload for everything."""
        return cls(offload, offload, offload, offload, offload)


def in_place(_storage_id: str) -> StoreOffloads:
    """The offloads of every storage where blocking stops nobody else."""
    return StoreOffloads()
