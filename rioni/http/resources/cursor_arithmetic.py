"""`/event-types/{name}/cursor-distances`, `shifted-cursors`, `cursors-lag`: cursor arithmetic.

Source: reference cursors#arithmetic-requests.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import falcon
import orjson

from rioni.commands.subscriptions.cursor_resolution import CursorResolver
from rioni.domain.breaths import Breaths
from rioni.domain.errors import Invalid
from rioni.domain.subscriptions.cursor_arithmetic import available, distance, newest, shifted
from rioni.http.bodies import parsing
from rioni.http.bodies.reading import read_json
from rioni.http.caller import subject_of
from rioni.http.request_parsing import parsed
from rioni.http.resources.resource import Resource


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
        begin, end = (places.place(parsing.place_of_pair(cursor)) for cursor in (initial, final))
        return {**item, "distance": distance(begin, end, places.ranges(initial["partition"]))}


class ShiftedCursorsResource(_CursorsResource):
    """Cursors shifted forwards or backwards."""

    def _read(self, body: bytes) -> list[dict[str, Any]]:
        return parsing.cursors(body)

    def _answer(self, item: Mapping[str, Any], places: CursorResolver) -> dict[str, Any]:
        named = parsing.named_place(item)
        place = shifted(places.place(named), named.shift, places.ranges(named.partition))
        return {"partition": named.partition, "offset": place.offset}


class CursorsLagResource(_CursorsResource):
    """How many events follow a cursor."""

    def _read(self, body: bytes) -> list[dict[str, Any]]:
        return parsing.cursors(body)

    def _answer(self, item: Mapping[str, Any], places: CursorResolver) -> dict[str, Any]:
        named = parsing.named_place(item)
        place, known = places.place(named), places.ranges(named.partition)
        return {
            "partition": named.partition,
            **available(known),
            "unconsumed_events": distance(place, newest(known), known),
        }
