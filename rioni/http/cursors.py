"""`/event-types/{name}/cursor-distances`, `shifted-cursors`, `cursors-lag`: cursor arithmetic (consumption 3.3)."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import falcon
import orjson

from rioni.domain.cursor import Place, format_offset, parse_offset
from rioni.domain.cursor_arithmetic import Extent, distance, shifted
from rioni.domain.errors import Invalid
from rioni.domain.timeline import FIRST_ORDER
from rioni.http import bodies
from rioni.http.requests import read_body, subject_of
from rioni.http.services import Services


class _CursorsResource(ABC):
    """Reads the cursors of a request; the subject must be able to read the event type."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def on_post(self, req: falcon.Request, resp: falcon.Response, name: str) -> None:
        """Answer an item for each item of the request, in its order."""
        services = self._services
        services.registry.refresh()
        services.gate.event_type(subject_of(req), name, "READ")
        items = self._read(read_body(req, services.config.body_bytes_max))
        timeline = services.registry.timelines(name).active
        extents = {
            str(number): [Extent(timeline.order, *bounds)]
            for number, bounds in enumerate(services.store.bounds(timeline.topic))
        }
        resp.data = orjson.dumps([self._answer(item, extents) for item in items])

    @abstractmethod
    def _read(self, body: bytes) -> list[dict[str, Any]]:
        """The items of a body."""

    @abstractmethod
    def _answer(self, item: Mapping[str, Any], extents: Mapping[str, list[Extent]]) -> dict[str, Any]:
        """The answer to one item."""


class CursorDistancesResource(_CursorsResource):
    """How many events lie between two cursors."""

    def _read(self, body: bytes) -> list[dict[str, Any]]:
        return bodies.cursor_pairs(body)

    def _answer(self, item: Mapping[str, Any], extents: Mapping[str, list[Extent]]) -> dict[str, Any]:
        initial, final = item["initial_cursor"], item["final_cursor"]
        if initial["partition"] != final["partition"]:
            raise Invalid("Cursors with different partition. Pairs of cursors should have matching partitions.")
        known = extents.get(initial["partition"], [])
        return {**item, "distance": distance(_place(initial, extents), _place(final, extents), known)}


class ShiftedCursorsResource(_CursorsResource):
    """Cursors that lie further, or back."""

    def _read(self, body: bytes) -> list[dict[str, Any]]:
        return bodies.cursors(body)

    def _answer(self, item: Mapping[str, Any], extents: Mapping[str, list[Extent]]) -> dict[str, Any]:
        place = shifted(_place(item, extents), item.get("shift") or 0, extents[item["partition"]])
        return {"partition": item["partition"], "offset": place.offset}


class CursorsLagResource(_CursorsResource):
    """How many events follow a cursor."""

    def _read(self, body: bytes) -> list[dict[str, Any]]:
        return bodies.cursors(body)

    def _answer(self, item: Mapping[str, Any], extents: Mapping[str, list[Extent]]) -> dict[str, Any]:
        place, known = _place(item, extents), extents[item["partition"]]
        oldest, newest = known[0], known[-1]
        return {
            "partition": item["partition"],
            "oldest_available_offset": format_offset(oldest.order, oldest.oldest),
            "newest_available_offset": format_offset(newest.order, newest.newest),
            "unconsumed_events": distance(place, Place(newest.order, newest.newest), known),
        }


def _place(cursor: Mapping[str, Any], extents: Mapping[str, list[Extent]]) -> Place:
    if cursor["partition"] not in extents:
        raise Invalid("Partition not found.")
    place = parse_offset(cursor["offset"], partition=cursor["partition"], oldest_order=FIRST_ORDER)
    if place is not None:
        return place
    oldest = extents[cursor["partition"]][0]
    return Place(oldest.order, oldest.oldest - 1)
