"""`/event-types/{name}/partitions`: what the partitions of an event type hold (consumption contract 3)."""

from typing import Any

import falcon
import orjson

from rioni.domain.cursor import format_offset, parse_offset
from rioni.domain.errors import Invalid, NotFound
from rioni.domain.ports import Bounds
from rioni.domain.timeline import FIRST_ORDER, Timeline
from rioni.http.requests import subject_of
from rioni.http.services import Services


class PartitionsResource:
    """All partitions."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def on_get(self, req: falcon.Request, resp: falcon.Response, name: str) -> None:
        """List partitions; those named by `cursors` come last and tell how many events are unconsumed."""
        timeline, bounds = _partitions(self._services, req, name)
        cursors = _cursors(req.get_param("cursors"))
        asked = [partition for partition, _ in cursors]
        items = [_partition(timeline, number, each) for number, each in enumerate(bounds) if str(number) not in asked]
        for partition, offset in cursors:
            number = _number(partition, len(bounds))
            if number is None:
                raise Invalid("invalid consumed_offset or partition")
            lag = unconsumed(timeline, bounds[number], partition, offset)
            items.append(_partition(timeline, number, bounds[number]) | {"unconsumed_events": lag})
        resp.data = orjson.dumps(items)


class PartitionResource:
    """One partition."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def on_get(self, req: falcon.Request, resp: falcon.Response, name: str, partition: str) -> None:
        """Show a partition; with `consumed_offset` also how many events are unconsumed."""
        timeline, bounds = _partitions(self._services, req, name)
        number, consumed = _number(partition, len(bounds)), req.get_param("consumed_offset")
        if number is None and consumed is not None:
            raise Invalid("invalid consumed_offset or partition")
        if number is None:
            raise NotFound("partition not found")
        item = _partition(timeline, number, bounds[number])
        if consumed is not None:
            item["unconsumed_events"] = unconsumed(timeline, bounds[number], partition, consumed)
        resp.data = orjson.dumps(item)


def unconsumed(timeline: Timeline, bounds: Bounds, partition: str, offset: str) -> int:
    """How many events follow an offset.

    Raises:
        InvalidCursor: the offset can't be read.
        Invalid: it names a timeline that does not exist.
    """
    place = parse_offset(offset, partition=partition, oldest_order=FIRST_ORDER)
    if place is None:
        return bounds.newest - bounds.oldest + 1
    if place.order != timeline.order:
        raise Invalid("invalid consumed_offset or partition")
    return bounds.newest - place.position


def _partitions(services: Services, req: falcon.Request, name: str) -> tuple[Timeline, list[Bounds]]:
    services.registry.refresh()
    services.gate.event_type(subject_of(req), name, "READ")
    timeline = services.registry.timelines(name).active
    return timeline, list(services.store.bounds(timeline.topic))


def _partition(timeline: Timeline, number: int, bounds: Bounds) -> dict[str, Any]:
    return {
        "partition": str(number),
        "oldest_available_offset": format_offset(timeline.order, bounds.oldest),
        "newest_available_offset": format_offset(timeline.order, bounds.newest),
    }


def _number(partition: str, partitions: int) -> int | None:
    """The number that a partition id stands for, if there is such a partition."""
    if partition.isascii() and partition.isdigit() and str(int(partition)) == partition:
        number = int(partition)
        return number if number < partitions else None
    return None


def _cursors(text: str | None) -> list[tuple[str, str]]:
    if text is None:
        return []
    try:
        cursors = orjson.loads(text)
        pairs = [(cursor.get("partition"), cursor.get("offset")) for cursor in cursors]
    except (orjson.JSONDecodeError, AttributeError, TypeError) as ex:
        raise Invalid("malformed cursors") from ex
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
