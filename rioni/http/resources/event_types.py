"""`/event-types`: the registry of event types (reference event-types#definition)."""

from http import HTTPStatus
from urllib.parse import urlencode

import falcon
import msgspec
import orjson

from rioni.commands.event_types import ChangeEventType, CreateEventType, DeleteEventType
from rioni.domain.errors import Malformed
from rioni.domain.event_types.event_type import EventType, EventTypeSpec, entity_tag
from rioni.domain.event_types.filters import EVERYTHING, page
from rioni.http.answers.lists import answer_list
from rioni.http.bodies import parsing
from rioni.http.bodies.reading import DEFINITION_BYTES_MAX, read_json
from rioni.http.dependencies import Dependencies
from rioni.http.event_type_selection import filter_from, unused_days_from, unused_for
from rioni.http.history import as_of
from rioni.http.request_parsing import dispatch, integer, integer_within, parameters_but, parsed
from rioni.http.resources.filter_evaluations import SchemaChange, warning
from rioni.http.resources.resource import Resource
from rioni.projections.queries import event_types


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


class RegistryResource:
    """`/registry/...`: the strategies that an event type may name."""

    def __init__(self, strategies: tuple[str, ...]) -> None:
        self._body = orjson.dumps(strategies)

    def on_get(self, _req: falcon.Request, resp: falcon.Response) -> None:
        """List the strategies."""
        resp.data = self._body


def _page(req: falcon.Request) -> tuple[int, int | None]:
    """Offset and limit; no limit if no page is asked for.

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
    """Say where the neighbours of a page are, as far as there are any (RFC 8288)."""
    places = {}
    if offset > 0:
        places["prev"] = max(0, offset - limit)
    if more:
        places["next"] = offset + limit
    kept = parameters_but(req, "offset", "limit")
    links = [
        f'<{req.root_path}{req.path}?{urlencode([*kept, ("offset", place), ("limit", limit)])}>; rel="{rel}"'
        for rel, place in places.items()
    ]
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
