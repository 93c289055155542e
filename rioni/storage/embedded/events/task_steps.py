"""Splits long-running work into pool tasks of a few seconds."""

import time
from collections.abc import Generator
from typing import TypeVar

from rioni.domain.ports.thread_pool import ThreadPool


T = TypeVar("T")

Steps = Generator[None, None, T]
"""Work that yields after each of its transactions."""

STEP_S = 5.0
"""Duration of one task; a transaction already started is finished."""


def in_steps(pool: ThreadPool, work: Steps[T]) -> T:
    """Run the work in several tasks, return its result or raise its error; blocks only the caller.

    A single task would count as hanging once it exceeds its pool's deadline, even if it makes progress.

    Args:
        pool: the pool that runs the tasks.
        work: stops if a task can't be run; its finished transactions remain.
    """
    while True:
        ended, result = pool(_step, work)
        if ended:
            return result  # type: ignore[return-value]  # there is one now


def _step(work: Steps[T]) -> tuple[bool, T | None]:
    """Run one task; return whether the work has ended, and its result."""
    end_s = time.monotonic() + STEP_S
    try:
        next(work)
        while time.monotonic() < end_s:
            next(work)
    except StopIteration as ex:
        return True, ex.value
    return False, None
