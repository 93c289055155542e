"""Filters that Spark hands down, as bounds of what is read."""

from collections.abc import Iterable

import msgspec
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from rioni.domain.errors import InvalidCursor
from rioni.domain.timelines.position import TimelinePosition, parse_offset
from rioni.domain.timelines.timeline import FIRST_ORDER
from rioni.lake.columns import OFFSET, PARTITION
from rioni.spark.event_reader import EVENT_TYPE
from rioni.spark.places import Places


class Bounds(msgspec.Struct):
    """Which event types and partitions to read, and between which places; None for no bound."""

    event_types: set[str] | None = None
    partitions: set[str] | None = None
    after: TimelinePosition | None = None
    to: TimelinePosition | None = None

    def narrow(self, starts: Places, ends: Places) -> tuple[Places, Places]:
        """The part of some places that is within the bounds."""
        kept_starts = self._kept(starts)
        kept_ends = self._kept(ends)
        for name, places in kept_ends.items():
            for partition, end in places.items():
                start = kept_starts.get(name, {}).get(partition, end)
                # Where an earlier timeline ends is not known here: only the last one can be cut.
                if self.after is not None and self.after.order >= end.order:
                    kept_starts[name][partition] = max(start, min(self.after, end))
                if self.to is not None and self.to.order == end.order:
                    places[partition] = min(self.to, end)
        return kept_starts, kept_ends

    def admits(self, at: TimelinePosition) -> bool:
        """Whether an event at a place is within the bounds."""
        return (self.after is None or self.after < at) and (self.to is None or at <= self.to)

    def _kept(self, places: Places) -> Places:
        return {
            name: {each: at for each, at in found.items() if self.partitions is None or each in self.partitions}
            for name, found in places.items()
            if self.event_types is None or name in self.event_types
        }


def bounds_of(filters: Iterable[Filter]) -> tuple[Bounds, list[Filter]]:
    """The bounds that filters set, all of which must hold, and the filters that are left to Spark."""
    bounds = Bounds()
    return bounds, [each for each in filters if not _take(bounds, each)]


def _take(bounds: Bounds, given: Filter) -> bool:
    """Whether the bounds now express a filter fully."""
    if not isinstance(given, EqualTo | In | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
        return False
    if given.attribute in ((PARTITION,), (EVENT_TYPE,)) and isinstance(given, EqualTo | In):
        values = {given.value} if isinstance(given, EqualTo) else set(given.value)
        if given.attribute == (PARTITION,):
            bounds.partitions = values if bounds.partitions is None else bounds.partitions & values
        else:
            bounds.event_types = values if bounds.event_types is None else bounds.event_types & values
        return True
    at = _place(given.value) if given.attribute == (OFFSET,) and not isinstance(given, In) else None
    if at is None:
        return False
    before = TimelinePosition(at.order, max(at.position - 1, -1))
    match given:
        case EqualTo():
            _raise(bounds, before)
            _lower(bounds, at)
        case GreaterThan():
            _raise(bounds, at)
        case GreaterThanOrEqual():
            _raise(bounds, before)
        case LessThan():
            _lower(bounds, before)
        case LessThanOrEqual():
            _lower(bounds, at)
    return True


def _raise(bounds: Bounds, after: TimelinePosition) -> None:
    bounds.after = after if bounds.after is None else max(bounds.after, after)


def _lower(bounds: Bounds, to: TimelinePosition) -> None:
    bounds.to = to if bounds.to is None else min(bounds.to, to)


def _place(offset: object) -> TimelinePosition | None:
    """The place of an offset in canonical form; others do not compare as texts as their places do."""
    if not isinstance(offset, str):
        return None
    try:
        found = parse_offset(offset, partition="", oldest_order=FIRST_ORDER)
    except InvalidCursor:
        return None
    return found if found is not None and found.offset == offset else None
