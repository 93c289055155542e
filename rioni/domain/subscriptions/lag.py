"""How far a subscription is behind: the events after its committed cursors, and the age of the first of them.

Source: reference subscriptions#partition-statistics.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rioni.domain.subscriptions.cursor_arithmetic import beyond_end
from rioni.domain.timelines.position import EventTypePartition, TimelinePosition, stored_place
from rioni.domain.timelines.timeline import Timelines


NEVER = 0


class Lag(NamedTuple):
    """The lag of a subscription."""

    events: int
    """How many events follow its cursors, those that retention has removed included."""
    since_ms: int | None = NEVER
    """When the first of them that is there was stored, `NEVER` if there is none; None if that is unknown."""

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
        timelines: of the event type.
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
    """For each partition that is committed beyond its last event a sentence that says so; arguments as above."""
    return {
        key: beyond_end(key, cursors[key], newest[int(key.partition)])
        for key in partitions_of(timelines)
        if key in cursors and timelines.is_beyond_end(stored_place(cursors[key]), newest[int(key.partition)])
    }
