"""Reads an event type's timelines as one: each lies in a topic of some storage."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from rioni.domain.errors import NotFound, Unavailable
from rioni.domain.ports.event_store import Chunk, EventStore, EventStores
from rioni.domain.subscriptions.cursor_arithmetic import OffsetRange, OffsetRanges, place_since
from rioni.domain.subscriptions.cursor_arithmetic import offset_ranges_of as ranges_of_timelines
from rioni.domain.timelines.position import BEFORE_FIRST, Bounds, EventTypePartition, TimelinePosition, stored_place
from rioni.domain.timelines.timeline import Timeline, Timelines


T = TypeVar("T")


def offset_ranges_of(timelines: Timelines, stores: EventStores) -> Sequence[OffsetRanges]:
    """The ranges of every partition, by number, in the timelines that are not cleaned up. May block on the disk.

    Raises:
        NotFound: the event type has been deleted.
        Unavailable: a storage can't be used.
    """

    def bounds(timeline: Timeline) -> Sequence[Bounds]:
        try:
            return stores.of(timeline.storage_id).bounds(timeline.topic)
        except NotFound:
            if timeline.latest_position is None:
                raise
            return ()  # cleaned up a moment ago

    return ranges_of_timelines(timelines.readable, bounds)


def newest_of(timelines: Timelines, stores: EventStores) -> Sequence[TimelinePosition]:
    """The places of the last event of every partition, by number; raises as `offset_ranges_of`. Does not block.

    Appends of other processes may be missing until this process is notified of them.
    PERF: every stream calls it whenever it is woken; only the active timeline has to be read.
    """
    active = timelines.active
    return newest_in(timelines, stores.of(active.storage_id).newest(active.topic, active.partitions))


def newest_consistent(timelines: Timelines, stores: EventStores) -> Sequence[TimelinePosition]:
    """The last places as in `newest_of`, but with all appends of other processes; may block on a server."""
    active = timelines.active
    return newest_in(timelines, [bounds.newest for bounds in stores.of(active.storage_id).bounds(active.topic)])


def newest_in(timelines: Timelines, known: Sequence[int]) -> Sequence[TimelinePosition]:
    """The places of the last events, given the last positions in the active timeline."""
    active = timelines.active
    # A partition that the store does not know yet is new, and empty.
    newest = [*known, *[BEFORE_FIRST] * (active.partitions - len(known))]
    return [timelines.newest(number, newest[number]) for number in range(active.partitions)]


def position_at_time(
    timelines: Timelines, stores: EventStores, number: int, ranges: OffsetRanges, recorded_at_ms: int
) -> TimelinePosition:
    """The place in a partition before the first event that was stored at this time or later; blocks on the disk.

    Args:
        timelines: the timelines of the event type.
        stores: the stores of the storages.
        number: the number of the partition.
        ranges: the ranges of the partition, in `timelines.readable`.
        recorded_at_ms: a time that nothing was stored at since means the end.

    Raises:
        NotFound: the event type has been deleted.
        Unavailable: a storage can't be used.
    """
    by_order = {timeline.order: timeline for timeline in timelines.readable}

    def first_since(offset_range: OffsetRange) -> int:
        timeline = by_order[offset_range.order]
        try:
            return stores.of(timeline.storage_id).offset_at_time(timeline.topic, number, recorded_at_ms)
        except NotFound:
            if timeline.latest_position is None:
                raise
            return offset_range.newest + 1  # cleaned up a moment ago

    return place_since(ranges, first_since)


def recorded_at_ms_after(timelines: Timelines, stores: EventStores, number: int, after: TimelinePosition) -> int | None:
    """When the first event after a place was stored; None if nothing follows. Blocks on the disk.

    Raises:
        NotFound: the event type has been deleted.
        Unavailable: a storage can't be used.
    """
    found = _first_answer(
        timelines, stores, number, after, lambda store, topic, first: store.recorded_at_ms(topic, number, first)
    )
    return found and found[1]


def ages_s(
    timelines: Timelines,
    stores: EventStores,
    unconsumed: Mapping[EventTypePartition, int],
    cursors: Mapping[EventTypePartition, str],
    now_ms: int,
) -> dict[EventTypePartition, int | None]:
    """Ages of the first unconsumed events in whole seconds; 0 if all is consumed, None if unknown.

    Blocks on the disk, and is not to be run in a pool as a whole: stores leave the hub by themselves, and may begin to
    follow a topic.

    Args:
        timelines: the timelines of the event type.
        stores: the stores of the storages.
        unconsumed: how many events each partition of it has that are not consumed.
        cursors: the committed offsets, at least of these partitions.
        now_ms: the time.
    """
    found: dict[EventTypePartition, int | None] = {}
    for key, count in unconsumed.items():
        found[key] = None if count else 0
        if count:
            # PERF: one lookup in an index for each partition, 16 us; the events themselves are not read.
            with contextlib.suppress(Unavailable, NotFound):
                at_ms = recorded_at_ms_after(timelines, stores, int(key.partition), stored_place(cursors[key]))
                found[key] = 0 if at_ms is None else max(0, (now_ms - at_ms) // 1_000)
    return found


def read_after(
    timelines: Timelines,
    stores: EventStores,
    number: int,
    after: TimelinePosition,
    bytes_max: int,
    prefetch: Callable[[], Mapping[int, TimelinePosition]] = dict,
) -> tuple[int, Sequence[Chunk]]:
    """The next chunks of a partition, all from one timeline, with its order; no chunks if nothing follows.

    Args:
        timelines: the timelines of the event type.
        stores: the stores of the storages.
        number: the number of the partition.
        after: the last place read; events after it that retention has removed are skipped.
        bytes_max: as for `EventStore.read`.
        prefetch: returns the places after which the caller reads next, by the number of the partition.

    Raises:
        NotFound: the event type has been deleted.
        Unavailable: a storage can't be used.
    """

    def read(store: EventStore, topic: str, first: int) -> Sequence[Chunk] | None:
        return store.read(topic, number, first, bytes_max, lambda: _in_topic(timelines, topic, prefetch())) or None

    return _first_answer(timelines, stores, number, after, read) or (after.order, ())


def _in_topic(timelines: Timelines, topic: str, places: Mapping[int, TimelinePosition]) -> dict[int, int]:
    """The first positions after places in partitions, by partition, for those that are in the given topic."""
    found = {}
    for number, after in places.items():
        timeline, first = next(timelines.following(number, after), (None, 0))
        if timeline is not None and timeline.topic == topic:
            found[number] = first
    return found


def _first_answer(
    timelines: Timelines,
    stores: EventStores,
    number: int,
    after: TimelinePosition,
    read: Callable[[EventStore, str, int], T | None],
) -> tuple[int, T] | None:
    """The answer of the first timeline that has one to a question about its store, topic and first position."""
    for timeline, first in timelines.following(number, after):
        store, topic = stores.of(timeline.storage_id), timeline.topic
        try:
            answer = read(store, topic, first)
            if answer is None and timeline.latest_position is not None:
                # Don't move on to the next timeline and miss appends of others: a store may learn of these late,
                # unless it is asked for bounds. Those of a closed timeline never change.
                store.bounds(topic)
                answer = read(store, topic, first)
        except NotFound:
            if timeline.latest_position is None:
                raise
            continue  # cleaned up a moment ago
        if answer is not None:
            return timeline.order, answer
    return None
