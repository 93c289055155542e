"""`/event-types/{name}/partitions`: what the partitions of an event type hold (reference cursors#partition-list)."""

from collections.abc import Sequence
from typing import Any

import falcon
import orjson

from rioni.domain.errors import Invalid, NotFound
from rioni.domain.subscriptions.cursor_arithmetic import OffsetRanges, available, begin, distance, newest
from rioni.domain.timelines.position import parse_offset, partition_number
from rioni.domain.timelines.timeline import FIRST_ORDER
from rioni.http.caller import subject_of
from rioni.http.dependencies import Dependencies
from rioni.http.resources.resource import Resource
from rioni.projections.queries.timeline_reader import offset_ranges_of


class PartitionsResource(Resource):
    """All partitions."""

    def on_get(self, req: falcon.Request, resp: falcon.Response, name: str) -> None:
        """List partitions; those named by `cursors` come last and tell how many events are unconsumed."""
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
