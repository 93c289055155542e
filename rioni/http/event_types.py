"""`/event-types`: the registry of event types (registry contract 3)."""

from http import HTTPStatus

import falcon
import msgspec
import orjson

from rioni.commands.event_types import ChangeEventType, CreateEventType, DeleteEventType
from rioni.domain.event_type import EventType, entity_tag
from rioni.http import bodies
from rioni.http.requests import attribute, dispatch, read_body
from rioni.http.services import Services
from rioni.projections import event_types


DATA_ACCESS_WARNING = "Data access warning"
COMPACTION_WARNING = "Compaction warning"


class EventTypesResource:
    """The collection."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """List event types by name."""
        wanted = (req.get_param("owning_application"), attribute(req, "writer"))
        found = self._services.query(event_types.bodies, *wanted)
        resp.data = b"[" + ",".join(found).encode() + b"]"

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Create an event type."""
        spec = bodies.event_type_spec(read_body(req, self._services.config.body_bytes_max))
        event_type = dispatch(CreateEventType(spec=spec), req, self._services)
        resp.status = HTTPStatus.CREATED.value
        resp.data = msgspec.json.encode(event_type)
        resp.etag = event_type.entity_tag
        resp.set_header("Warning", _warning(event_type))


class EventTypeResource:
    """One event type."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def on_get(self, req: falcon.Request, resp: falcon.Response, name: str) -> None:
        """Show an event type, unless the client has it already."""
        body = self._services.query(event_types.body_of, name).encode()
        resp.etag = tag = entity_tag(body)
        if any(known in ("*", tag) for known in req.if_none_match or ()):
            resp.status = HTTPStatus.NOT_MODIFIED.value
            return
        resp.data = body

    def on_put(self, req: falcon.Request, resp: falcon.Response, name: str) -> None:
        """Change an event type; with If-Match only if nobody else has changed it meanwhile."""
        spec = bodies.event_type_spec(read_body(req, self._services.config.body_bytes_max))
        expected = None if req.if_match is None or "*" in req.if_match else list(map(str, req.if_match))
        event_type = dispatch(ChangeEventType(name=name, spec=spec, expected_tags=expected), req, self._services)
        resp.etag = event_type.entity_tag
        resp.set_header("Warning", _warning(event_type))

    def on_delete(self, req: falcon.Request, _resp: falcon.Response, name: str) -> None:
        """Delete an event type."""
        dispatch(DeleteEventType(name=name), req, self._services)


class RegistryResource:
    """`/registry/...`: the strategies that an event type may name."""

    def __init__(self, strategies: tuple[str, ...]) -> None:
        self._body = orjson.dumps(strategies)

    def on_get(self, _req: falcon.Request, resp: falcon.Response) -> None:
        """List the strategies."""
        resp.data = self._body


def _warning(event_type: EventType) -> str:
    texts = [DATA_ACCESS_WARNING]
    if event_type.cleanup_policy == "compact":
        texts.append(COMPACTION_WARNING)
    return f'299 nakadi "{". ".join(texts)}"'
