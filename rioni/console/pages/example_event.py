"""An event that an event type takes, for the command that publishes one."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import orjson

from rioni.console.pages.page import Visit


WITHOUT_METADATA, DATA = "undefined", "data"
"""Categories of event types."""
SYSTEM = "nakadi."
"""The prefix of the names of the broker's own event types."""
LOOKED_AT = 50
DEPTH_MAX = 8
"""The most levels of objects within each other in an example."""
_DEFAULT = {"order": "A-1"}
FIRST: Mapping[str, Any] = {
    "name": "order.created",
    "owning_application": "shop",
    "category": WITHOUT_METADATA,
    "schema": {"type": "json_schema", "schema": "{}"},
}
"""The event type that commands create if the broker has none."""
_VALUES: Mapping[str, Any] = {
    "string": "text",
    "integer": 1,
    "number": 1,
    "boolean": True,
    "array": [],
    "object": {},
    "null": None,
}
_FORMATS = {
    "date-time": "2026-01-31T12:00:00Z",
    "date": "2026-01-31",
    "time": "12:00:00Z",
    "email": "jane@example.org",
    "hostname": "example.org",
    "uri": "https://example.org/",
    "uuid": "2f1c9f6e-7d0b-4c59-9a3e-0d6f1f2b7c11",
    "iso-4217": "EUR",
}


def example(event_type: Mapping[str, Any]) -> dict[str, Any]:
    """An event that the category of an event type permits, with the members that a plain schema requires."""
    event = _required(event_type["schema"]) or _DEFAULT
    if event_type["category"] == DATA:
        event = {"data_type": event_type["name"], "data_op": "C", "data": event}
    return event if event_type["category"] == WITHOUT_METADATA else {**event, "metadata": new_metadata()}


def beginning(visit: Visit) -> dict[str, Any]:
    """Return the event type that commands for a beginning use: an existing one, with an event, or one to create."""
    found = visit.api.attempt("/event-types", limit=LOOKED_AT)
    items = [] if "problem" in found else found
    known = next((each for each in items if not each["name"].startswith(SYSTEM)), None)
    event_type = known or FIRST
    return {"create": None if known else event_type, "name": event_type["name"], "event": example(event_type)}


def new_metadata() -> dict[str, Any]:
    """The metadata that publishers have to send."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {"eid": str(uuid4()), "occurred_at": now}


def _required(schema: Mapping[str, Any]) -> dict[str, Any]:
    try:
        found = orjson.loads(schema["schema"])
    except orjson.JSONDecodeError:
        return {}
    return _object(found, DEPTH_MAX) if isinstance(found, dict) and schema["type"] == "json_schema" else {}


def _object(schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
    required, properties = schema.get("required"), schema.get("properties")
    if depth == 0 or not isinstance(required, list) or not isinstance(properties, dict):
        return {}
    return {name: _value(properties.get(name), depth) for name in required if name != "metadata"}


def _value(schema: Any, depth: int) -> Any:
    if not isinstance(schema, dict):
        return _VALUES["string"]
    given = [[schema[name]] if name in schema else None for name in ("const", "default", "example")]
    for values in (*given, schema.get("enum"), schema.get("examples")):
        if isinstance(values, list) and values:
            return values[0]
    kinds = schema.get("type", "string")
    kind = next(iter(kinds), "") if isinstance(kinds, list) else kinds
    if kind == "object":
        return _object(schema, depth - 1)
    if kind == "string" and isinstance(schema.get("format"), str):
        return _FORMATS.get(schema["format"], _VALUES["string"])
    if kind in ("integer", "number") and isinstance(schema.get("minimum"), (int, float)):
        return schema["minimum"]
    return _VALUES.get(kind) if isinstance(kind, str) else None
