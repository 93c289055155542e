"""The parts of threading that tasks use; `_async/concurrency.py` has the same names for asyncio."""

import atexit
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeAlias


Lock = threading.Lock
Mutex = threading.Lock
Event = threading.Event
Semaphore = threading.Semaphore


EXIT_S = 10.0
"""How long all that was not closed may take when the process ends."""

_closers: dict[Callable[[float], None], None] = {}


class Task(threading.Thread):
    """A thread that does not keep the process from ending."""


def acquire(semaphore: Semaphore, timeout_s: float | None) -> bool:
    """Wait for a semaphore, at most `timeout_s`; whether it could be had."""
    return semaphore.acquire(timeout=timeout_s)


def sleep(seconds: float) -> None:
    """Wait."""
    time.sleep(seconds)


def wait(event: Event, timeout_s: float) -> bool:
    """Wait until an event is set, at most `timeout_s`; whether it is."""
    return event.wait(timeout_s)


def spawn(run: Callable[[], None], name: str) -> Task:
    """Run a function beside the caller; it must handle its own errors."""
    task = Task(target=run, name=name, daemon=True)
    task.start()
    return task


def cancel(task: Task) -> None:
    """Nothing: a thread ends when its request ends."""


def join(task: Task, timeout_s: float) -> bool:
    """Wait until a task has ended, at most `timeout_s`; whether it has."""
    task.join(timeout_s)
    return not task.is_alive()


def at_exit(close: Callable[[float], None]) -> None:
    """Have a function called when the process ends, with the seconds that it may take; it must not raise."""
    _closers[close] = None


def not_at_exit(close: Callable[[float], None]) -> None:
    """Take that back."""
    _closers.pop(close, None)


@atexit.register
def _close_all() -> None:
    deadline_s = time.monotonic() + EXIT_S
    for close in [*_closers]:
        close(max(0.0, deadline_s - time.monotonic()))


def call(provider: Callable[[], str | None]) -> str | None:
    """Call a provider of the application."""
    return provider()


# --- consumers ---

Result: TypeAlias = None
"""The return type of handlers of applications."""


def now() -> float:
    """Seconds of a clock that never goes back."""
    return time.monotonic()


class Shared:
    """State that several threads share: looked at and changed inside `with`, which one thread at a time is in.

    A thread may enter twice, since a signal handler may run in it at any place.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()

    def __enter__(self) -> Self:
        self.lock.acquire()  # waits: held for changes in memory
        return self

    def __exit__(self, kind: type[BaseException] | None, ex: BaseException | None, trace: TracebackType | None) -> None:
        self.lock.release()


class Condition:
    """Something about shared state that threads wait for; used inside `with` of the state."""

    def __init__(self, shared: Shared) -> None:
        self._condition = threading.Condition(shared.lock)

    def wait(self, timeout_s: float) -> None:
        """Wait until a thread notifies, at most `timeout_s`; others may change the state meanwhile."""
        self._condition.wait(timeout_s)

    def notify(self, count: int = 1) -> None:
        """Wake so many threads that wait, or more."""
        self._condition.notify(count)

    def notify_all(self) -> None:
        """Wake all threads that wait."""
        self._condition.notify_all()


def invoke(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of the application; raises what it raises."""
    return function(*arguments)


def give_way() -> None:
    """Give other threads a turn, which otherwise wait for up to 5 ms each time that they need the interpreter."""
    time.sleep(0)
