"""The places that a read covers, by options, times, subscriptions and filters, split into ranges for tasks."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Self

import msgspec
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from rioni.client import CursorSpecification
from rioni.client.ranges import Bounds, Locator, Place, Places, RangeError, place
from rioni.domain.errors import Conflict, Invalid
from rioni.domain.schemas import strict_json
from rioni.domain.timestamps import parsed
from rioni.lake.columns import OFFSET, PARTITION
from rioni.lake.reader import created, event_type
from rioni.spark.options import SourceOptions


# --- The beginning and end of a read: the places that options, times and subscriptions name in each partition ---

PlacesByType = dict[str, Places]
"""The last place read, by event type and partition."""


class Planner:
    """Finds the places that options name; every call asks the broker and blocks until it answers.

    Use it as a context manager, for one read: it caches the event types.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._client = options.client()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    @cached_property
    def event_types(self) -> tuple[str, ...]:
        """The event types to read.

        Raises:
            Invalid: no option names any.
        """
        if self._options.event_types:
            return self._options.event_types
        if self._options.subscription is None:
            raise Invalid("Name what to read by the option event_type, or by the option subscription.")
        return tuple(sorted(self._client.subscriptions.get(self._options.subscription).event_types))

    def identities(self, names: Iterable[str]) -> dict[str, str]:
        """When each event type was created, which distinguishes it from others that had its name."""
        return {name: created(event_type(self._client, name)).isoformat() for name in names}

    def locator(self, name: str) -> Locator:
        """Finds places in an event type."""
        return Locator(self._client, name)

    def starts(self) -> PlacesByType:
        """The places after which the read begins: the cursors of the subscription, else those of `from`."""
        committed = self._committed() if self._options.subscription else {}
        return {
            name: self._of_option(name, self._options.start, "from") | committed.get(name, {})
            for name in self.event_types
        }

    def ends(self) -> PlacesByType:
        """The places up to which the read goes, by the option `to`."""
        return {name: self._of_option(name, self._options.end, "to") for name in self.event_types}

    def commit(self, places: PlacesByType) -> None:
        """Set the cursors of the subscription; this ends its streams."""
        items = [
            CursorSpecification(event_type=name, partition=partition, offset=at.offset)
            for name, partitions in places.items()
            for partition, at in partitions.items()
        ]
        self._client.subscriptions.reset(self._options.subscription or "", items)

    def _of_option(self, name: str, text: str, option: str) -> Places:
        locator = self.locator(name)
        bounds = locator.bounds()
        if text.lower() == "begin":
            return {partition: each.before_oldest for partition, each in bounds.items()}
        if text.lower() == "end":
            return {partition: each.newest for partition, each in bounds.items()}
        if text.startswith("{"):
            # A partition that is not named is read from its beginning, or to its end.
            given = _offsets(bounds, text, option)
            return {
                partition: given.get(partition, each.before_oldest if option == "from" else each.newest)
                for partition, each in bounds.items()
            }
        try:
            time = parsed(text)
        except (ValueError, OverflowError) as ex:
            raise Invalid(
                f"{option} is {text}, but must be begin, end, an RFC 3339 time, or a JSON object with offsets."
            ) from ex
        if time.tzinfo is None:
            raise Invalid(f"{option} is {text}, a time without an offset from UTC; add Z or +01:00.")
        return locator.at(bounds, time.isoformat())

    def _committed(self) -> PlacesByType:
        subscription = self._options.subscription or ""
        # An empty list gives the subscription its cursors if it has none yet, and changes nothing otherwise.
        self._client.subscriptions.reset(subscription, [])
        found: PlacesByType = {}
        for each in self._client.subscriptions.cursors(subscription):
            found.setdefault(each.event_type or "", {})[each.partition] = place(each.offset)
        return found


def _offsets(partitions: Mapping[str, Bounds], text: str, option: str) -> dict[str, Place]:
    try:
        offsets = strict_json.decode(text)
    except strict_json.JsonError as ex:
        raise Invalid(f"{option} must be a JSON object of offsets by partition, but is {text}: {ex}.") from ex
    given = {}
    for name, offset in offsets.items():
        try:
            given[name] = place(str(offset))
        except RangeError as ex:
            raise Invalid(f"{option} names {offset} in partition {name}, which is no offset of an event.") from ex
    if unknown := sorted(given.keys() - partitions.keys()):
        raise Invalid(f"{option} names partitions that do not exist: {', '.join(unknown)}.")
    check_not_ahead(given, partitions, f"The option {option}")
    return given


def check_not_ahead(places: Mapping[str, Place], partitions: Mapping[str, Bounds], whose: str) -> None:
    """Check that no place lies beyond the end of its partition: events published up to there would be skipped.

    Raises:
        Conflict: one does.
    """
    for name, at in places.items():
        each = partitions.get(name)
        if each is not None and at > max(each.newest, each.before_oldest):
            raise Conflict(
                f"{whose} stands at {at.offset} of partition {name}, which ends at {each.newest.offset}: was the event "
                "type created again, or the broker restored from a backup? Begin anew."
            )


# --- Splits the events to be read into ranges, one for each task ---


@dataclass(frozen=True)
class ReadRange(InputPartition):
    """Events of one partition: after the place `after`, up to and including `to`."""

    event_type: str
    partition: str
    after: Place
    to: Place
    count: int
    """Positions in between; there may be fewer events."""
    created_at: str
    """When the event type was created, to distinguish it from one that gets its name while the range is read."""


def split(
    planner: Planner, starts: PlacesByType, ends: PlacesByType, identities: Mapping[str, str], events_max: int
) -> Iterator[ReadRange]:
    """Split what lies between two places of each partition that has both.

    Args:
        planner: finds places.
        starts: the last places read.
        ends: the last places to be read.
        identities: when each event type was created.
        events_max: positions of a range at most.
    """
    for name, partitions in ends.items():
        for partition, to in partitions.items():
            after = starts.get(name, {}).get(partition)
            if after is not None and after < to:
                whole = ReadRange(name, partition, after, to, 0, identities[name])
                yield from _split(planner.locator(name), whole, events_max)


def _split(locator: Locator, whole: ReadRange, events_max: int) -> Iterator[ReadRange]:
    partition = whole.partition
    total = locator.distance(partition, whole.after, whole.to)
    if total <= 0:
        return
    shifts = list(range(events_max, total, events_max))
    borders = [whole.after, *locator.shifted(partition, whole.after, shifts), whole.to]
    for number, (after, to) in enumerate(pairwise(borders)):
        yield replace(whole, after=after, to=to, count=min(events_max, total - number * events_max))


# --- Filters that Spark hands down, as bounds of the read ---


class ReadBounds(msgspec.Struct):
    """The event types and partitions to read, and the places to read between; None for no bound."""

    event_types: set[str] | None = None
    partitions: set[str] | None = None
    after: Place | None = None
    to: Place | None = None

    def narrow(self, starts: PlacesByType, ends: PlacesByType) -> tuple[PlacesByType, PlacesByType]:
        """The part of some places that is within the bounds."""
        kept_starts = self._kept(starts)
        kept_ends = self._kept(ends)
        for name, places in kept_ends.items():
            for partition, end in places.items():
                start = kept_starts.get(name, {}).get(partition, end)
                # The end of an earlier timeline is not known here: only the last one can be cut.
                if self.after is not None and self.after.order >= end.order:
                    kept_starts[name][partition] = max(start, min(self.after, end))
                if self.to is not None and self.to.order == end.order:
                    places[partition] = min(self.to, end)
        return kept_starts, kept_ends

    @property
    def places(self) -> bool:
        """Whether there is a bound of places."""
        return self.after is not None or self.to is not None

    def admits(self, at: Place) -> bool:
        """Whether an event at a place is within the bounds."""
        return (self.after is None or self.after < at) and (self.to is None or at <= self.to)

    def _kept(self, places: PlacesByType) -> PlacesByType:
        return {
            name: {each: at for each, at in found.items() if self.partitions is None or each in self.partitions}
            for name, found in places.items()
            if self.event_types is None or name in self.event_types
        }


def bounds_of(filters: Iterable[Filter]) -> tuple[ReadBounds, list[Filter]]:
    """The bounds that filters set, all of which must hold, and the filters that are left to Spark."""
    bounds = ReadBounds()
    return bounds, [each for each in filters if not _take(bounds, each)]


def _take(bounds: ReadBounds, given: Filter) -> bool:
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


def _only(bounds: ReadBounds, name: str, values: set[str]) -> bool:
    if name == PARTITION:
        bounds.partitions = values if bounds.partitions is None else bounds.partitions & values
    else:
        bounds.event_types = values if bounds.event_types is None else bounds.event_types & values
    return True


def _cut(bounds: ReadBounds, given: Filter, at: Place) -> bool:
    before = Place(at.order, max(at.position - 1, -1))
    if isinstance(given, EqualTo | GreaterThan | GreaterThanOrEqual):
        _raise(bounds, at if isinstance(given, GreaterThan) else before)
    if isinstance(given, EqualTo | LessThan | LessThanOrEqual):
        _lower(bounds, before if isinstance(given, LessThan) else at)
    return True


def _raise(bounds: ReadBounds, after: Place) -> None:
    bounds.after = after if bounds.after is None else max(bounds.after, after)


def _lower(bounds: ReadBounds, to: Place) -> None:
    bounds.to = to if bounds.to is None else min(bounds.to, to)


def _place(offset: object) -> Place | None:
    """The place of an offset in canonical form; others do not compare as texts as their places do."""
    if not isinstance(offset, str):
        return None
    try:
        found = place(offset)
    except RangeError:
        return None
    return found if found.offset == offset else None
