"""What tasks need of asyncio; `_sync/concurrency.py` has the same names for threads."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias


Lock = asyncio.Lock
Event = asyncio.Event
Task: TypeAlias = asyncio.Task[None]


class Mutex:
    """Nothing: tasks take turns only where they wait."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *ex: object) -> None:
        pass


async def sleep(seconds: float) -> None:
    """Wait."""
    await asyncio.sleep(seconds)


async def wait(event: Event, timeout_s: float) -> bool:
    """Wait until an event is set, at most so many seconds; whether it is."""
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return False
    return True


def spawn(run: Callable[[], Coroutine[Any, Any, None]], name: str) -> Task:
    """Run a function beside the caller; it must handle its own errors."""
    return asyncio.create_task(run(), name=name)


def cancel(task: Task) -> None:
    """Have a task end where it waits."""
    task.cancel()


async def join(task: Task, timeout_s: float) -> bool:
    """Wait until a task has ended, at most so many seconds; whether it has."""
    done, _ = await asyncio.wait([task], timeout=timeout_s)
    return bool(done)


def at_exit(_close: Callable[[float], object]) -> None:
    """Nothing: the event loop cancels all tasks when it ends."""


def not_at_exit(_close: Callable[[float], object]) -> None:
    """As `at_exit`."""


async def call(provider: Callable[[], str | Awaitable[str | None] | None]) -> str | None:
    """Call a provider of the application, which may be a plain function or a coroutine function."""
    found = provider()
    return found if found is None or isinstance(found, str) else await found
