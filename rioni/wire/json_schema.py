"""JSON schemas of the structs: of answers, and of request bodies as they are described and as they are checked."""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any

import msgspec
from msgspec import inspect

from rioni.wire.base import Model


Json = dict[str, Any]

SUBMITTED = "Submitted"
"""The prefix of the names of request bodies, which differ from those of answers."""
_INTEGERS_64 = {"minimum": -(2**63), "maximum": 2**63 - 1}
"""Integers of 64 bits, which readers of the log in any language can represent."""
TIMESTAMP: Json = {"type": "string", "format": "date-time", "examples": ["2026-11-20T10:00:00.000Z"]}
EVENT: Json = {
    "title": "Event",
    "type": "object",
    "properties": {
        "metadata": {"type": "object", "description": "At least `eid` and `occurred_at`; the broker adds the rest."}
    },
    "additionalProperties": True,
}
"""An event of which only the metadata is known."""


class Use(Enum):
    """The purpose of a schema."""

    ANSWER = auto()
    """Describes an answer of the broker."""
    REQUEST = auto()
    """Describes the body of a request: the members that clients may set, each of which may be null."""
    CHECK = auto()
    """Checks the types and bounds of the body of a request, without descriptions and the names of literals."""


def schema(struct: type[Model], use: Use = Use.ANSWER) -> Json:
    """The JSON schema of a struct, with all structs in it in their places; titles are names of components."""
    return _schema(inspect.type_info(struct), use)


def parameters(struct: type[Model]) -> Json:
    """The JSON schemas of the members of a struct with their defaults, by name."""
    found = schema(struct)["properties"]
    defaults = {field.name: field.default for field in msgspec.structs.fields(struct)}
    return {
        name: each | ({} if defaults[name] is None else {"default": defaults[name]}) for name, each in found.items()
    }


def component(struct: type[Model], use: Use = Use.ANSWER) -> str:
    """The name of a struct in the description of the API."""
    # An inherited name is that of another struct.
    name: str = vars(struct).get("COMPONENT") or struct.__name__
    return name if use is Use.ANSWER or name.startswith(SUBMITTED) else SUBMITTED + name


_PLAIN: Mapping[type[inspect.Type], Json] = {
    inspect.AnyType: {},
    inspect.BoolType: {"type": "boolean"},
    inspect.FloatType: {"type": "number"},
    inspect.DateTimeType: TIMESTAMP,
    inspect.RawType: EVENT,
}


def _schema(kind: inspect.Type, use: Use) -> Json:
    found = dict(_PLAIN.get(type(kind), {}))
    match kind:
        case inspect.Metadata():
            found = _schema(kind.type, use) | (_shown(kind) if use is not Use.CHECK else {})
        case inspect.UnionType():
            found = _schema(next(each for each in kind.types if not isinstance(each, inspect.NoneType)), use)
        case inspect.StructType():
            found = _object(kind, use)
        case inspect.StrType():
            found = {"type": "string"} | _bounds(minLength=kind.min_length, maxLength=kind.max_length)
        case inspect.IntType():
            bounds = _bounds(minimum=kind.ge, maximum=kind.le)
            found = {"type": "integer"} | ({} if use is Use.ANSWER else _INTEGERS_64) | bounds
        case inspect.ListType():
            bounds = _bounds(minItems=kind.min_length, maxItems=kind.max_length)
            found = {"type": "array", "items": _item(kind.item_type, use), **bounds}
        case inspect.DictType():
            values = _schema(kind.value_type, use)
            found = {"type": "object"} | ({"additionalProperties": values} if values else {})
    return found


def _item(kind: inspect.Type, use: Use) -> Json:
    return _null(_schema(kind, use)) if _flags(kind).get("nullable") else _schema(kind, use)


def _object(kind: inspect.StructType, use: Use) -> Json:
    struct: Any = kind.cls
    members = {
        field.encode_name: _flags(field.type) | {"none_by_default": field.default is None} for field in kind.fields
    }
    left_out = {name for name, flags in members.items() if not flags.get("in_body", True)}
    left_out |= set() if use is Use.ANSWER else struct.NOT_SENT
    described: Json = {
        "title": component(struct, use),
        "type": "object",
        "properties": {
            field.encode_name: _member(field.type, members[field.encode_name], use)
            for field in kind.fields
            if field.encode_name not in left_out
        },
    }
    required = [name for name, flags in members.items() if name not in left_out and _is_required(flags)]
    return described | ({"required": required} if use is Use.ANSWER and required else {})


def _member(kind: inspect.Type, flags: Mapping[str, Any], use: Use) -> Json:
    if use is Use.ANSWER and flags.get("answered") is not None:
        kind = inspect.Metadata(inspect.type_info(flags["answered"]), _shown(kind), {})
    found = _schema(kind, use)
    return _null(found) if use is not Use.ANSWER or flags.get("nullable") else found


def _null(found: Json) -> Json:
    return found | {"type": [found["type"], "null"]} if "type" in found else found


def _is_required(flags: Mapping[str, Any]) -> bool:
    if flags.get("required") is not None:
        return bool(flags["required"])
    return bool(flags.get("nullable")) or not flags["none_by_default"]


def _flags(kind: inspect.Type) -> Json:
    return dict(kind.extra or {}) if isinstance(kind, inspect.Metadata) else {}


def _shown(kind: inspect.Type) -> Json:
    return dict(kind.extra_json_schema or {}) if isinstance(kind, inspect.Metadata) else {}


def _bounds(**keywords: float | None) -> Json:
    return {name: value for name, value in keywords.items() if value is not None}
