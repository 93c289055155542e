"""Describes events of an Avro schema as consumers of JSON get them, as a JSON schema."""

from collections.abc import Iterable, Mapping
from typing import Any

from rioni.domain.avro.nodes import Array, Enum, Map, Node, Primitive, Record, Union
from rioni.domain.avro.parsing import parse_event_schema
from rioni.domain.event_types.event_type import EventType
from rioni.domain.publishing.rules import effective_schema_of
from rioni.domain.schemas.effective_schema import EffectiveSchema, draft_of


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
"""What publishers may set."""


def schemas_in_json(event_types: Iterable[EventType]) -> Mapping[str, EffectiveSchema | None]:
    """What events of event types look like in JSON, by name; None where they come by an Avro and a JSON schema."""
    return {each.name: _schema_in_json(each) for each in event_types}


def _schema_in_json(event_type: EventType) -> EffectiveSchema | None:
    if event_type.schema.type == "json_schema":
        return effective_schema_of(event_type)
    return None if event_type.schema_of_json else events_as_json(event_type.schema.schema)


def events_as_json(text: str) -> EffectiveSchema:
    """What events of an Avro schema that was accepted look like in JSON (reference schemas#avro-data-as-json)."""
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
