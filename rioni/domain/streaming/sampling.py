"""Which events a stream leaves out that looks at a limited number in a second.

Source: reference low-level-streams#left-out-events.
"""

from collections.abc import Mapping
from typing import TypeVar


K = TypeVar("K")

FRAME_S = 0.1
"""How long such a stream waits between two looks, so that what it costs does not grow with the rate of appends."""


class Sampling:
    """Keeps to a number of events in a second; what was not used up can be within the next second."""

    def __init__(self, events_per_second: int, now_s: float) -> None:
        """Begin.

        Args:
            events_per_second: looked at, at most; 1 or more.
            now_s: monotonic time, as below.
        """
        self._per_s = events_per_second
        self._left: float = events_per_second
        self._at_s = now_s
        self._turn = 0

    def left_out(self, unread: Mapping[K, int], read: int, now_s: float) -> dict[K, int]:
        """How many of the oldest unread events to leave out, of those partitions where there are too many.

        Partitions with few events lose none to those with many; among equal ones they take turns.

        Args:
            unread: the number of unread events by partition.
            read: how many events were read since the last call.
            now_s: the time.
        """
        self._left = min(self._per_s, self._left - read + self._per_s * (now_s - self._at_s))
        self._at_s = now_s
        waiting = [key for key, count in unread.items() if count > 0]
        self._turn += 1
        begin = self._turn % len(waiting) if waiting else 0
        waiting = sorted(waiting[begin:] + waiting[:begin], key=unread.__getitem__)
        left, left_out = max(0, int(self._left)), {}
        for rest, key in zip(range(len(waiting), 0, -1), waiting, strict=True):
            share = min(unread[key], -(-left // rest))
            left -= share
            if share < unread[key]:
                left_out[key] = unread[key] - share
        return left_out
