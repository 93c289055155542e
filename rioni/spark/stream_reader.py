"""Reads events in micro-batches: Spark's checkpoint keeps the offsets, and decides which events are read again."""

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from rioni.client.ranges import Bounds, Locator, Place, place
from rioni.domain.errors import Conflict
from rioni.spark.event_reader import read_range
from rioni.spark.options import SourceOptions
from rioni.spark.places import PlacesByType, Planner, ReadRange, check_not_ahead, split


CREATED_AT = "created_at"

Offsets = dict[str, dict[str, str]]
"""Places as they are in a checkpoint: offsets by event type and partition, and when the event type was created.

Checkpoints of older releases do not have the latter.
"""


class EventStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads events that are published while a query runs."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._options, self._schema = options, schema
        self._target: PlacesByType | None = None
        self._committed: Offsets | None = None

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's name
        """The offsets at which a new query begins."""
        with Planner(self._options) as planner:
            # Identities are read before the places: the first micro-batch checks that these are of the same event type.
            identities = planner.identities(planner.event_types)
            return _written(planner.starts(), identities)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The limit of positions in a micro-batch: `events_per_batch`."""
        return ReadMaxRows(self._options.events_per_batch)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Read the events that are there now, and then end."""
        with Planner(self._options) as planner:
            self._target = _ends(_bounds(planner))

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802 - Spark's name
        """The offsets at which the next micro-batch ends.

        A partition that was added is put into the offsets before its first event, and read from the next batch on, so
        that each batch is determined by the offsets in the checkpoint alone.
        """
        begin = _read(start)
        with Planner(self._options) as planner:
            identities = _identities(planner, start, planner.event_types)
            newest = _bounds(planner)
            for name, partitions in newest.items():
                check_not_ahead(begin.get(name, {}), partitions, f"The checkpoint of {name}")
            # The micro-batches up to `start` are processed; Spark reports that only when there is a further one.
            self._commit(planner, start)
            target = self._target or _ends(newest)
            added = {name: places.keys() - begin.get(name, {}).keys() for name, places in target.items()}
            ends = {name: dict(places) for name, places in begin.items()}
            for name, missing in added.items():
                ends.setdefault(name, {}).update({each: newest[name][each].before_oldest for each in missing})
            return _written(_bounded(planner, begin, ends, target, limit), identities)

    def partitions(self, start: Offsets, end: Offsets) -> list[ReadRange]:
        """A range for each task."""
        with Planner(self._options) as planner:
            identities = _identities(planner, start, start) | _identities(planner, end, end)
            return list(split(planner, _read(start), _read(end), identities, self._options.events_per_task))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The events of a range, as Arrow batches."""
        if not isinstance(partition, ReadRange):
            return iter(())  # Spark makes a separate task if there is nothing to read.
        return read_range(self._options, self._schema, partition)

    def commit(self, end: Offsets) -> None:
        """Set the subscription's cursors to the ends of the processed micro-batches."""
        with Planner(self._options) as planner:
            self._commit(planner, end)

    def _commit(self, planner: Planner, processed: Offsets) -> None:
        if self._options.subscription is not None and processed != self._committed:
            planner.commit(_read(processed))
            self._committed = processed


def _bounds(planner: Planner) -> dict[str, dict[str, Bounds]]:
    return {name: planner.locator(name).bounds() for name in planner.event_types}


def _identities(planner: Planner, offsets: Offsets, names: Iterable[str]) -> dict[str, str]:
    """When some event types were created.

    Raises:
        Conflict: one is another event type than that of the offsets, which had the same name.
    """
    found = planner.identities(names)
    for name, created_at in found.items():
        known = offsets.get(name, {}).get(CREATED_AT, created_at)
        if known != created_at:
            raise Conflict(
                f"The checkpoint is of an event type {name} that was created at {known} and deleted since; the event "
                f"type that has the name now was created at {created_at}. Start the query with a new checkpoint."
            )
    return found


def _ends(bounds: dict[str, dict[str, Bounds]]) -> PlacesByType:
    return {name: {each: at.newest for each, at in found.items()} for name, found in bounds.items()}


def _bounded(
    planner: Planner, begin: PlacesByType, ends: PlacesByType, target: PlacesByType, limit: ReadLimit
) -> PlacesByType:
    """Move the ends towards the target, each partition by its share of the limit."""
    waiting = [
        (name, partition, after, target[name][partition])
        for name, places in begin.items()
        for partition, after in places.items()
        if after < target.get(name, {}).get(partition, after)
    ]
    share = max(limit.max_rows // len(waiting), 1) if waiting and isinstance(limit, ReadMaxRows) else None
    for name, partition, after, newest in waiting:
        ends[name][partition] = _end(planner.locator(name), partition, after, newest, share)
    return ends


def _end(locator: Locator, partition: str, after: Place, newest: Place, share: int | None) -> Place:
    if share is None or locator.distance(partition, after, newest) <= share:
        return newest
    return locator.shifted(partition, after, [share])[0]


def _written(places: PlacesByType, identities: dict[str, str]) -> Offsets:
    return {
        name: {each: at.offset for each, at in sorted(found.items())}
        | ({CREATED_AT: identities[name]} if name in identities else {})
        for name, found in sorted(places.items())
    }


def _read(offsets: Offsets) -> PlacesByType:
    return {
        name: {each: place(offset) for each, offset in found.items() if each != CREATED_AT}
        for name, found in offsets.items()
    }
