"""Runs calls from native threads on the gevent hub that owns the greenlets."""

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import gevent
from gevent import monkey

from rioni.domain.errors import OutcomeUnknown


P = ParamSpec("P")
T = TypeVar("T")

DEADLINE_S = 150.0
"""Calls on the hub have shorter deadlines of their own; this one applies if those fail."""


class HubThread:
    """The thread whose hub owns certain greenlets; in an unpatched process every thread counts as the owner.

    Code in a pool of native threads must not touch objects that greenlets wait on: locks, events and sockets of gevent
    belong to one hub, and a native thread that waits for one of them may never be woken.
    """

    def __init__(self, hub: Any = None) -> None:
        """Bind to the calling thread.

        Args:
            hub: of the calling thread; by default gevent's hub if the process is patched, else none.
        """
        # The patched ones distinguish greenlets, not threads, and need a hub.
        self._get_ident: Callable[[], int] = monkey.get_original("_thread", "get_ident")
        self._queue: Callable[[], Any] = monkey.get_original("queue", "SimpleQueue")
        self._empty: type[Exception] = monkey.get_original("queue", "Empty")
        self._ident = self._get_ident()
        self._hub = gevent.get_hub() if hub is None and monkey.is_module_patched("threading") else hub

    @property
    def here(self) -> bool:
        """Whether the calling thread owns the hub."""
        return self._hub is None or self._get_ident() == self._ident

    def __call__(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function on the hub, return its result or raise its exception; blocks only the caller.

        Raises:
            OutcomeUnknown: the function has not ended within `DEADLINE_S`; it continues to run.
        """
        if self._hub is None or self._get_ident() == self._ident:
            return function(*args, **kwargs)
        answers = self._queue()

        def run() -> None:
            try:
                answers.put((function(*args, **kwargs), None))
            except BaseException as ex:  # noqa: BLE001 - the waiting caller raises it
                answers.put((None, ex))

        self._hub.loop.run_callback_threadsafe(gevent.spawn, run)
        try:
            result, error = answers.get(timeout=DEADLINE_S)
        except self._empty:
            raise OutcomeUnknown(
                f"This process was too busy for {DEADLINE_S:g} s; the outcome is unknown. Check the result before "
                "retrying."
            ) from None
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]  # that of the function


class _HasHubThread(Protocol):
    @property
    def hub_thread(self) -> HubThread: ...


S = TypeVar("S", bound=_HasHubThread)


def run_on_hub(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Decorator: run a method on the hub that owns its object's connection, from any thread."""

    @functools.wraps(method)
    def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.hub_thread(method, self, *args, **kwargs)

    return run
