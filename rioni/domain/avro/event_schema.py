"""The Avro schemas of event types: they convert published data to JSON, and are described as JSON schemas."""

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Protocol

from rioni.domain.avro.binary import MARKER, single_object_header, without_header
from rioni.domain.avro.nodes import Array, Enum, Map, Node, Primitive, Record, Union, canonical_form
from rioni.domain.avro.parsing import parse_event_schema
from rioni.domain.avro.rendering import Renderer
from rioni.domain.event_types.event_type import EventType
from rioni.domain.publishing.rules import effective_schema_of
from rioni.domain.schemas.effective_schema import EffectiveSchema, draft_of


# --- Converts published Avro data to the stored JSON, by one version of an event type's schema ---


class EventSchema:
    """Reads payloads that were written with one schema.

    PERF: compiled in 1 ms for a schema of 100 fields.
    """

    def __init__(self, text: str, bytes_max: int) -> None:
        """Compile a schema.

        Args:
            text: the schema as submitted.
            bytes_max: maximum length of an event's JSON.
        """
        self._root = parse_event_schema(text)
        self._renderer = Renderer(self._root, bytes_max)

    def json_of(self, payload: bytes) -> bytes:
        """The JSON of a datum, which may come in single-object encoding (reference publishing#binary-batches).

        Raises:
            DatumError: it does not fit the schema, holds a value without JSON form, or its JSON gets too long.
        """
        if payload.startswith(MARKER):
            payload = without_header(payload, self._header)
        return self._renderer.render(payload)

    @cached_property
    def _header(self) -> bytes:
        return single_object_header(canonical_form(self._root))


class AvroSchemas(Protocol):
    """The Avro schemas of event types, compiled, in all versions."""

    def of(self, event_type: EventType, version: str) -> EventSchema:
        """One version; its first use may block on the database.

        Raises:
            NotFound: the event type has no such version.
            Invalid: that version is a JSON schema.
        """


# --- Describes events of an Avro schema as consumers of JSON get them, as a JSON schema ---

_PRIMITIVES = {"int": "integer", "long": "integer", "float": "number", "double": "number", "bytes": "string"}
_STRING = {"type": "string"}
_STRINGS = {"type": "array", "items": _STRING}
_METADATA = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        **dict.fromkeys(("eid", "occurred_at", "partition_compaction_key", "event_owner"), _STRING),
        "parent_eids": _STRINGS,
        "partition_keys": _STRINGS,
        "span_ctx": {"type": "object", "additionalProperties": _STRING},
    },
}
"""The members of `metadata` that publishers may set."""


def schemas_in_json(event_types: Iterable[EventType]) -> Mapping[str, EffectiveSchema | None]:
    """JSON schemas of the events of event types, by name; None if an event type has both an Avro and a JSON schema."""
    return {each.name: _schema_in_json(each) for each in event_types}


def _schema_in_json(event_type: EventType) -> EffectiveSchema | None:
    if event_type.schema.type == "json_schema":
        return effective_schema_of(event_type)
    return None if event_type.schema_of_json else events_as_json(event_type.schema.schema)


def events_as_json(text: str) -> EffectiveSchema:
    """The JSON schema of events whose Avro schema was accepted (reference schemas#avro-data-as-json)."""
    root = _described(parse_event_schema(text))
    root["properties"] = root["properties"] | {"metadata": _METADATA}
    return EffectiveSchema(root, draft_of({}), has_metadata=True)


def _described(node: Node) -> dict[str, Any]:
    match node:
        case Enum():
            return {"enum": list(node.symbols)}
        case Array():
            return {"type": "array", "items": _described(node.items)}
        case Map():
            return {"type": "object", "additionalProperties": _described(node.values)}
        case Union():
            return {"anyOf": [_described(branch) for branch in node.branches]}
        case Record():
            properties = {field.name: _described(field.type) for field in node.fields}
            return {"type": "object", "additionalProperties": False, "properties": properties}
        case _:
            return {"type": _PRIMITIVES.get(node.type, node.type) if isinstance(node, Primitive) else "string"}
