"""Remembers when the ends of partitions were seen to advance, to tell when an event was stored without reading it."""

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple


TIMES_MAX = 256
"""How many advances of a partition are remembered; with less than a second between them, for some minutes."""

TOPICS_MAX = 2_000
"""How many topics are remembered, those that advanced last. Each partition takes up to 4 kB."""


class _Advances(NamedTuple):
    """The ends of a partition, and when each of them was seen first."""

    ends: "array[int]"
    times_ms: "array[int]"


class EndTimes:
    """When partitions of topics had which end, for topics that are looked at soon after each append."""

    def __init__(self) -> None:
        self._topics: dict[str, list[_Advances]] = {}

    def see(self, topic: str, ends: Sequence[int], now_ms: int) -> None:
        """Note the positions behind the last events of a topic's partitions."""
        known = self._topics.pop(topic, None)
        if known is None:
            known = []
            if len(self._topics) >= TOPICS_MAX:
                del self._topics[next(iter(self._topics))]
        self._topics[topic] = known
        for number, end in enumerate(ends):
            if number == len(known):
                known.append(_Advances(array("q"), array("q")))
            _note(known[number], end, now_ms)

    def at_ms(self, topic: str, number: int, position: int) -> int | None:
        """About when an event was stored; None if that was before the topic was looked at, or too long ago."""
        known = self._topics.get(topic, ())
        if number >= len(known):
            return None
        ends, times_ms = known[number]
        found = bisect_right(ends, position)
        return times_ms[found] if 0 < found < len(ends) else None

    def forget(self, topic: str) -> None:
        """Forget a topic that is no longer looked at."""
        self._topics.pop(topic, None)

    def forget_all(self) -> None:
        """Forget all topics: appends may have been missed."""
        self._topics.clear()


def _note(advances: _Advances, end: int, now_ms: int) -> None:
    ends, times_ms = advances
    if ends and end < ends[-1]:
        # Another topic of the same name, or one that has lost events.
        del ends[:], times_ms[:]
    if not ends or end > ends[-1]:
        ends.append(end)
        times_ms.append(now_ms)
    if len(ends) > TIMES_MAX:
        del ends[: TIMES_MAX // 4], times_ms[: TIMES_MAX // 4]
