"""Decides how events are streamed that are being published: each at once, or, where there are many, together."""

import time
from collections.abc import Callable


BUSY_PER_S = 200
"""PERF: a broker takes three times as much work for events that are sent one by one."""
CALM_PER_S = 50
EVERY_S = 1.0
TOGETHER = 500


class Pace:
    """The size of batches, by the number of events in the last second.

    Args:
        clock: returns seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.batch_limit = 1
        self._clock = clock
        self._since_s = clock()
        self._count = 0

    def changes(self, events: int) -> bool:
        """Take note of so many further events; whether `batch_limit` is another one now."""
        self._count += events
        seconds = self._clock() - self._since_s
        if seconds < EVERY_S:
            return False
        rate = self._count / seconds
        self._since_s, self._count = self._clock(), 0
        before = self.batch_limit
        if rate > BUSY_PER_S:
            self.batch_limit = TOGETHER
        elif rate < CALM_PER_S:
            self.batch_limit = 1
        return self.batch_limit != before
