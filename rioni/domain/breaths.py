"""Pauses in work that greenlets of one thread do, by the time that the work takes: a slow machine has more of them."""

import time
from typing import Any


TURN_S = 0.003
"""PERF: the longest time that a greenlet works before others may run; nothing may hold the hub for 10 ms."""
BREATH_S = 0.001
"""Sleeping for zero seconds would run ready greenlets only, and no expired timers."""
FREED_TOGETHER = 20
"""Values that are freed without looking at the time."""


class Breaths:
    """Lets other greenlets run whenever a turn is over; call it often. Only for threads that have a hub."""

    __slots__ = ("_ends_s",)

    def __init__(self) -> None:
        self._ends_s = time.monotonic() + TURN_S

    def __call__(self) -> None:
        """Sleep for a moment if this greenlet has worked, or waited, for a turn; blocks the calling greenlet."""
        if time.monotonic() > self._ends_s:
            time.sleep(BREATH_S)
            self._ends_s = time.monotonic() + TURN_S


def free(*lists: list[Any]) -> None:
    """Empty lists in steps: at once, 50,000 events take 12 ms. Blocks the calling greenlet."""
    breathe = Breaths()
    for each in lists:
        while each:
            del each[-FREED_TOGETHER:]
            breathe()
