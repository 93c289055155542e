"""Resolves client cursor specs (BEGIN, END, timestamp) to positions, across an event type's timelines."""

from rioni.domain.errors import Invalid, InvalidCursor
from rioni.domain.ports.event_stores import EventStores
from rioni.domain.subscriptions.cursor_arithmetic import OffsetRanges, begin, end, readable_place, shifted
from rioni.domain.subscriptions.cursor_spec import CursorSpec
from rioni.domain.timelines.position import TimelinePosition, parse_offset, partition_number
from rioni.domain.timelines.timeline import FIRST_ORDER, Timelines
from rioni.domain.timestamps import parsed_ms
from rioni.projections.queries.timeline_reader import offset_ranges_of, position_at_time


class CursorResolver:
    """Resolves cursor specs of one event type against a snapshot of its timelines."""

    def __init__(self, timelines: Timelines, stores: EventStores) -> None:
        """Read the offset ranges; may block on the disk.

        Raises:
            NotFound: the event type has been deleted.
            Unavailable: a storage can't be used.
        """
        self._timelines, self._stores = timelines, stores
        self.partitions = offset_ranges_of(timelines, stores)
        """The offset ranges of all partitions, by number."""

    def ranges(self, partition: str | None) -> OffsetRanges:
        """The offset ranges of a partition.

        Raises:
            Invalid: there is no such partition.
        """
        return self.partitions[self._number(partition)]

    def place(self, named: CursorSpec) -> TimelinePosition:
        """The position that a cursor spec names, readable or not; the caller applies its shift.

        Blocks on the disk if the spec is a timestamp.

        Raises:
            Invalid: there is no such partition.
            InvalidCursor: the offset is not valid.
        """
        number = self._number(named.partition)
        ranges = self.partitions[number]
        if named.timestamp is not None:
            at_ms = parsed_ms(named.timestamp)
            assert at_ms is not None, "names are checked when they are read"
            return position_at_time(self._timelines, self._stores, number, ranges, at_ms)
        if named.is_end:
            return end(ranges)
        offset, partition = named.offset or "", named.partition or ""
        return parse_offset(offset, partition=partition, oldest_order=FIRST_ORDER) or begin(ranges)

    def readable(self, named: CursorSpec) -> TimelinePosition:
        """The position that a cursor spec names, which must be readable; blocks as `place` does.

        Raises:
            InvalidCursor: partition or offset can't be read.
            UnavailableCursor: what follows the offset has expired, or the position does not exist yet.
            Invalid: the shifted position is not readable.
        """
        event_type, partition = named.event_type or "", named.partition or ""
        if not named.is_general:
            place = readable_place(event_type, partition, named.offset or "", self.partitions)
        elif partition_number(partition, len(self.partitions)) is None:
            raise InvalidCursor(f"non existing partition {partition}")
        else:
            place = self.place(named)
        return shifted(place, named.shift, self.ranges(partition)) if named.shift else place

    def _number(self, partition: str | None) -> int:
        number = partition_number(partition or "", len(self.partitions))
        if number is None:
            raise Invalid("Partition not found.")
        return number
