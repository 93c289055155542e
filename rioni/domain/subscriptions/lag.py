"""How far a subscription is behind: its lag, when unread events were stored, and which partitions have a history."""

import heapq
from array import array
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from rioni.domain.subscriptions.cursor_arithmetic import beyond_end
from rioni.domain.timelines.position import EventTypePartition, TimelinePosition, stored_place
from rioni.domain.timelines.timeline import Timelines


# --- The lag of a subscription: the events after its committed cursors, and the age of the first of them ---
#
# Source: reference subscriptions#partition-statistics.

NEVER = 0


class Lag(NamedTuple):
    """The lag of a subscription."""

    events: int
    """How many events follow its cursors, those that retention has removed included."""
    since_ms: int | None = NEVER
    """When the first unconsumed event that still exists was stored, `NEVER` if there is none; None if that is
    unknown."""

    def seconds(self, now_ms: int) -> int | None:
        """The age of the first unconsumed event; 0 if there is none, None if unknown."""
        if self.since_ms is None:
            return None
        return max(0, (now_ms - self.since_ms) // 1_000) if self.since_ms else 0


def partitions_of(timelines: Timelines) -> list[EventTypePartition]:
    """All partitions of an event type, in the order of statistics: sorted as strings."""
    return sorted(
        EventTypePartition(timelines.event_type, str(number)) for number in range(timelines.active.partitions)
    )


def unconsumed_of(
    timelines: Timelines, newest: Sequence[TimelinePosition], cursors: Mapping[EventTypePartition, str]
) -> dict[EventTypePartition, int]:
    """How many events of each partition follow the committed one; those that retention has removed still count.

    Args:
        timelines: the timelines of the event type.
        newest: the places of the last events, by number.
        cursors: the committed offsets; nothing is known of partitions without one, or with one beyond the last event.
    """
    beyond = cursor_errors(timelines, newest, cursors)
    return {
        key: timelines.unconsumed(int(key.partition), stored_place(cursors[key]), newest[int(key.partition)])
        for key in partitions_of(timelines)
        if key in cursors and key not in beyond
    }


def cursor_errors(
    timelines: Timelines, newest: Sequence[TimelinePosition], cursors: Mapping[EventTypePartition, str]
) -> dict[EventTypePartition, str]:
    """A sentence for each partition that is committed beyond its last event; arguments are those of `unconsumed_of`."""
    return {
        key: beyond_end(key, cursors[key], newest[int(key.partition)])
        for key in partitions_of(timelines)
        if key in cursors and timelines.is_beyond_end(stored_place(cursors[key]), newest[int(key.partition)])
    }


# Remembers when the ends of partitions were seen to advance, to tell when an event was stored without reading it.

TIMES_MAX = 256
"""How many advances of a partition are remembered; with less than a second between them, for some minutes."""

TOPICS_MAX = 2_000
"""How many topics are remembered, those that advanced last. Each partition takes up to 4 kB."""


class _Advances(NamedTuple):
    """The ends of a partition, and when each of them was seen first."""

    ends: "array[int]"
    times_ms: "array[int]"


class EndTimes:
    """The times at which partitions of topics had their ends, for topics that are checked soon after each append."""

    def __init__(self) -> None:
        self._topics: dict[str, list[_Advances]] = {}

    def see(self, topic: str, ends: Sequence[int], now_ms: int) -> None:
        """Note the positions after the last events of a topic's partitions."""
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
        """About when an event was stored; None if that was before the topic was first checked, or too long ago."""
        known = self._topics.get(topic, ())
        if number >= len(known):
            return None
        ends, times_ms = known[number]
        found = bisect_right(ends, position)
        return times_ms[found] if 0 < found < len(ends) else None

    def forget(self, topic: str) -> None:
        """Forget a topic that is no longer checked."""
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


# --- Chooses the partitions of subscriptions whose lags have a history: a bounded number of those that lag ---

FOLLOWED_MAX = 300


class SubscribedPartition(NamedTuple):
    """A partition as a subscription reads it."""

    subscription: str
    partition: EventTypePartition


class FollowedPartitions:
    """A partition is followed from when it lags on; those that have caught up make room for others that lag."""

    def __init__(self, maximum: int = FOLLOWED_MAX) -> None:
        self._maximum = maximum
        self._followed: dict[SubscribedPartition, Lag] = {}

    def lags(
        self, lagging: Mapping[str, Mapping[EventTypePartition, Lag]], subscriptions: Collection[str]
    ) -> Mapping[SubscribedPartition, Lag]:
        """The lags of the partitions that are followed now. PERF: 1 us for each partition that lags.

        Args:
            lagging: the partitions that lag, by subscription.
            subscriptions: the existing subscriptions.
        """
        self._followed = {
            each: lagging.get(each.subscription, {}).get(each.partition, Lag(0))
            for each in self._followed
            if each.subscription in subscriptions
        }
        idle = [each for each, lag in self._followed.items() if not lag.events]
        room = self._maximum - len(self._followed)
        others = (
            (lag.events, SubscribedPartition(subscription, partition), lag)
            for subscription, partitions in lagging.items()
            for partition, lag in partitions.items()
            if (subscription, partition) not in self._followed
        )
        for _, new, lag in heapq.nlargest(room + len(idle), others, key=lambda each: each[0]):
            if len(self._followed) >= self._maximum:
                del self._followed[idle.pop(0)]
            self._followed[new] = lag
        return self._followed
