"""Resolves client cursor specs (BEGIN, END, timestamp) to positions, across an event type's timelines."""

from rioni.domain.errors import Invalid, InvalidCursor
from rioni.domain.ports.event_stores import EventStores
from rioni.domain.subscriptions.cursor import TimelinePosition, parse_offset, partition_number
from rioni.domain.subscriptions.cursor_arithmetic import OffsetRanges, begin, end, readable_place, shifted
from rioni.domain.subscriptions.cursor_spec import CursorSpec
from rioni.domain.timelines.timeline import FIRST_ORDER, Timelines
from rioni.domain.timestamps import parsed_ms
from rioni.projections.queries.timeline_reader import offset_ranges_of, position_at_time


class CursorResolver:
    """The places of one event type, as they are when this is made."""

    def __init__(self, timelines: Timelines, stores: EventStores) -> None:
        """Ask what there is; may block on the disk.

        Raises:
            NotFound: the event type has been deleted.
            Unavailable: a storage can't be used.
        """
        self._timelines, self._stores = timelines, stores
        self.partitions = offset_ranges_of(timelines, stores)
        """What every partition holds, by number."""

    def extents(self, partition: str | None) -> OffsetRanges:
        """What a partition holds.

        Raises:
            Invalid: there is no such partition.
        """
        return self.partitions[self._number(partition)]

    def place(self, named: CursorSpec) -> TimelinePosition:
        """The place that a name stands for, whether it can be read or not; its shift is left to the caller.

        Blocks on the disk where it is a time.

        Raises:
            Invalid: there is no such partition.
            InvalidCursor: the offset is none.
        """
        number = self._number(named.partition)
        extents = self.partitions[number]
        if named.timestamp is not None:
            at_ms = parsed_ms(named.timestamp)
            assert at_ms is not None, "names are checked when they are read"
            return position_at_time(self._timelines, self._stores, number, extents, at_ms)
        if named.is_end:
            return end(extents)
        offset, partition = named.offset or "", named.partition or ""
        return parse_offset(offset, partition=partition, oldest_order=FIRST_ORDER) or begin(extents)

    def readable(self, named: CursorSpec) -> TimelinePosition:
        """The place that a name stands for, from which reading can go on; blocks as `place`.

        Raises:
            InvalidCursor: partition or offset can't be read.
            UnavailableCursor: what follows the offset has expired, or the position does not exist yet.
            Invalid: the shift leads to where nothing can be read.
        """
        event_type, partition = named.event_type or "", named.partition or ""
        if not named.is_general:
            place = readable_place(event_type, partition, named.offset or "", self.partitions)
        elif partition_number(partition, len(self.partitions)) is None:
            raise InvalidCursor(f"non existing partition {partition}")
        else:
            place = self.place(named)
        return shifted(place, named.shift, self.extents(partition)) if named.shift else place

    def _number(self, partition: str | None) -> int:
        number = partition_number(partition or "", len(self.partitions))
        if number is None:
            raise Invalid("Partition not found.")
        return number
