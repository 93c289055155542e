"""`/event-types/{name}/…`: partitions and what they hold, timelines where events are stored, and cursor arithmetic."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

import falcon
import orjson

from rioni.commands.subscriptions.cursors import CursorResolver
from rioni.commands.timelines.timelines import Repartition, StartSwitch
from rioni.domain.breaths import Breaths
from rioni.domain.errors import EventTypeNotFound, Invalid, NotFound
from rioni.domain.subscriptions.cursor_arithmetic import OffsetRanges, available, begin, distance, newest, shifted
from rioni.domain.timelines.position import parse_offset, partition_number
from rioni.domain.timelines.timeline import FIRST_ORDER, Timeline, Timelines
from rioni.domain.timestamps import LAST_MS, milliseconds, rfc3339
from rioni.http.bodies import body_schemas, parsing
from rioni.http.bodies.reading import read_json
from rioni.http.caller import subject_of
from rioni.http.dependencies import Dependencies, Resource
from rioni.http.request_parsing import as_of, context_of, dispatch, parsed
from rioni.http.resources.administration import settings_for
from rioni.projections.queries.event_types import timelines_at
from rioni.projections.queries.timeline_reader import offset_ranges_of


# `/event-types/{name}/partitions`: the contents of an event type's partitions (reference cursors#partition-list).


class PartitionsResource(Resource):
    """All partitions."""

    def on_get(self, req: falcon.Request, resp: falcon.Response, name: str) -> None:
        """List partitions; those named by `cursors` come last, with their numbers of unconsumed events."""
        partitions = _partitions(self._dependencies, req, name)
        cursors = _cursors(req.get_param("cursors"))
        asked = [partition for partition, _ in cursors]
        items = [_partition(number, each) for number, each in enumerate(partitions) if str(number) not in asked]
        for partition, offset in cursors:
            number = partition_number(partition, len(partitions))
            if number is None:
                raise Invalid("invalid consumed_offset or partition")
            lag = _unconsumed(partitions[number], partition, offset)
            items.append(_partition(number, partitions[number]) | {"unconsumed_events": lag})
        resp.data = orjson.dumps(items)


class PartitionResource(Resource):
    """One partition."""

    def on_get(self, req: falcon.Request, resp: falcon.Response, name: str, partition: str) -> None:
        """Show a partition; with `consumed_offset` also how many events are unconsumed."""
        partitions = _partitions(self._dependencies, req, name)
        number, consumed = partition_number(partition, len(partitions)), req.get_param("consumed_offset")
        if number is None and consumed is not None:
            raise Invalid("invalid consumed_offset or partition")
        if number is None:
            raise NotFound("partition not found")
        item = _partition(number, partitions[number])
        if consumed is not None:
            item["unconsumed_events"] = _unconsumed(partitions[number], partition, consumed)
        resp.data = orjson.dumps(item)


def _unconsumed(ranges: OffsetRanges, partition: str, offset: str) -> int:
    """How many events follow an offset.

    Raises:
        InvalidCursor: the offset can't be read.
        Invalid: it names a timeline that does not exist.
    """
    place = parse_offset(offset, partition=partition, oldest_order=FIRST_ORDER) or begin(ranges)
    if all(offset_range.order != place.order for offset_range in ranges):
        raise Invalid("invalid consumed_offset or partition")
    return distance(place, newest(ranges), ranges)


def _partitions(dependencies: Dependencies, req: falcon.Request, name: str) -> Sequence[OffsetRanges]:
    dependencies.registry.refresh()
    dependencies.access.event_type(subject_of(req), name, "READ")
    return offset_ranges_of(dependencies.registry.timelines(name), dependencies.stores)


def _partition(number: int, ranges: OffsetRanges) -> dict[str, Any]:
    return {"partition": str(number), **available(ranges)}


def _cursors(text: str | None) -> list[tuple[str, str]]:
    if text is None:
        return []
    try:
        cursors = orjson.loads(text)
        pairs = [(cursor.get("partition"), cursor.get("offset")) for cursor in cursors]
    except (orjson.JSONDecodeError, AttributeError, TypeError) as ex:
        raise Invalid("malformed cursors") from ex
    if not isinstance(cursors, list):
        raise Invalid("malformed cursors")
    for partition, offset in pairs:
        if not partition:
            raise Invalid("partition must not be null")
        if not offset:
            raise Invalid("offset must not be null")
    if not all(isinstance(part, str) for pair in pairs for part in pair):
        raise Invalid("malformed cursors")
    if len({partition for partition, _ in pairs}) < len(pairs):
        raise Invalid("duplicate partition ids provided in cursors")
    return pairs


# --- `/event-types/{name}/timelines` and `partition-count`: where events are stored ---
#
# Source: reference timelines#count-change, timelines#timeline-model.


class TimelinesResource(Resource):
    """The timelines of one event type."""

    def on_get(self, req: falcon.Request, resp: falcon.Response, name: str) -> None:
        """List all timelines by order, those whose events are gone included."""
        settings_for(req, self._dependencies)
        registry, at = self._dependencies.registry, as_of(req, resp, self._dependencies)
        with _detail_without_full_stop():
            if at is None:
                timelines, event_type = registry.timelines(name), registry.event_type(name)
            else:
                timelines, event_type = self._dependencies.query(timelines_at, name, at)
        retention_ms = event_type.options.retention_time
        resp.data = orjson.dumps([_item(each, timelines, retention_ms) for each in timelines.timelines])

    def on_post(self, req: falcon.Request, resp: falcon.Response, name: str) -> None:
        """Switch to a new timeline; publishers wait meanwhile."""
        dependencies = self._dependencies
        storage_id = parsed(parsing.timeline_request, read_json(req), self._dependencies)
        with _detail_without_full_stop():
            dependencies.timeline_switcher.switch(
                StartSwitch(event_type=name, storage_id=storage_id), context_of(req, dependencies)
            )
        resp.status = HTTPStatus.CREATED.value


class PartitionCountResource(Resource):
    """The number of partitions of one event type."""

    def on_put(self, req: falcon.Request, resp: falcon.Response, name: str) -> None:
        """Add partitions; streams of subscriptions end, so that their clients come back for them."""
        dependencies = self._dependencies
        count = parsed(parsing.partition_count, read_json(req), self._dependencies)
        dispatch(Repartition(event_type=name, partition_count=count), req, dependencies)
        dependencies.registry.refresh()
        # Even if nothing was added: the process that added them may have died before this.
        dependencies.cursor_initializer.extend(name)
        resp.status = HTTPStatus.NO_CONTENT.value

    on_post = on_put


@contextmanager
def _detail_without_full_stop() -> Iterator[None]:
    """Gives an unknown event type the detail that Nakadi gives it here, other than everywhere else."""
    try:
        yield
    except EventTypeNotFound as ex:
        raise NotFound(str(ex).removesuffix(".")) from ex


def _item(timeline: Timeline, timelines: Timelines, retention_ms: int | None) -> dict[str, Any]:
    latest, closed_at = timeline.latest_position, timelines.closed_at(timeline)
    cleaned_up_at = timeline.cleaned_up_at
    if cleaned_up_at is None and closed_at is not None and retention_ms is not None:
        # A broker administrator may set any retention time.
        cleaned_up_at = rfc3339(min(milliseconds(closed_at) + retention_ms, LAST_MS))
    return {
        "id": timeline.id,
        "event_type": timeline.event_type,
        "order": timeline.order,
        "storage_id": timeline.storage_id,
        "topic": timeline.topic,
        "created_at": timeline.created_at,
        "switched_at": timeline.switched_at,
        "cleaned_up_at": cleaned_up_at,
        "latest_position": None if latest is None else {"offsets": latest},
    }


# --- `/event-types/{name}/cursor-distances`, `shifted-cursors`, `cursors-lag`: cursor arithmetic ---
#
# Source: reference cursors#arithmetic-requests.


class _CursorsResource(Resource, ABC):
    """Reads the cursors of a request; the subject must be able to read the event type."""

    def on_post(self, req: falcon.Request, resp: falcon.Response, name: str) -> None:
        """Answer an item for each item of the request, in its order."""
        dependencies = self._dependencies
        dependencies.registry.refresh()
        dependencies.access.event_type(subject_of(req), name, "READ")
        items = parsed(self._read, read_json(req), dependencies)
        places = CursorResolver(dependencies.registry.timelines(name), dependencies.stores)
        resp.data = orjson.dumps(self._answers(items, places))

    def _answers(self, items: Sequence[Mapping[str, Any]], places: CursorResolver) -> list[dict[str, Any]]:
        answers: list[dict[str, Any]] = []
        breathe = Breaths()
        for item in items:
            answers.append(self._answer(item, places))
            breathe()
        return answers

    @abstractmethod
    def _read(self, body: bytes) -> list[dict[str, Any]]:
        """The items of a body."""

    @abstractmethod
    def _answer(self, item: Mapping[str, Any], places: CursorResolver) -> dict[str, Any]:
        """The answer to one item."""


class CursorDistancesResource(_CursorsResource):
    """How many events lie between two cursors."""

    def _read(self, body: bytes) -> list[dict[str, Any]]:
        return parsing.cursor_pairs(body)

    def _answer(self, item: Mapping[str, Any], places: CursorResolver) -> dict[str, Any]:
        initial, final = item["initial_cursor"], item["final_cursor"]
        if initial["partition"] != final["partition"]:
            raise Invalid("Cursors with different partition. Pairs of cursors should have matching partitions.")
        begin, end = (places.place(body_schemas.place_of_pair(cursor)) for cursor in (initial, final))
        return {**item, "distance": distance(begin, end, places.ranges(initial["partition"]))}


class ShiftedCursorsResource(_CursorsResource):
    """Cursors shifted forwards or backwards."""

    def _read(self, body: bytes) -> list[dict[str, Any]]:
        return parsing.cursors(body)

    def _answer(self, item: Mapping[str, Any], places: CursorResolver) -> dict[str, Any]:
        named = body_schemas.named_place(item)
        place = shifted(places.place(named), named.shift, places.ranges(named.partition))
        return {"partition": named.partition, "offset": place.offset}


class CursorsLagResource(_CursorsResource):
    """How many events follow a cursor."""

    def _read(self, body: bytes) -> list[dict[str, Any]]:
        return parsing.cursors(body)

    def _answer(self, item: Mapping[str, Any], places: CursorResolver) -> dict[str, Any]:
        named = body_schemas.named_place(item)
        place, known = places.place(named), places.ranges(named.partition)
        return {
            "partition": named.partition,
            **available(known),
            "unconsumed_events": distance(place, newest(known), known),
        }
