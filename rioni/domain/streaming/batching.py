"""What lies between fetching and committing one partition: events not sent yet, and events sent but not committed.

Events are never touched one by one: both are kept as ranges of positions, and a batch is made of slices of chunks.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rioni.domain.cursor import Place
from rioni.domain.ports import Chunk


class Slice(NamedTuple):
    """Consecutive events of one chunk."""

    order: int
    """Of the timeline."""
    chunk: Chunk
    start: int
    """The position of the first event."""
    stop: int
    """The position behind the last event."""

    @property
    def last(self) -> Place:
        """The place of the last event."""
        return Place(self.order, self.stop - 1)


class Buffer:
    """Fetched events that wait to be sent, in order."""

    def __init__(self) -> None:
        self._slices: deque[Slice] = deque()
        self.count = 0
        """Of events."""
        self.bytes = 0
        """Of the chunks that are kept in memory for them."""

    def add(self, order: int, chunks: Iterable[Chunk], first: int) -> None:
        """Append the events of chunks from position `first` on."""
        for chunk in chunks:
            start = max(first, chunk.first)
            if start < chunk.next:
                self._slices.append(Slice(order, chunk, start, chunk.next))
                self.count += chunk.next - start
                self.bytes += len(chunk.data)

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
            slices.popleft()
            self.bytes -= len(chunk.data)
            self.count -= length
            count -= length
        return taken

    def drop(self, place: Place) -> None:
        """Remove the events up to a place."""
        while self._slices:
            order, _, start, stop = self._slices[0]
            if Place(order, start) > place:
                break
            self.take((min(stop, place.position + 1) if order == place.order else stop) - start)

    def clear(self) -> None:
        """Remove all events."""
        self._slices.clear()
        self.count = self.bytes = 0

    def first_recorded_at_ms(self) -> int | None:
        """When the first event was stored, None where there is none."""
        return self._slices[0].chunk.recorded_at_ms if self._slices else None

    def complete_before(self, recorded_at_ms: int) -> int:
        """How many events at the front were stored before this time, one chunk at least.

        0 as long as none that was stored later shows that no more can come.
        """
        if not self._slices or self._slices[-1].chunk.recorded_at_ms < recorded_at_ms:
            return 0
        count = 0
        for _, chunk, start, stop in self._slices:
            if count and chunk.recorded_at_ms >= recorded_at_ms:
                break
            count += stop - start
            if chunk.recorded_at_ms >= recorded_at_ms:
                break
        return count


class Outstanding:
    """Events that were sent and are not committed."""

    def __init__(self) -> None:
        self._ranges: deque[tuple[int, int, int]] = deque()
        self.count = 0

    def add(self, slices: Iterable[Slice]) -> int:
        """Note events as sent, and return their number."""
        before = self.count
        for order, _, start, stop in slices:
            if self._ranges and self._ranges[-1][0] == order and self._ranges[-1][-1] == start:
                self._ranges[-1] = (order, self._ranges[-1][1], stop)
            else:
                self._ranges.append((order, start, stop))
            self.count += stop - start
        return self.count - before

    def commit(self, place: Place) -> int:
        """Forget the events up to a place, and return their number."""
        before = self.count
        while self._ranges:
            order, start, stop = self._ranges[0]
            if Place(order, start) > place:
                break
            end = min(stop, place.position + 1) if order == place.order else stop
            self.count -= end - start
            if end < stop:
                self._ranges[0] = (order, end, stop)
                break
            self._ranges.popleft()
        return before - self.count
