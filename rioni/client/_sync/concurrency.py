"""What tasks need of threads; `_async/concurrency.py` has the same names for asyncio."""

import threading
import time
from collections.abc import Callable


Lock = threading.Lock
Event = threading.Event


class Task(threading.Thread):
    """A thread that does not keep the process from ending."""


def sleep(seconds: float) -> None:
    """Wait."""
    time.sleep(seconds)


def wait(event: Event, timeout_s: float) -> bool:
    """Wait until an event is set, at most so many seconds; whether it is."""
    return event.wait(timeout_s)


def spawn(run: Callable[[], None], name: str) -> Task:
    """Run a function beside the caller; it must handle its own errors."""
    task = Task(target=run, name=name, daemon=True)
    task.start()
    return task


def join(task: Task, timeout_s: float) -> bool:
    """Wait until a task has ended, at most so many seconds; whether it has."""
    task.join(timeout_s)
    return not task.is_alive()


def call(provider: Callable[[], str]) -> str:
    """Call a provider of the application."""
    return provider()
