"""Reads events of an event type up to the ends of its partitions, each event with its offset and its day."""

import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, date, datetime
from typing import NamedTuple

from rioni.domain.timelines.position import TimelinePosition
from rioni.domain.timestamps import time_of as received_or_occurred
from rioni.lake.broker import ArchivedEventType, Batch, Broker, place


UNDEFINED = "undefined"


class Read(NamedTuple):
    """An event as the broker stores it."""

    partition: str
    place: TimelinePosition
    event: bytes
    day: date


class Buffer:
    """The events that were read and will be committed together; not thread-safe."""

    def __init__(self, category: str, places: Mapping[str, TimelinePosition] | None = None) -> None:
        self._category = category
        self.begun_s = time.monotonic()
        self.events: list[Read] = []
        self.places: dict[str, TimelinePosition] = dict(places or {})
        """The last place read, by partition."""
        self.ended: set[str] = set()
        """The partitions that were read to their end."""
        self.expired = 0
        """Events that retention had removed while this was read."""
        self.bytes = 0
        self.oldest: datetime | None = None
        """The time of the oldest event."""

    def add(self, partition: str, events: Iterable[tuple[TimelinePosition, bytes]], last: TimelinePosition) -> None:
        """Add events of a partition in their order; `last` is the place up to which they are complete."""
        now = datetime.now(UTC)
        for at, event in events:
            time_ = time_of(event, self._category, now)
            self.oldest = time_ if self.oldest is None else min(time_, self.oldest)
            self.events.append(Read(partition, at, event, time_.date()))
            self.bytes += len(event)
        self.places[partition] = last


class Reader:
    """Reads one event type."""

    def __init__(self, broker: Broker, event_type: ArchivedEventType, targets: Mapping[str, TimelinePosition]) -> None:
        """Prepare to read.

        Args:
            broker: where from.
            event_type: which one.
            targets: where each partition ends; events after that are read only if they are in the same batch.
        """
        self._broker, self._event_type, self._targets = broker, event_type, targets

    def read(
        self,
        places: Mapping[str, TimelinePosition],
        is_full: Callable[[Buffer], bool],
        is_stopped: Callable[[], bool],
    ) -> Buffer:
        """Read after some places until the buffer is full, all is read, or `is_stopped`; blocks until then.

        Raises:
            Unavailable: the broker can't be read.
        """
        buffer = Buffer(self._event_type.category)
        for partition, after in places.items():
            self._read_partition(buffer, partition, after, lambda: is_full(buffer) or is_stopped())
            if is_full(buffer) or is_stopped():
                break
        return buffer

    def _read_partition(
        self, buffer: Buffer, partition: str, after: TimelinePosition, is_enough: Callable[[], bool]
    ) -> None:
        target = self._targets[partition]
        with self._stream(partition, after, self._count(partition, after)) as batches:
            for batch in batches:
                last = place(batch.cursor.offset)
                buffer.expired += batch.expired
                if batch.events:
                    before = buffer.places.get(partition, after)
                    buffer.add(partition, self._located(partition, before, last, batch), last)
                if last >= target:
                    break
                if is_enough():
                    return
        # Positions after the last event may hold deletions and the like, which streams do not deliver.
        buffer.ended.add(partition)

    def _stream(
        self, partition: str, after: TimelinePosition, count: int, *, alone: bool = False
    ) -> closing[Generator[Batch, None, None]]:
        event_type = self._event_type
        return self._broker.stream(event_type.name, event_type.identity, partition, after, count, alone=alone)

    def _count(self, partition: str, after: TimelinePosition) -> int:
        return self._broker.distance(self._event_type.name, partition, after, self._targets[partition])

    def _located(
        self, partition: str, before: TimelinePosition, last: TimelinePosition, batch: Batch
    ) -> Sequence[tuple[TimelinePosition, bytes]]:
        """The events of a batch with their places; the batch itself names only that of the last one."""
        count = len(batch.events)
        first = last.position - count + 1
        # After a switch of the timeline, events of the previous one may come first.
        if count == 1 or (last.order, first) == (before.order, before.position + 1):
            places = [TimelinePosition(last.order, first + number) for number in range(count)]
            return list(zip(places, map(bytes, batch.events), strict=True))
        # Some places have no events to be delivered: read them again, one by one.
        found = []
        with self._stream(partition, before, count, alone=True) as batches:
            for single in batches:
                at = place(single.cursor.offset)
                if at > last:
                    break
                found += [(at, bytes(event)) for event in single.events]
        return found


def time_of(event: bytes, category: str, now: datetime) -> datetime:
    """The time at which the broker received an event, otherwise its own time, otherwise now; in UTC."""
    try:
        # Near the first and the last day of all years there may be none in UTC.
        return ((category != UNDEFINED and received_or_occurred(event)) or now).astimezone(UTC)
    except OverflowError:
        return now
