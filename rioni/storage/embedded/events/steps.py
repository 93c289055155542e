"""Splits long-running work into tasks of seconds."""

import time
from collections.abc import Generator
from typing import TypeVar

from rioni.domain.ports.thread_pool import ThreadPool


T = TypeVar("T")

Steps = Generator[None, None, T]
"""Work that pauses after each of its transactions."""

STEP_S = 5.0
"""How long one task goes on; a transaction that it has begun then is finished."""


def in_steps(offload: ThreadPool, work: Steps[T]) -> T:
    """Do the work, and return and raise what it does; blocks the caller alone.

    A single task would count as one that hangs when it takes longer than its pool allows, however much it gets done.

    Args:
        offload: where the tasks run.
        work: stays where it is if a task can't be run; what its transactions have done is done.
    """
    while True:
        ended, result = offload(_step, work)
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
