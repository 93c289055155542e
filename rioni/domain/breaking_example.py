"""Finds an event that one JSON schema accepts and its successor refuses, to illustrate why a change breaks things.

The set of such events is computed by jsonschema-rs, in time that grows exponentially with combined schemas: one of 60
bytes and one of 2 kB took 12 seconds. So small schemas that hardly branch are looked at, and no others: an example is
a courtesy. What is found is checked against both schemas before it is shown.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

import jsonschema_rs
from jsonschema_rs.canonical import CanonicalizationError

from rioni.domain.schema import EffectiveSchema, effective_schema
from rioni.domain.schema_graph import walk


BYTES_MAX = 8_000
SCHEMAS_MAX = 50
ENUM_VALUES_MAX = 50
BRANCHES_MAX = 3
_CANDIDATES_MAX = 32
_SAMPLES_MAX = 8
_DEPTH_MAX = 20
_NUMBER_MAX = 2**53

_BRANCHING = (
    "allOf",
    "anyOf",
    "oneOf",
    "dependencies",
    "patternProperties",
    "type",
    "not",
    "if",
    "contains",
    "propertyNames",
)
_DRAFTS: Mapping[type[jsonschema_rs.Validator], int] = {
    jsonschema_rs.Draft4Validator: 4,
    jsonschema_rs.Draft6Validator: 6,
    jsonschema_rs.Draft7Validator: 7,
}
_EXAMPLES = {
    "date-time": "2024-01-02T03:04:05Z",
    "date": "2024-01-02",
    "time": "03:04:05Z",
    "email": "a@example.org",
    "hostname": "example.org",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.org/",
}


def breaking_example(
    original: str, submitted: str, *, original_mode: str = "forward", submitted_mode: str = "forward"
) -> dict[str, Any] | None:
    """An event, as the schemas describe it, that was valid and would be refused; None where none was found.

    Not finding one proves nothing. Takes some 10 ms at most: larger schemas are not looked at.

    Args:
        original: the text of a schema that `check_schema` has accepted.
        submitted: the text of another one.
        original_mode: the compatibility mode, which decides whether objects are closed.
        submitted_mode: the same for the other one.
    """
    if len(original) + len(submitted) > BYTES_MAX:
        return None
    old, new = (
        effective_schema(text, name="", category="undefined", compatibility_mode=mode, cleanup_policy="delete")
        for text, mode in ((original, original_mode), (submitted, submitted_mode))
    )
    if not (_is_simple(old.document) and _is_simple(new.document)):
        return None
    try:
        difference = _canonical(old).subtract(_canonical(new)).to_json_schema()
    except (CanonicalizationError, ValueError):  # Beyond what the library can compute.
        return None
    accepts, still_accepts = old.compile().is_valid, new.compile().is_valid
    for event in islice(_samples(difference, _DEPTH_MAX), _CANDIDATES_MAX):
        if isinstance(event, dict) and accepts(event) and not still_accepts(event):
            return event
    return None


def _is_simple(schema: dict[str, Any]) -> bool:
    nodes = [node for _, node in walk(schema)]
    branches = sum(
        len(value) if isinstance(value, list | dict) else 1
        for node in nodes
        for keyword in _BRANCHING
        if (value := node.get(keyword)) is not None and not isinstance(value, str)
    )
    enum_values = sum(len(node.get("enum", ())) for node in nodes)
    return len(nodes) <= SCHEMAS_MAX and branches <= BRANCHES_MAX and enum_values <= ENUM_VALUES_MAX


def _canonical(schema: EffectiveSchema) -> jsonschema_rs.CanonicalSchema:
    """The canonical form of a schema for events, which are objects."""
    draft = _DRAFTS[schema.draft]
    document, objects = (
        jsonschema_rs.canonicalize(
            part,
            draft=draft,
            offline=True,
            validate_formats=True,
            pattern_options=jsonschema_rs.RegexOptions(size_limit=2**20, dfa_size_limit=2**20),
        )
        for part in (schema.document, {"type": "object"})
    )
    return document.intersect(objects)


# --- values that may match a schema in canonical form ---


def _samples(schema: Any, depth: int) -> Iterator[Any]:
    """Some values that may match; whoever calls checks them."""
    if not isinstance(schema, dict) or depth == 0:
        if schema is not False:
            yield "text"
        return
    for method in ("anyOf", "oneOf", "allOf"):
        if method in schema:
            rest = {keyword: value for keyword, value in schema.items() if keyword != method}
            members = [member for member in schema[method] if isinstance(member, dict)]
            if method == "allOf":
                members = [{keyword: value for member in members for keyword, value in member.items()}]
            for member in members:
                yield from islice(_samples({**rest, **member}, depth - 1), _SAMPLES_MAX)
            return
    if "enum" in schema:
        yield from schema["enum"]
        return
    types = schema.get("type", ("string", "object", "integer", "array", "boolean", "null"))
    for name in [types] if isinstance(types, str) else types:
        yield from islice(_SAMPLERS[name]({**schema, "type": name}, depth), _SAMPLES_MAX)


def _objects(schema: Mapping[str, Any], depth: int) -> Iterator[Any]:
    properties = schema.get("properties", {})
    required = dict.fromkeys(schema.get("required", ()))
    others = schema.get("additionalProperties", {})
    for names in (required, {**required, **properties}):
        members = {
            name: list(islice(_samples(properties.get(name, others), depth - 1), _SAMPLES_MAX)) for name in names
        }
        members = {name: values for name, values in members.items() if values or name in required}
        if not all(members.values()):
            return
        yield {name: values[0] for name, values in members.items()}
        for turn in range(1, max(map(len, members.values()), default=1)):
            yield {name: values[min(turn, len(values) - 1)] for name, values in members.items()}
    if schema.get("minProperties", 0) > len(required) or others:
        number = max(1, schema.get("minProperties", 0))
        for value in islice(_samples(others, depth - 1), 2):
            yield {f"member{index}": value for index in range(min(number, SCHEMAS_MAX))}


def _arrays(schema: Mapping[str, Any], depth: int) -> Iterator[Any]:
    items = schema.get("items", {})
    size = min(schema.get("minItems", 0), SCHEMAS_MAX)
    if isinstance(items, list):
        values = [next(_samples(item, depth - 1), None) for item in items]
        yield values[:size]
        yield values
        yield [*values, *values, "text"]
        return
    for value in islice(_samples(items, depth - 1), _SAMPLES_MAX // 2):
        yield [value] * size
        yield [value] * max(1, min(size + 1, SCHEMAS_MAX))


def _strings(schema: Mapping[str, Any], _depth: int) -> Iterator[str]:
    if (name := schema.get("format")) in _EXAMPLES:
        yield _EXAMPLES[name]
    if isinstance(pattern := schema.get("pattern"), str):
        yield pattern.removeprefix("^").removesuffix("$")
    for text in ("text", "A", "0", "-"):
        size = min(schema.get("minLength", 0), BYTES_MAX)
        yield (text * (size // len(text) + 1))[: max(size, min(len(text), schema.get("maxLength", len(text))))]
    yield ""


def _numbers(schema: Mapping[str, Any], _depth: int) -> Iterator[Any]:
    step = schema.get("multipleOf", 1)
    least, most = schema.get("minimum", 0), schema.get("maximum", 0)
    part = () if schema["type"] == "integer" else (least + 0.5, most - 0.5)
    for number in (least, -(-least // step) * step, least + step, most, most // step * step, most - step, *part, 0):
        if isinstance(number, int | float) and abs(number) <= _NUMBER_MAX:
            yield number


_SAMPLERS: Mapping[str, Callable[[Mapping[str, Any], int], Iterator[Any]]] = {
    "object": _objects,
    "array": _arrays,
    "string": _strings,
    "integer": _numbers,
    "number": _numbers,
    "boolean": lambda _schema, _depth: iter((True, False)),
    "null": lambda _schema, _depth: iter((None,)),
}
