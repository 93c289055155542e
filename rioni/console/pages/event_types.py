"""The list of event types, the form for a new one, and events that a type takes."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any
from uuid import uuid4

import orjson

from rioni.console import exact_json
from rioni.console.api import ApiProblem, path_of
from rioni.console.charts import sparklines
from rioni.console.pages.page import (
    PAGE,
    ConsolePage,
    Done,
    PageAction,
    Right,
    Visit,
    number_of,
    offset_of,
    page,
    with_warnings,
)


# --- An event that an event type takes, for the command that publishes one ---

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


# --- The list of event types, with the values that they can be narrowed by ---

FILTERS = ("owning_application", "category", "cleanup_policy", "label", "unused_days")
FACETS = (("owning_application", "Owner"), ("category", "Category"), ("cleanup_policy", "Clean-up"), ("label", "Label"))
VALUES = 12
"""Values of each facet that are listed."""


def _load(visit: Visit) -> dict[str, Any]:
    text, offset = visit.params.get("q", "").strip(), offset_of(visit)
    wanted = {name: visit.params.get(name) for name in FILTERS} | {"name": f"*{text}*" if text else None}
    found = visit.api.get("/event-types", limit=PAGE + 1, offset=offset, **wanted)
    kept = {name: value for name, value in visit.params.items() if name in (*FILTERS, "q") and value}
    # Only present event types can be counted.
    facets = None if visit.as_of else visit.api.attempt("/event-type-facets", **wanted | {"limit": VALUES})
    shown = page(found, offset)
    rates = sparklines(visit, "published_events", "event_type", [each["name"] for each in shown["items"]])
    return shown | {
        "facets": facets,
        "shown_facets": FACETS,
        "kept": kept,
        "rates": rates,
        "first": FIRST,
        "event": example(FIRST),
    }


EVENT_TYPES = ConsolePage("/event-types", "event_types.html.jinja", "Event types", _load)


# --- The form that creates an event type; the API checks the input, and each error is shown next to its field ---

CATEGORIES = {
    "business": "events with metadata, such as a change of a process",
    "data": "changes of data, each with its operation",
    "undefined": "any JSON objects, without metadata",
}
STRATEGIES = {
    "random": "to any partition; no order",
    "hash": "events of one key go to one partition, in order",
    "user_defined": "publishers name the partition",
}
COMPATIBILITY_MODES = ("forward", "compatible", "none")
ENRICHMENT = "metadata_enrichment"
DEFAULTS = {
    "category": "business",
    "partition_strategy": "random",
    "partitions": "1",
    "compatibility_mode": COMPATIBILITY_MODES[0],
    "schema": '{\n  "type": "object",\n  "properties": {\n    "order": {"type": "string"}\n  }\n}',
}
FIELDS = (
    "name",
    "owning_application",
    "category",
    "schema",
    "compatibility_mode",
    "partition_strategy",
    "partition_key_fields",
    "partitions",
)
_MEMBERS = {"enrichment_strategies": "category", "default_statistic": "partitions"}
"""Members of the API that are set by another field."""
_WORDS = {
    "values: [undefined": "category",
    "values: [compatible": "compatibility_mode",
    "enrichment": "category",
    "partition_key": "partition_key_fields",
    "partition strategy": "partition_strategy",
    "partition_strategy": "partition_strategy",
    "schema": "schema",
    "category": "category",
    "already exists": "name",
    "application": "owning_application",
    "parallelism": "partitions",
    "partitions": "partitions",
}
"""The fields that texts in details of problems are about, in the order in which the texts are looked for."""


class _InvalidField(ApiProblem):
    def __init__(self, field: str, detail: str) -> None:
        self.field = field
        super().__init__(HTTPStatus.UNPROCESSABLE_ENTITY, {"title": "Not created", "detail": detail})


def _load_form(visit: Visit) -> dict[str, Any]:
    visit.api.get("/registry/partition-strategies")  # Nobody fills in the form after the session has ended.
    return {
        "values": DEFAULTS | {name: visit.form[name] for name in FIELDS if name in visit.form},
        "errors": visit.outcome.get("errors", {}),
        "categories": CATEGORIES,
        "strategies": STRATEGIES,
        "compatibility_modes": COMPATIBILITY_MODES,
    }


def _create(visit: Visit) -> Done:
    try:
        body = _body(visit.form, visit.typed("schema"))
        answer = visit.api.send("POST", "/event-types", body=body)
    except ApiProblem as ex:
        visit.outcome["errors"] = _by_field(ex)
        raise
    return Done(with_warnings(f"{body['name']} is created", answer), path_of("event-types", body["name"]))


def _body(form: Mapping[str, str], text: str) -> dict[str, Any]:
    """The event type that was typed, as the API takes it."""
    try:
        exact_json.decode_typed(text)
    except ValueError as ex:
        raise _InvalidField("schema", f"This is not JSON: {ex}") from ex
    given = {name: form.get(name, "").strip() for name in FIELDS}
    if not given["owning_application"]:
        raise _InvalidField("owning_application", "Name the application that it belongs to.")
    partitions = number_of(form, "partitions")
    if not partitions:
        raise _InvalidField("partitions", "The number of partitions is a whole number from 1 on.")
    keys = [each for each in re.split(r"[\s,]+", form.get("partition_key_fields", "")) if each]
    return {
        "name": given["name"],
        "owning_application": given["owning_application"],
        "category": given["category"],
        "enrichment_strategies": [] if given["category"] == WITHOUT_METADATA else [ENRICHMENT],
        "partition_strategy": given["partition_strategy"],
        "partition_key_fields": keys,
        "compatibility_mode": given["compatibility_mode"],
        "default_statistic": {
            "messages_per_minute": 0,
            "message_size": 1,
            "read_parallelism": partitions,
            "write_parallelism": partitions,
        },
        "schema": {"type": "json_schema", "schema": text},
    }


def _by_field(problem: ApiProblem) -> dict[str, str]:
    """The lines of a problem by the field that each is about; lines about no field are shown above the form alone."""
    if isinstance(problem, _InvalidField):
        return {problem.field: problem.detail}
    found: dict[str, str] = {}
    if problem.status in (HTTPStatus.BAD_REQUEST, HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY):
        for line in problem.detail.splitlines():
            if field := _field_of(line):
                found[field] = f"{found[field]} {line}" if field in found else line
    return found


def _field_of(line: str) -> str:
    named = re.match(r'Field "(\w+)', line)
    if named:
        field = _MEMBERS.get(named[1], named[1])
        return field if field in FIELDS else ""
    return next((field for word, field in _WORDS.items() if word in line.lower()), "")


NEW_EVENT_TYPE = ConsolePage(
    "/create-event-type",
    "new_event_type.html.jinja",
    "Create an event type",
    _load_form,
    {"create": PageAction(_create, Right("broker", "WRITE", "POST /event-types", of_all=True))},
)
