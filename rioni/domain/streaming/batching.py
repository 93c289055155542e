"""The events of a stream: which of them it delivers, and the buffers of one partition."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, repeat
from typing import NamedTuple, TypeVar

import msgspec

from rioni.domain.access.authorization import Subject, permits
from rioni.domain.breaths import Breaths
from rioni.domain.ports.event_store import Chunk
from rioni.domain.publishing.headers import NO_HEADERS, Headers, headers_bytes
from rioni.domain.subscriptions.event_filter import EventFilter
from rioni.domain.timelines.position import TimelinePosition


# Source: reference low-level-streams#flushing, streams#hidden-events.


class Visibility(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions that hide events from a stream; tombstones are hidden from all."""

    subscription_id: str | None = None
    """The reading subscription, None for a low-level stream: events for another subscription are hidden."""
    reader: Subject | None = None
    """The subject that the owner of an event must permit; None if owners are not checked."""
    wanted: EventFilter | None = None
    """The subscription's filter."""

    def ranges(self, chunk: Chunk, first: int = 0) -> Sequence[tuple[int, int]] | None:
        """The visible events of a chunk; those before position `first` are ignored.

        PERF: without headers and without a filter nothing is hidden, and no event is evaluated. With a filter it pauses
        periodically, since each event of a chunk may take milliseconds.

        Returns:
            Ranges of positions, the second one after the last event, in order and none of them empty; None for all
            events.
        """
        if chunk.headers is None and self.wanted is None:
            return None
        found: list[tuple[int, int]] = []
        first = max(first, chunk.first)
        skipped = first - chunk.first
        start, begin = first, chunk.ends[skipped - 1] + 1 if skipped else 0
        breathe = Breaths()
        headers = chunk.headers or repeat(NO_HEADERS, len(chunk.ends))
        events = zip(chunk.ends, headers, strict=True)
        for position, (end, each) in enumerate(islice(events, skipped, None), first):
            if end == begin or self._hides(each) or not self._wants(chunk.data[begin:end]):
                if start < position:
                    found.append((start, position))
                start = position + 1
            begin = end + 1
            if self.wanted is not None:
                breathe()
        if start == first:
            return None
        if start < chunk.next:
            found.append((start, chunk.next))
        return found

    def _wants(self, event: bytes) -> bool:
        return self.wanted is None or self.wanted.matches(event)

    def _hides(self, headers: Headers) -> bool:
        if headers.subscription_id is not None and headers.subscription_id != self.subscription_id:
            return True
        return headers.owner is not None and self.reader is not None and not permits((headers.owner,), self.reader)


# --- Streams that examine a limited number of events in a second ---
#
# Source: reference low-level-streams#left-out-events.

K = TypeVar("K")

FRAME_S = 0.1
"""How long such a stream waits between two reads, so that its cost does not grow with the rate of appends."""


class Sampling:
    """Limits the events per second; an unused rest can be used within the next second."""

    def __init__(self, events_per_second: int, now_s: float) -> None:
        """Begin.

        Args:
            events_per_second: the limit; 1 or more.
            now_s: monotonic time, as below.
        """
        self._per_s = events_per_second
        self._left: float = events_per_second
        self._at_s = now_s
        self._turn = 0

    def left_out(self, unread: Mapping[K, int], read: int, now_s: float) -> dict[K, int]:
        """How many of the oldest unread events to leave out, for partitions with too many.

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


# --- Buffers of one partition: events not sent yet, sent but not committed, or hidden ---
#
# Events are never touched one by one: all are kept as ranges of positions, and a batch is made of slices of chunks.


class Slice(NamedTuple):
    """Consecutive events of one chunk."""

    order: int
    """The order of the timeline."""
    chunk: Chunk
    start: int
    """The position of the first event."""
    stop: int
    """The position after the last event."""

    @property
    def last(self) -> TimelinePosition:
        """The place of the last event."""
        return TimelinePosition(self.order, self.stop - 1)


class Buffer:
    """Fetched events that wait to be sent, in order."""

    # PERF: a stream has one of these for each of its partitions, so they are small: an empty deque has 600 bytes more.
    __slots__ = ("_slices", "bytes", "count")

    def __init__(self) -> None:
        self._slices: list[Slice] = []
        self.count = 0
        """The number of events."""
        self.bytes = 0
        """The size of the chunks that are kept in memory for the events."""

    def add(self, order: int, chunks: Iterable[Chunk], first: int, visibility: Visibility) -> list[tuple[int, int]]:
        """Append the visible events of chunks from position `first` on; return the ranges of the others."""
        filtered: list[tuple[int, int]] = []
        for chunk in chunks:
            start, stop = max(first, chunk.first), chunk.next
            if start >= stop:
                continue
            visible = visibility.ranges(chunk, start)
            if visible is None:
                self._slices.append(Slice(order, chunk, start, stop))
                self.count += stop - start
                self.bytes += len(chunk.data) if chunk.headers is None else _size(chunk)
            else:
                filtered += self._add_some(order, chunk, start, visible)
        return filtered

    def _add_some(
        self, order: int, chunk: Chunk, start: int, visible: Iterable[tuple[int, int]]
    ) -> Iterator[tuple[int, int]]:
        kept = False
        for begin, end in visible:
            if end > start:
                if begin > start:
                    yield start, begin
                start = max(start, begin)
                self._slices.append(Slice(order, chunk, start, end))
                self.count += end - start
                start, kept = end, True
        if start < chunk.next:
            yield start, chunk.next
        if kept:
            self.bytes += _size(chunk)

    @property
    def first(self) -> TimelinePosition | None:
        """The place of the first event, None if there is none."""
        return TimelinePosition(self._slices[0].order, self._slices[0].start) if self._slices else None

    def take(self, count: int) -> Sequence[Slice]:
        """Remove the first events, at most `count`. PERF: costs as many steps as chunks are touched."""
        taken: list[Slice] = []
        slices = self._slices
        while count > 0 and slices:
            head = slices[0]
            order, chunk, start, stop = head
            length = stop - start
            if length > count:
                taken.append(Slice(order, chunk, start, start + count))
                slices[0] = Slice(order, chunk, start + count, stop)
                self.count -= count
                break
            taken.append(head)
            del slices[0]
            if not slices or slices[0].chunk is not chunk:
                self.bytes -= len(chunk.data) if chunk.headers is None else _size(chunk)
            self.count -= length
            count -= length
        return taken

    def drop(self, place: TimelinePosition) -> None:
        """Remove the events up to a place."""
        while self._slices:
            order, _, start, stop = self._slices[0]
            if TimelinePosition(order, start) > place:
                break
            self.take((min(stop, place.position + 1) if order == place.order else stop) - start)

    def clear(self) -> None:
        """Remove all events."""
        self._slices.clear()
        self.count = self.bytes = 0

    def first_recorded_at_ms(self) -> int | None:
        """When the first event was stored, None if there is none."""
        return self._slices[0].chunk.recorded_at_ms if self._slices else None

    def complete_before(self, recorded_at_ms: int) -> int:
        """How many events at the front were stored before this time, one chunk at least.

        0 as long as none that was stored later shows that no more can come.
        """
        if not self._slices or self._slices[-1].chunk.recorded_at_ms < recorded_at_ms:
            return 0
        count, first = 0, self._slices[0].chunk
        for _, chunk, start, stop in self._slices:
            if chunk is not first and chunk.recorded_at_ms >= recorded_at_ms:
                break
            count += stop - start
        return count


class Ranges:
    """Events known by their positions only, in order."""

    __slots__ = ("_ranges", "count")

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int, int]] = []
        self.count = 0
        """The number of events."""

    @property
    def first(self) -> TimelinePosition | None:
        """The place of the first event, None if there is none."""
        return TimelinePosition(self._ranges[0][0], self._ranges[0][1]) if self._ranges else None

    def add(self, order: int, start: int, stop: int) -> None:
        """Note events that follow all others, up to position `stop - 1`."""
        if self._ranges and self._ranges[-1][0] == order and self._ranges[-1][-1] == start:
            self._ranges[-1] = (order, self._ranges[-1][1], stop)
        else:
            self._ranges.append((order, start, stop))
        self.count += stop - start

    def commit(self, place: TimelinePosition) -> int:
        """Drop the events up to a place, and return their number."""
        before = self.count
        while self._ranges:
            order, start, stop = self._ranges[0]
            if TimelinePosition(order, start) > place:
                break
            end = min(stop, place.position + 1) if order == place.order else stop
            self.count -= end - start
            if end < stop:
                self._ranges[0] = (order, end, stop)
                break
            del self._ranges[0]
        return before - self.count

    def take_before(self, place: TimelinePosition | None) -> TimelinePosition | None:
        """Drop the ranges before an event that no range contains, and return the last place; None for all ranges."""
        last = None
        while self._ranges and (place is None or TimelinePosition(*self._ranges[0][:2]) < place):
            order, start, stop = self._ranges.pop(0)
            self.count -= stop - start
            last = TimelinePosition(order, stop - 1)
        return last

    def cut(self, place: TimelinePosition) -> None:
        """Drop the ranges after an event that no range contains."""
        while self._ranges and TimelinePosition(*self._ranges[-1][:2]) > place:
            _, start, stop = self._ranges.pop()
            self.count -= stop - start


def _size(chunk: Chunk) -> int:
    return len(chunk.data) + headers_bytes(chunk.headers)
