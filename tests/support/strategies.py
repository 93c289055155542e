"""Hypothesis strategies for JSON, events and schemas, hostile ones included."""

import json
from typing import Any

from hypothesis import strategies as st


EID = "0d1b6f0e-3c52-4d8c-9b50-0f2b7f6d2a11"
INT64 = st.integers(min_value=-(2**63), max_value=2**63 - 1)

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
scalars = st.none() | st.booleans() | INT64 | st.floats(allow_nan=False, allow_infinity=False) | texts
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
json_objects = st.dictionaries(texts, json_values, max_size=5)

_NUMBERS = st.sampled_from(
    ["0", "-1", "1.0", "1.50", "1e2", "1E+07", "-0.0", "9223372036854775807", "0.1000000000000000001"]
)


@st.composite
def json_texts(draw: st.DrawFn, values: st.SearchStrategy[Any] = json_values) -> str:
    """The text of a value, with any spaces, escapes and number spellings that JSON allows."""
    return _text(draw, draw(values))


@st.composite
def event_texts(draw: st.DrawFn, *, own_members: bool = True) -> str:
    """The text of an event with valid metadata, in any place among its members."""
    metadata: dict[str, Any] = {"eid": EID, "occurred_at": "2024-01-02T03:04:05Z"}
    if own_members:
        optional = {
            "event_type": st.just("order.created"),
            "flow_id": texts,
            "partition": st.sampled_from(["0", "1", "7"]),
            "parent_eids": st.just([EID]),
            "span_ctx": st.dictionaries(texts, texts, max_size=2),
        }
        metadata |= draw(st.fixed_dictionaries({}, optional=optional))
    payload = draw(json_objects)
    payload.pop("metadata", None)
    if draw(st.booleans()):
        payload["copy"] = {"metadata": metadata}
    members = draw(st.permutations([*payload.items(), ("metadata", metadata)]))
    return _text(draw, dict(members))


def _text(draw: st.DrawFn, value: Any) -> str:
    space = draw(st.sampled_from(["", "", " ", "\n", "\t ", "\r\n"]))
    if isinstance(value, dict):
        members = (f"{space}{_string(draw, name)}{space}:{_text(draw, member)}" for name, member in value.items())
        return f"{space}{{{','.join(members)}{space}}}{space}"
    if isinstance(value, list):
        return f"{space}[{','.join(_text(draw, item) for item in value)}{space}]{space}"
    if isinstance(value, str):
        return f"{space}{_string(draw, value)}{space}"
    if isinstance(value, int | float) and not isinstance(value, bool) and draw(st.booleans()):
        return space + draw(_NUMBERS) + space
    return f"{space}{json.dumps(value)}{space}"


def _string(draw: st.DrawFn, text: str) -> str:
    encoded = json.dumps(text, ensure_ascii=draw(st.booleans()))
    if text and "\\" not in encoded and draw(st.integers(0, 4)) == 0:
        return f'"\\u{ord(text[0]):04x}{encoded[2:]}' if ord(text[0]) < 0x10000 else encoded
    return encoded


def as_written(text: str | bytes) -> Any:
    """The content of a JSON text, with the order of members, duplicates and the spelling of numbers."""
    return json.loads(
        text,
        object_pairs_hook=lambda pairs: ("object", *pairs),
        parse_int=lambda spelling: ("number", spelling),
        parse_float=lambda spelling: ("number", spelling),
    )


# --- schemas ---

_TYPES = st.sampled_from(["string", "integer", "number", "boolean", "object", "array", "null"])
_NAMES = st.sampled_from(["a", "b", "c", "metadata", "$ref", "not", "definitions"])
_REFERENCES = st.sampled_from(["#", "#/definitions/a", "#/definitions/b", "#/properties/a", "#/nowhere", "http://x/y"])


def _schema_objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    members = st.dictionaries(_NAMES, inner, max_size=3)
    lists = st.lists(inner, min_size=1, max_size=3)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": _TYPES | st.lists(_TYPES, min_size=1, unique=True),
            "properties": members,
            "patternProperties": members,
            "additionalProperties": st.booleans() | inner,
            "required": st.lists(_NAMES, max_size=2, unique=True),
            "definitions": members,
            "items": inner | lists,
            "allOf": lists,
            "anyOf": lists,
            "oneOf": lists,
            "not": inner,
            "dependencies": members,
            "enum": st.lists(scalars, min_size=1, max_size=3),
            "pattern": texts,
            "format": st.sampled_from(["date-time", "iso-4217", "email", "made-up"]),
            "minLength": st.integers(0, 5),
        },
    )


_leaves = st.just({}) | st.fixed_dictionaries({"type": _TYPES}) | st.fixed_dictionaries({"$ref": _REFERENCES})
schemas = _schema_objects(st.recursive(_leaves, _schema_objects, max_leaves=8))
"""Schema objects, most of them valid, some cyclic, some with unresolvable references."""
