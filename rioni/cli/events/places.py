"""Places in the partitions of an event type: their beginning and end, a time, or a number of events further."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import NamedTuple, cast

from rioni.client import BadRequest, Batch, Client, Cursor, CursorSpecification, Unprocessable
from rioni.domain.errors import Invalid, InvalidCursor
from rioni.domain.timelines.position import TimelinePosition, parse_offset
from rioni.domain.timelines.timeline import FIRST_ORDER
from rioni.domain.timestamps import time_of


Places = dict[str, TimelinePosition]
"""The last place read, by partition."""

PROBE_S = 1
"""Seconds that a probe for an event's time waits if there is no event."""


class Bounds(NamedTuple):
    """The places of the first and the last event in a partition."""

    before_oldest: TimelinePosition
    """The place before the oldest event that can be read."""
    newest: TimelinePosition


class Locator:
    """Finds places in an event type. Methods block until the broker answers, and raise `ClientError`."""

    def __init__(self, client: Client, event_type: str) -> None:
        self._client, self.event_type = client, event_type

    def bounds(self, partitions: Sequence[str] = ()) -> dict[str, Bounds]:
        """Return the bounds of the partitions as they are now.

        Args:
            partitions: only these; by default all.

        Raises:
            Invalid: there is no such partition.
        """
        found = {each.partition: each for each in self._client.partitions.list(self.event_type)}
        if missing := [name for name in partitions if name not in found]:
            raise Invalid(f"{self.event_type} has no partition {missing[0]}; it has {', '.join(found)}.")
        return {
            name: Bounds(_before(place(each.oldest_available_offset)), place(each.newest_available_offset))
            for name, each in found.items()
            if not partitions or name in partitions
        }

    def at(self, bounds: Mapping[str, Bounds], time: datetime) -> Places:
        """The place before the first event that was stored at a time or later, in each partition.

        Servers that know no places by time are asked for the times of single events.

        Args:
            bounds: of the partitions.
            time: aware of its offset.

        Raises:
            Invalid: neither the server nor the events know times.
        """
        text = time.astimezone(UTC).isoformat(timespec="milliseconds")
        items = [CursorSpecification(partition=name, timestamp=text) for name in bounds]
        try:
            found = self._client.partitions.shift(self.event_type, items)
        except (BadRequest, Unprocessable):
            return {name: self._searched(name, each, time) for name, each in bounds.items()}
        return {cursor.partition: place(cursor.offset) for cursor in found}

    def shifted(self, partition: str, at: TimelinePosition, count: int) -> TimelinePosition:
        """The place `count` events further; for negative numbers, earlier."""
        item = CursorSpecification(partition=partition, offset=at.offset, shift=count)
        return place(self._client.partitions.shift(self.event_type, [item])[0].offset)

    def distance(self, partition: str, after: TimelinePosition, to: TimelinePosition) -> int:
        """The number of positions after one place, up to and including another one."""
        if after.order == to.order:
            return to.position - after.position
        pair = (
            CursorSpecification(partition=partition, offset=after.offset),
            CursorSpecification(partition=partition, offset=to.offset),
        )
        return self._client.partitions.distances(self.event_type, [pair])[0].distance

    def _searched(self, partition: str, bounds: Bounds, time: datetime) -> TimelinePosition:
        """Bisect, looking for the first event that is not older."""
        first, last = 0, self.distance(partition, bounds.before_oldest, bounds.newest)
        while first < last:
            middle = (first + last) // 2
            if self._is_older(partition, self.shifted(partition, bounds.before_oldest, middle), time):
                first = middle + 1
            else:
                last = middle
        return self.shifted(partition, bounds.before_oldest, first)

    def _is_older(self, partition: str, after: TimelinePosition, time: datetime) -> bool:
        batches = self._client.events(
            self.event_type,
            cursors=[Cursor(partition=partition, offset=after.offset)],
            batch_limit=1,
            stream_limit=1,
            batch_flush_timeout=PROBE_S,
            stream_keep_alive_limit=1,
        )
        with closing(cast("Generator[Batch, None, None]", batches)) as opened:
            event = next((event for batch in opened for event in batch.events), None)
        if event is None:
            return False
        found = time_of(event)
        if found is None:
            raise Invalid(
                f"This server finds no places by time, and the events of {self.event_type} do not say when they were "
                "received. Name offsets in place of times."
            )
        return found < time


def place(offset: str) -> TimelinePosition:
    """The place that an offset of a broker names.

    Raises:
        Invalid: it is not an offset.
    """
    try:
        found = parse_offset(offset, partition="", oldest_order=FIRST_ORDER)
    except InvalidCursor:
        raise Invalid(f"{offset!r:.100} is no offset: write one that the broker shows, or begin or end.") from None
    if found is None:
        raise Invalid("BEGIN is not a place; the broker has to name one.")
    return found


def _before(oldest: TimelinePosition) -> TimelinePosition:
    return TimelinePosition(oldest.order, oldest.position - 1)
