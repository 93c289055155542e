"""Filters that Spark hands down, as bounds of what is read."""

from collections.abc import Iterable

import msgspec
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from rioni.domain.errors import InvalidCursor
from rioni.domain.timelines.position import TimelinePosition, parse_offset
from rioni.domain.timelines.timeline import FIRST_ORDER
from rioni.lake.columns import OFFSET, PARTITION
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

    @property
    def places(self) -> bool:
        """Whether there is a bound of places."""
        return self.after is not None or self.to is not None

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
    match given:
        case IsNotNull(attribute=(("_partition" | "_offset" | "_event_type"),)):
            return True
        case EqualTo(attribute=(("_partition" | "_event_type") as name,), value=value):
            return _only(bounds, name, {value})
        case In(attribute=(("_partition" | "_event_type") as name,), value=values):
            return _only(bounds, name, set(values))
        case EqualTo() | GreaterThan() | GreaterThanOrEqual() | LessThan() | LessThanOrEqual():
            at = _place(given.value) if given.attribute == (OFFSET,) else None
            return at is not None and _cut(bounds, given, at)
    return False


def _only(bounds: Bounds, name: str, values: set[str]) -> bool:
    if name == PARTITION:
        bounds.partitions = values if bounds.partitions is None else bounds.partitions & values
    else:
        bounds.event_types = values if bounds.event_types is None else bounds.event_types & values
    return True


def _cut(bounds: Bounds, given: Filter, at: TimelinePosition) -> bool:
    before = TimelinePosition(at.order, max(at.position - 1, -1))
    if isinstance(given, EqualTo | GreaterThan | GreaterThanOrEqual):
        _raise(bounds, at if isinstance(given, GreaterThan) else before)
    if isinstance(given, EqualTo | LessThan | LessThanOrEqual):
        _lower(bounds, before if isinstance(given, LessThan) else at)
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
