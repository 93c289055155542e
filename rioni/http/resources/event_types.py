"""`/event-types` and `/event-type-facets`: the registry of event types (reference event-types#definition)."""

from collections.abc import Iterable, Sequence
from http import HTTPStatus

import falcon
import msgspec
import orjson

from rioni.commands.event_types import ChangeEventType, CreateEventType, DeleteEventType
from rioni.domain.errors import Malformed
from rioni.domain.event_types.event_type import EventType, EventTypeSpec, entity_tag
from rioni.domain.event_types.rules import CATEGORIES, CLEANUP_POLICIES, ENRICHMENT_STRATEGIES, PARTITION_STRATEGIES
from rioni.domain.event_types.selection import EVERYTHING, EventTypeFilter, facets_of, matcher, page
from rioni.domain.system.client_activity import DAY_MS, RETENTION_DAYS, unused
from rioni.domain.timestamps import rfc3339
from rioni.http.answers import answer_list
from rioni.http.bodies import parsing
from rioni.http.bodies.reading import DEFINITION_BYTES_MAX, read_json
from rioni.http.dependencies import Dependencies, Resource
from rioni.http.request_parsing import (
    AS_OF,
    as_of,
    attribute,
    dispatch,
    integer,
    integer_within,
    link_to,
    listed,
    parsed,
)
from rioni.http.resources.filter_evaluations import SchemaChange, warning
from rioni.projections.queries import event_types
from rioni.projections.queries.event_types import past_event_types
from rioni.projections.queries.past import Moment


# --- Selects the event types that a request asks about, by the filters of its query string ---

UNUSED_DAYS = "unused_days"


def filter_from(req: falcon.Request) -> EventTypeFilter:
    """The filters of a query string, except `unused_days`.

    Raises:
        Malformed: a value is not one of the known ones, or not an attribute.
    """
    attributes = [(f"{each}s", attribute(req, each)) for each in ("admin", "reader", "writer")]
    return EventTypeFilter(
        name=req.get_param("name"),
        owning_application=req.get_param("owning_application"),
        category=_one_of(req, "category", CATEGORIES),
        cleanup_policy=_one_of(req, "cleanup_policy", CLEANUP_POLICIES),
        attributes=tuple((list_, listed) for list_, listed in attributes if listed is not None),
        # Other than names and labels the value of an annotation may contain commas.
        annotations=_pairs(req.get_param_as_list("annotation") or ()),
        labels=_pairs(listed(req, "label")),
    )


def unused_days_from(req: falcon.Request) -> int | None:
    """The number of days for which event types must be unused to be selected; None if they need not be.

    Raises:
        Malformed: it is no number, or out of range, or the request asks about the past.
    """
    if req.get_param(UNUSED_DAYS) is None:
        return None
    if req.get_param(AS_OF) is not None:
        raise Malformed(f"{UNUSED_DAYS} can't be combined with {AS_OF}: when clients were active is not in the log")
    return integer_within(req, UNUSED_DAYS, 0, 1, RETENTION_DAYS)


def unused_for(days: int, event_types: Sequence[EventType], dependencies: Dependencies) -> list[EventType]:
    """The event types, out of some, that were not used for `days` days; blocks on the disk.

    Raises:
        Unavailable: the activity of clients can't be read.
    """
    active = dependencies.activity.active_within(days)
    before = rfc3339(dependencies.clock.now_ms() - days * DAY_MS)
    return dependencies.compute_pool(unused, event_types, dependencies.registry.subscriptions(), active, before)


def _one_of(req: falcon.Request, name: str, literals: Sequence[str]) -> str | None:
    text = req.get_param(name)
    if text is not None and text.lower() not in literals:
        raise Malformed(f"Illegal enum value: '{text}'. Possible values: [{', '.join(literals)}]")
    return text and text.lower()


def _pairs(texts: Iterable[str]) -> tuple[tuple[str, str | None], ...]:
    """Keys with their values, `key:value`, or without."""
    parts = [text.partition(":") for text in texts]
    return tuple((key, value if colon else None) for key, colon, value in parts)


# --- `/event-type-facets`: how many event types there are of each owner, category, clean-up policy and label ---

VALUES_MAX = 1_000
VALUES_DEFAULT = 100
UNUSED_DAYS_DEFAULT = 30


class EventTypeFacetsResource(Resource):
    """Counts of the event types that match the filters of the list."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Count them; those of the present also by whether clients use them."""
        wanted, days, limit = filter_from(req), unused_days_from(req), _limit(req)
        at = as_of(req, resp, self._dependencies)
        found = self._matching(wanted, at)
        answer = {}
        if at is None:
            of_days = days or UNUSED_DAYS_DEFAULT
            unused = unused_for(of_days, found, self._dependencies)
            answer = {"unused": {"days": of_days, "count": len(unused)}}
            found = found if days is None else unused
        facets = self._dependencies.compute_pool(facets_of, found, limit)
        resp.data = msgspec.json.encode({"total": len(found), **facets, **answer})

    def _matching(self, wanted: EventTypeFilter, at: Moment | None) -> list[EventType]:
        dependencies = self._dependencies
        if at is None:
            dependencies.registry.refresh()
            event_types = dependencies.registry.event_types()
        else:
            event_types = dependencies.query(past_event_types, at)
        return dependencies.compute_pool(lambda: [*filter(matcher(wanted), event_types)])


def _limit(req: falcon.Request) -> int:
    return integer_within(req, "limit", VALUES_DEFAULT, 1, VALUES_MAX)


# --- `/event-types`: the registry of event types (reference event-types#definition) ---

PAGE_MAX = 1_000
PAGE_DEFAULT = 20
DATA_ACCESS_WARNING = "Data access warning"
COMPACTION_WARNING = "Compaction warning"


class EventTypesResource(Resource):
    """The collection."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """List event types by name; a page of them if there is a limit or an offset."""
        wanted, unused_days, (offset, limit) = filter_from(req), unused_days_from(req), _page(req)
        dependencies = self._dependencies
        at = as_of(req, resp, dependencies)
        dependencies.registry.refresh()
        position = dependencies.registry.position
        if at is not None:
            names, more = dependencies.query(event_types.past_page, at, wanted, offset, limit)
        elif wanted == EVERYTHING and unused_days is None:
            names, more = dependencies.query(event_types.page, offset, limit)
        else:
            listed = dependencies.registry.event_types()
            if unused_days is not None:
                listed = unused_for(unused_days, listed, dependencies)
            names, more = dependencies.compute_pool(page, listed, wanted, offset, limit)
        if limit is not None:
            _link(req, resp, offset, limit, more=more)
        if answer_list(
            req, resp, dependencies.answers, names, lambda some: dependencies.query(event_types.piece, some, at)
        ):
            _answer(req, resp, resp.data)
        else:
            # The tag of a list in pieces can't be that of its content: it is that of the log before its first piece.
            _answer(req, resp, None, entity_tag(f"{position} {req.relative_uri}".encode()))

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Create an event type."""
        spec = _spec(req, self._dependencies)
        event_type = dispatch(CreateEventType(spec=spec), req, self._dependencies)
        resp.status = HTTPStatus.CREATED.value
        resp.data = msgspec.json.encode(event_type)
        resp.etag = event_type.entity_tag
        resp.set_header("Warning", _warning(event_type))


class EventTypeResource(Resource):
    """One event type."""

    def on_get(self, req: falcon.Request, resp: falcon.Response, name: str) -> None:
        """Show an event type, unless the client has it already."""
        at = as_of(req, resp, self._dependencies)
        _answer(req, resp, self._dependencies.query(event_types.body_of, name, at).encode())

    def on_put(self, req: falcon.Request, resp: falcon.Response, name: str) -> None:
        """Change an event type; with If-Match only if its ETag still matches."""
        spec = _spec(req, self._dependencies)
        expected = None if req.if_match is None or "*" in req.if_match else list(map(str, req.if_match))
        self._dependencies.registry.refresh()
        change = SchemaChange(self._dependencies, name)
        event_type = dispatch(ChangeEventType(name=name, spec=spec, expected_tags=expected), req, self._dependencies)
        if "return_body_on_create_update_event_type" in self._dependencies.registry.settings.features:
            resp.data = msgspec.json.encode(event_type)
        resp.etag = event_type.entity_tag
        resp.set_header("Warning", ", ".join([_warning(event_type), *map(warning, change.warnings())]))

    def on_delete(self, req: falcon.Request, _resp: falcon.Response, name: str) -> None:
        """Delete an event type."""
        dispatch(DeleteEventType(name=name), req, self._dependencies)


class EnrichmentStrategiesResource(Resource):
    """`/registry/enrichment-strategies`: the enrichment strategies that an event type may name."""

    def on_get(self, _req: falcon.Request, resp: falcon.Response) -> None:
        """List their names."""
        resp.data = orjson.dumps(ENRICHMENT_STRATEGIES)


class PartitionStrategiesResource(Resource):
    """`/registry/partition-strategies`: the partition strategies that an event type may name."""

    def on_get(self, _req: falcon.Request, resp: falcon.Response) -> None:
        """List their names."""
        resp.data = orjson.dumps(PARTITION_STRATEGIES)


def _page(req: falcon.Request) -> tuple[int, int | None]:
    """Offset and limit; no limit if no page is requested.

    Raises:
        Malformed: they are no numbers, or out of range.
    """
    if req.get_param("limit") is None and req.get_param("offset") is None:
        return 0, None
    offset, limit = integer(req, "offset", 0), integer_within(req, "limit", PAGE_DEFAULT, 1, PAGE_MAX)
    if offset < 0:
        raise Malformed("'offset' parameter can't be lower than 0")
    return offset, limit


def _link(req: falcon.Request, resp: falcon.Response, offset: int, limit: int, *, more: bool) -> None:
    """Link to the previous and the next page, if they exist (RFC 8288)."""
    places = {}
    if offset > 0:
        places["prev"] = max(0, offset - limit)
    if more:
        places["next"] = offset + limit
    links = [f'<{link_to(req, offset=place, limit=limit)}>; rel="{rel}"' for rel, place in places.items()]
    if links:
        resp.set_header("Link", ", ".join(links))


def _answer(req: falcon.Request, resp: falcon.Response, body: bytes | None, tag: str | None = None) -> None:
    """Send a body, or the stream that the answer has by now, unless the client has it already."""
    resp.etag = tag = tag or entity_tag(body or b"")
    resp.data = body
    if any(known in ("*", tag) for known in req.if_none_match or ()):
        resp.status = HTTPStatus.NOT_MODIFIED.value
        resp.data = None
        resp.stream = None
        resp.delete_header("Content-Encoding")


def _spec(req: falcon.Request, dependencies: Dependencies) -> EventTypeSpec:
    return parsed(parsing.event_type_spec, read_json(req, DEFINITION_BYTES_MAX), dependencies)


def _warning(event_type: EventType) -> str:
    texts = [DATA_ACCESS_WARNING]
    if event_type.cleanup_policy == "compact":
        texts.append(COMPACTION_WARNING)
    return f'299 nakadi "{". ".join(texts)}"'
