"""Brings calls from other threads to the hub on which a connection lives."""

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import gevent
from gevent import monkey


P = ParamSpec("P")
T = TypeVar("T")


class Home:
    """The thread whose hub a connection belongs to; in a process that is not patched, every thread is at home.

    What is called in a pool of threads beside the hub, such as commands that wait for a database, must not touch what
    greenlets wait for: locks, events and sockets of gevent belong to one hub.
    """

    def __init__(self) -> None:
        self._patched = monkey.is_module_patched("threading")
        # The patched ones tell greenlets apart, not threads, and wait for a hub.
        self._get_ident: Callable[[], int] = monkey.get_original("_thread", "get_ident")
        self._queue: Callable[[], Any] = monkey.get_original("queue", "SimpleQueue")
        self._ident = self._get_ident()
        self._hub = gevent.get_hub() if self._patched else None

    def __call__(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what the function returns, raise what it raises; blocks the caller alone."""
        if self._hub is None or self._get_ident() == self._ident:
            return function(*args, **kwargs)
        answers = self._queue()

        def run() -> None:
            try:
                answers.put((function(*args, **kwargs), None))
            except BaseException as ex:  # noqa: BLE001 - whoever waits for the result raises it
                answers.put((None, ex))

        self._hub.loop.run_callback_threadsafe(gevent.spawn, run)
        result, error = answers.get()
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]  # that of the function


class _HasHome(Protocol):
    @property
    def home(self) -> Home: ...


S = TypeVar("S", bound=_HasHome)


def at_home(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Let a method run on the hub that its object's connection belongs to, whoever calls it."""

    @functools.wraps(method)
    def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.home(method, self, *args, **kwargs)

    return run
