"""A semaphore for greenlets and native threads, and calls that run on the gevent hub."""

import contextlib
import functools
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import gevent
from gevent import monkey

from rioni.domain.errors import OutcomeUnknown, Overloaded, Unavailable


# --- Provides a semaphore usable from greenlets and native threads ---
#
# Under gevent the locks of `threading` belong to the greenlets of one thread. A native thread that finds one taken may
# wait for ever, and so may greenlets that wait for a native thread: pool threads and greenlets must not share such
# locks. This semaphore relies on the atomic operations of a deque, and waiters poll with increasing pauses.

PAUSE_MIN_S = 0.0005
"""First pause of a waiter between two attempts; it doubles up to the maximum."""
PAUSE_MAX_S = 0.01

WAIT_S = 60.0
"""Timeout of `with`. Code that runs under such a lock has shorter deadlines."""


class ThreadSafeSemaphore:
    """A counting semaphore; with one permit it is a lock, which `with` acquires."""

    def __init__(self, number: int = 1) -> None:
        self._free = deque(range(number))

    def acquire(self, wait_s: float) -> bool:
        """Acquire a permit; return False on timeout."""
        deadline, pause_s = time.monotonic() + wait_s, PAUSE_MIN_S
        while True:
            try:
                self._free.pop()
            except IndexError:
                if time.monotonic() >= deadline:
                    return False
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, PAUSE_MAX_S)
            else:
                return True

    def release(self) -> None:
        """Release an acquired permit."""
        self._free.append(0)

    @contextlib.contextmanager
    def taken(self, wait_s: float, otherwise: str) -> Iterator[None]:
        """Hold a permit during a block.

        Args:
            wait_s: timeout.
            otherwise: the error text on timeout.

        Raises:
            Unavailable: no permit becomes free in time.
        """
        if not self.acquire(wait_s):
            raise Unavailable(f"{otherwise} Try again later.")
        try:
            yield
        finally:
            self.release()

    def __enter__(self) -> None:
        """Acquire a permit.

        Raises:
            Overloaded: no permit becomes free within `WAIT_S`.
        """
        if not self.acquire(WAIT_S):
            raise Overloaded("This process is too busy. Try again later.")

    def __exit__(self, *_: object) -> None:
        self.release()


# --- Native threads: what gevent has not patched ---

get_ident: Callable[[], int] = monkey.get_original("_thread", "get_ident")
"""The patched one distinguishes greenlets, not threads, and needs a hub."""
start_native_thread: Callable[..., int] = monkey.get_original("_thread", "start_new_thread")
NativeQueue: Callable[[], Any] = monkey.get_original("queue", "SimpleQueue")
Empty: type[Exception] = monkey.get_original("queue", "Empty")
native_sleep: Callable[[float], None] = monkey.get_original("time", "sleep")


class NotAnswered(Exception):
    """There is no answer in time."""


class Answer:
    """Passes the outcome of a call to a waiting native thread; has the methods of `concurrent.futures.Future` for it.

    Under gevent the locks of a future are patched, and no native thread may wait on such a lock.
    """

    def __init__(self) -> None:
        self._queue = NativeQueue()

    def set_result(self, result: Any) -> None:
        """Pass a result."""
        self._queue.put((result, None))

    def set_exception(self, error: BaseException) -> None:
        """Pass an exception."""
        self._queue.put((None, error))

    def wait(self, timeout_s: float) -> Any:
        """Return the result, or raise the exception that was passed; raise NotAnswered on timeout."""
        try:
            result, error = self._queue.get(timeout=max(0.0, timeout_s))
        except Empty:
            raise NotAnswered from None
        if error is not None:
            raise error
        return result


# --- Runs calls from native threads on the gevent hub that owns the greenlets ---

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
            hub: the hub of the calling thread; by default gevent's hub if the process is patched, else none.
        """
        self._ident = get_ident()
        self._hub = gevent.get_hub() if hub is None and monkey.is_module_patched("threading") else hub

    @property
    def here(self) -> bool:
        """Whether the calling thread owns the hub."""
        return self._hub is None or get_ident() == self._ident

    def __call__(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function on the hub, return its result or raise its exception; blocks only the caller.

        Raises:
            OutcomeUnknown: the function has not ended within `DEADLINE_S`; it continues to run.
        """
        if self._hub is None or get_ident() == self._ident:
            return function(*args, **kwargs)
        answer = Answer()

        def run() -> None:
            try:
                answer.set_result(function(*args, **kwargs))
            except BaseException as ex:  # noqa: BLE001 - the waiting caller raises it
                answer.set_exception(ex)

        self._hub.loop.run_callback_threadsafe(gevent.spawn, run)
        try:
            return answer.wait(DEADLINE_S)  # type: ignore[no-any-return]  # that of the function
        except NotAnswered:
            raise OutcomeUnknown(
                f"This process was too busy for {DEADLINE_S:g} s; the outcome is unknown. Check the result before "
                "retrying."
            ) from None


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
