"""Cursor arithmetic across timelines: availability, distances and shifts of positions; where subscriptions start."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from rioni.domain.errors import Invalid, InvalidCursor, UnavailableCursor
from rioni.domain.subscriptions.subscription import Subscription
from rioni.domain.timelines.position import (
    BEFORE_FIRST,
    Bounds,
    EventTypePartition,
    TimelinePosition,
    format_offset,
    parse_offset,
    partition_number,
)
from rioni.domain.timelines.timeline import FIRST_ORDER, Timeline


# Sources: reference cursors#offset-forms, cursors#offset-order, cursors#available-positions,
# cursors#arithmetic-requests. The end of a closed timeline and the beginning of the next one are the same place.

TIMELINE_NOT_FOUND = (
    "Timeline not found. It might happen in case the cursor refers to a timeline that has already expired."
)


class OffsetRange(NamedTuple):
    """Range of positions of one partition in one timeline."""

    order: int
    oldest: int
    """The first position that can be read, or would be."""
    newest: int
    """The last position that was written."""

    @property
    def before(self) -> TimelinePosition:
        """The place before the first position that can be read."""
        return TimelinePosition(self.order, self.oldest - 1)


OffsetRanges = Sequence[OffsetRange]
"""The ranges of the timelines of one partition, by order; the last one is the active one."""


def offset_ranges_of(
    timelines: Sequence[Timeline], bounds: Callable[[Timeline], Sequence[Bounds]]
) -> list[OffsetRanges]:
    """The offset ranges of every partition, by number.

    Args:
        timelines: by order, the last one is active; of those that have been cleaned up nothing can be read.
        bounds: returns the bounds of a topic; called for the others only.
    """
    found: list[list[OffsetRange]] = [[] for _ in range(timelines[-1].partitions)]
    for timeline in timelines:
        held = () if timeline.cleaned_up_at else bounds(timeline)
        for number, ranges in enumerate(found):
            closed_at = timeline.latest_position[number] if timeline.latest_position else BEFORE_FIRST
            # Without bounds, all events were deleted, or a server does not know the partition yet.
            oldest, newest = held[number] if number < len(held) else (closed_at + 1, closed_at)
            ranges.append(OffsetRange(timeline.order, oldest, closed_at if timeline.latest_position else newest))
    return list(found)


def begin(ranges: OffsetRanges) -> TimelinePosition:
    """The place before the first event that can be read, or will be; in the first timeline if none ever had events."""
    was_used = any(offset_range.newest > BEFORE_FIRST for offset_range in ranges)
    empty = ranges[-1] if was_used else ranges[0]
    return next((offset_range for offset_range in ranges if offset_range.oldest <= offset_range.newest), empty).before


def newest(ranges: OffsetRanges) -> TimelinePosition:
    """The place of the last event that was written; before the first one if there never was any."""
    last = next((offset_range for offset_range in reversed(ranges) if offset_range.newest > BEFORE_FIRST), ranges[0])
    return TimelinePosition(last.order, last.newest)


def end(ranges: OffsetRanges) -> TimelinePosition:
    """The end of the partition: no event is written after this place yet."""
    return TimelinePosition(ranges[-1].order, ranges[-1].newest)


def available(ranges: OffsetRanges) -> dict[str, str]:
    """The members of an answer that describe the readable range (reference cursors#partition-list)."""
    oldest = begin(ranges)
    return {
        "oldest_available_offset": format_offset(oldest.order, oldest.position + 1),
        "newest_available_offset": newest(ranges).offset,
    }


def place_since(ranges: OffsetRanges, offset_at_time: Callable[[OffsetRange], int]) -> TimelinePosition:
    """The place before the first event that was stored at some time or later; the end if there is none.

    Args:
        ranges: the ranges of the timelines that can be read.
        offset_at_time: the first such position in a timeline; after its newest if there is none.
    """
    for offset_range in ranges[:-1]:
        if (
            offset_range.oldest <= offset_range.newest
            and (first := offset_at_time(offset_range)) <= offset_range.newest
        ):
            return TimelinePosition(offset_range.order, max(first, offset_range.oldest) - 1)
    active = ranges[-1]
    return TimelinePosition(active.order, max(offset_at_time(active), active.oldest) - 1)


def readable_place(
    event_type: str, partition: str, offset: str, partitions: Sequence[OffsetRanges]
) -> TimelinePosition:
    """The position that a cursor names, which must be readable (reference cursors#available-positions).

    Args:
        event_type: named in the error.
        partition: the partition as the client names it.
        offset: in any accepted form.
        partitions: the offset ranges of the timelines that are not cleaned up, of all partitions by number.

    Raises:
        InvalidCursor: partition or offset can't be read.
        UnavailableCursor: the following events have expired, or the position does not exist yet.
    """
    number = partition_number(partition, len(partitions))
    if number is None:
        raise InvalidCursor(f"non existing partition {partition}")
    ranges = partitions[number]
    place = parse_offset(offset, partition=partition, oldest_order=FIRST_ORDER)
    if place is None:
        return begin(ranges)
    order, position = place.order, place.position
    for offset_range in ranges:
        if offset_range.order != order:
            continue
        if position == offset_range.newest and offset_range is not ranges[-1]:
            # The end of a closed timeline: reading goes on at the beginning of the next one.
            order, position = order + 1, BEFORE_FIRST
        elif offset_range.oldest + BEFORE_FIRST <= position <= offset_range.newest:
            return place
    named = {"event_type": event_type, "partition": partition}
    last = newest(ranges).offset if place > end(ranges) else None
    raise UnavailableCursor(event_type, partition, str(place.position), named | available(ranges), last)


def beyond_end(key: EventTypePartition, committed: str, newest: TimelinePosition) -> str:
    """The warning about a committed cursor that lies beyond the last event of its partition.

    Args:
        key: the partition.
        committed: its offset.
        newest: the place of the last event.
    """
    return (
        f"The committed cursor {committed} of event type {key.event_type}, partition {key.partition}, is beyond the "
        f"last event, {newest.offset}. Reset the cursors of the subscription"
    )


def distance(initial: TimelinePosition, final: TimelinePosition, ranges: OffsetRanges) -> int:
    """How many positions follow `initial`, up to and including `final`; negative if `final` comes first.

    Args:
        initial: exclusive.
        final: inclusive.
        ranges: those of all timelines that the places may be in.

    Raises:
        Invalid: no timeline contains a position.
    """
    return _count(final, ranges) - _count(initial, ranges)


def shifted(place: TimelinePosition, shift: int, ranges: OffsetRanges) -> TimelinePosition:
    """The place that lies `shift` positions further, or back if it is negative.

    Args:
        place: the last position read.
        shift: how far.
        ranges: the ranges of all timelines of the partition.

    Raises:
        Invalid: there is no such place: not written yet, expired, or before everything.
    """
    count = _count(place, ranges) + shift
    beginning = begin(ranges)
    if count == _count(beginning, ranges):
        return beginning  # Among empty timelines the first one has it, as for `available`.
    for offset_range in ranges:
        length = offset_range.newest + 1
        # The end of a closed timeline is written as the beginning of the next one.
        if count < length or offset_range is ranges[-1]:
            position = count + BEFORE_FIRST
            if offset_range.oldest + BEFORE_FIRST <= position <= offset_range.newest:
                return TimelinePosition(offset_range.order, position)
            break
        count -= length
    raise Invalid(TIMELINE_NOT_FOUND if count < 0 else "The shifted cursor refers to a position that does not exist.")


def _count(place: TimelinePosition, ranges: OffsetRanges) -> int:
    """How many positions there ever were up to and including a place."""
    before = 0
    for offset_range in ranges:
        if offset_range.order == place.order:
            return before + place.position + 1
        before += offset_range.newest + 1
    raise Invalid(TIMELINE_NOT_FOUND)


# --- The start of a subscription that was never streamed and has no cursors; pure ---
#
# Source: reference subscriptions#initialisation.


def start_places(
    subscription: Subscription, ranges: Mapping[str, Sequence[OffsetRanges]]
) -> dict[EventTypePartition, TimelinePosition]:
    """The last places before the events that the subscription would begin to read now.

    Args:
        subscription: its `read_from` and `initial_cursors` decide.
        ranges: the ranges of the partitions of event types, by number; other event types are left out.
    """
    found = {}
    for name, of_partitions in ranges.items():
        for number, each in enumerate(of_partitions):
            last = TimelinePosition(each[-1].order, each[-1].newest)
            found[EventTypePartition(name, str(number))] = last if subscription.read_from == "end" else begin(each)
    if subscription.read_from == "cursors":
        for cursor in subscription.initial_cursors:
            key = EventTypePartition(cursor.event_type, cursor.partition)
            given = parse_offset(cursor.offset, partition=cursor.partition, oldest_order=FIRST_ORDER)
            if given is not None and key in found:
                found[key] = given
    return found


def start_offsets(
    subscription: Subscription, event_type: str, ranges: Sequence[OffsetRanges]
) -> dict[EventTypePartition, str]:
    """The start places in one event type, as offsets."""
    return {key: place.offset for key, place in start_places(subscription, {event_type: ranges}).items()}
