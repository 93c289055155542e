"""The parts of asyncio that tasks use; `_sync/concurrency.py` has the same names for threads."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeAlias


Lock = asyncio.Lock
Event = asyncio.Event
Semaphore = asyncio.Semaphore
Task: TypeAlias = asyncio.Task[None]


class Mutex:
    """A lock that does nothing: tasks take turns only where they wait."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *ex: object) -> None:
        pass


async def acquire(semaphore: Semaphore, timeout_s: float | None) -> bool:
    """Wait for a semaphore, at most `timeout_s` seconds; return whether it was acquired."""
    # PERF: a deadline costs 5 µs.
    try:
        async with asyncio.timeout(timeout_s if semaphore.locked() else None):
            return await semaphore.acquire()  # waits: within asyncio.timeout, or there is a free one
    except TimeoutError:
        return False


async def sleep(seconds: float) -> None:
    """Wait."""
    await asyncio.sleep(seconds)


async def wait(event: Event, timeout_s: float) -> bool:
    """Wait until an event is set, at most `timeout_s` seconds; return whether it is."""
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()  # waits: within asyncio.timeout
    except TimeoutError:
        return False
    return True


def spawn(run: Callable[[], Coroutine[Any, Any, None]], name: str) -> Task:
    """Run a function concurrently with the caller; it must handle its own errors."""
    return asyncio.create_task(run(), name=name)


def cancel(task: Task) -> None:
    """Cancel a task at the point where it waits."""
    task.cancel()


async def join(task: Task, timeout_s: float) -> bool:
    """Wait until a task has ended, at most `timeout_s` seconds; return whether it has."""
    done, _ = await asyncio.wait([task], timeout=timeout_s)
    return bool(done)


def at_exit(_close: Callable[[float], object]) -> None:
    """Do nothing: the event loop cancels all tasks when it ends."""


def not_at_exit(_close: Callable[[float], object]) -> None:
    """Do nothing, as `at_exit` does nothing."""


async def call(provider: Callable[[], str | Awaitable[str | None] | None]) -> str | None:
    """Call a provider of the application, which may be a plain function or a coroutine function."""
    found = provider()
    return found if found is None or isinstance(found, str) else await found


# --- Consumers ---

Result: TypeAlias = Awaitable[None] | None
"""The result of a handler of an application."""


def now() -> float:
    """Seconds of a clock that never goes back."""
    return asyncio.get_running_loop().time()


class Shared:
    """State that several tasks share: read and changed inside `with`, which one task at a time is in."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, ex: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Condition:
    """Something about shared state that tasks wait for; used inside `with` of the state."""

    def __init__(self, _shared: Shared) -> None:
        self._changed = asyncio.Event()

    async def wait(self, timeout_s: float) -> None:
        """Wait until a task notifies, at most `timeout_s` seconds; others may change the state meanwhile."""
        await wait(self._changed, timeout_s)

    def notify(self, _count: int = 1) -> None:
        """Wake at least `_count` of the tasks that wait."""
        self.notify_all()

    def notify_all(self) -> None:
        """Wake all tasks that wait."""
        self._changed.set()
        self._changed = asyncio.Event()


async def invoke(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of the application, which may be a plain one or a coroutine function; raises what it raises."""
    found = function(*arguments)
    return await found if isinstance(found, Awaitable) else found


async def give_way() -> None:
    """Give other tasks a turn."""
    await asyncio.sleep(0)
