"""Buffers of one partition: events not sent yet, sent but not committed, or hidden.

Events are never touched one by one: all are kept as ranges of positions, and a batch is made of slices of chunks.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rioni.domain.ports.event_store import Chunk
from rioni.domain.publishing.headers import headers_bytes
from rioni.domain.streaming.visibility import Visibility
from rioni.domain.timelines.position import TimelinePosition


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
