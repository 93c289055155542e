"""Types of Python for events, by their JSON or Avro schema."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote


# --- Python types of JSON values, as text in annotations ---

KINDS = ("dict", "list", "str", "int", "float", "bool", "null")
"""The kinds of JSON values, in the order in which annotations name them."""
GENERAL = {
    "dict": "dict[str, Any]",
    "list": "list[Any]",
    "str": "str",
    "int": "int",
    "float": "float",
    "bool": "bool",
    "null": "None",
}
"""The type that includes all types of a kind."""


class PythonType:
    """A type by kind of value: at most one alternative for each, since decoders can distinguish no more.

    PythonType({"str": "UUID", "null": "None"}) is `UUID | None`; that of all kinds is `Any`.
    """

    def __init__(self, kinds: Mapping[str, str]) -> None:
        self.kinds = dict(kinds)

    @property
    def text(self) -> str:
        """The annotation."""
        if self.kinds == GENERAL or not self.kinds:
            return "Any"
        return " | ".join(self.kinds[kind] for kind in KINDS if kind in self.kinds)

    @property
    def nullable(self) -> bool:
        """Whether null is one of the values."""
        return "null" in self.kinds


ANY = PythonType(GENERAL)


def union(types: Iterable[PythonType]) -> PythonType:
    """The union of types; different alternatives of a kind are merged into a type that includes them."""
    kinds: dict[str, str] = {}
    for each in types:
        for kind, text in each.kinds.items():
            kinds[kind] = _common(kind, kinds.get(kind, text), text)
    return PythonType(kinds)


def _common(kind: str, first: str, second: str) -> str:
    if first == second:
        return first
    if first.startswith("Literal[") and second.startswith("Literal["):
        return f"{first[:-1]}, {second.removeprefix('Literal[')}"
    return GENERAL[kind]


def kind_of(value: Any) -> str:
    """The kind of a JSON value."""
    names = {dict: "dict", list: "list", str: "str", bool: "bool", int: "int", float: "float", type(None): "null"}
    return names[type(value)]


def literal(values: Iterable[Any]) -> PythonType:
    """The type of values that equal one of these JSON values."""
    grouped: dict[str, list[str]] = {}
    for value in values:
        grouped.setdefault(kind_of(value), []).append(quoted(value))
    # Only texts and integers can be distinguished by value.
    precise: dict[str, str] = {
        kind: f"Literal[{', '.join(grouped[kind])}]" for kind in ("str", "int") if kind in grouped
    }
    return PythonType({**{kind: GENERAL[kind] for kind in grouped}, **precise})


def quoted(value: Any) -> str:
    """A text or number as Python source."""
    return json.dumps(value, ensure_ascii=False)


# The content of JSON schemas (draft 4, 6 and 7), with references followed and combined schemas taken together.

DEPTH_MAX = 100
"""Levels and references in a row; brokers accept fewer."""

Schema = Mapping[str, Any]

_KINDS = {
    "object": ["dict"],
    "array": ["list"],
    "string": ["str"],
    "integer": ["int"],
    "number": ["int", "float"],
    "boolean": ["bool"],
    "null": ["null"],
}
_ABOUT_OBJECTS = ("properties", "additionalProperties", "patternProperties", "required")
_ALTERNATIVES = ("anyOf", "oneOf")
_CONDITIONAL = (*_ALTERNATIVES, "then", "else")


class Declared(NamedTuple):
    """A member of an object that a schema names."""

    name: str
    schema: Any
    required: bool


class SchemaDocument:
    """A JSON schema, which resolves references."""

    def __init__(self, root: Schema) -> None:
        self._root = root

    def target(self, schema: Schema) -> Schema:
        """The schema that another one refers to, if it does, with its `allOf` merged into it.

        Raises:
            ValueError: a reference leads nowhere or in a circle.
        """
        return self._target(schema, 0)

    def members(self, schema: Schema, depth: int = 0) -> Iterator[Declared]:
        """All members that a target declares; those of alternatives and conditions are optional.

        Raises:
            ValueError: as `target`.
        """
        required = schema.get("required")
        names = frozenset(required if isinstance(required, list) else ())
        for name, declared in _mapping(schema, "properties").items():
            yield Declared(name, declared, name in names)
        branches = [branch for key in _CONDITIONAL for branch in schemas_in(schema.get(key))]
        for branch in [*branches, *schemas_in(list(_mapping(schema, "dependencies").values()))]:
            for name, declared, _ in self.members(self._target(branch, depth + 1), depth + 1):
                yield Declared(name, declared, name in names)

    def _target(self, schema: Schema, depth: int) -> Schema:
        if depth > DEPTH_MAX:
            raise ValueError(f"The schema has more than {DEPTH_MAX} levels, or references that lead in a circle")
        if isinstance(reference := schema.get("$ref"), str):
            return self._target(self._look_up(reference), depth + 1)
        if "allOf" not in schema:
            return schema
        merged = {key: value for key, value in schema.items() if key != "allOf"}
        for part in schemas_in(schema["allOf"]):
            for key, value in self._target(part, depth + 1).items():
                merged[key] = _both(key, merged[key], value) if key in merged else value
        return merged

    def _look_up(self, reference: str) -> Schema:
        if not reference.startswith("#"):
            raise ValueError(f"The reference {reference} leads out of the schema")
        node: Any = self._root
        for part in unquote(reference[1:]).split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            try:
                node = node[_index(key)] if isinstance(node, list) else node[key]
            except (KeyError, IndexError, ValueError, TypeError):
                raise ValueError(f"The reference {reference} leads nowhere") from None
        return node if isinstance(node, Mapping) else {}


def _index(text: str) -> int:
    if not re.fullmatch(r"0|[1-9][0-9]{0,6}", text):
        raise ValueError(text)
    return int(text)


def alternatives(schema: Schema) -> list[Schema]:
    """The schemas of `anyOf` and `oneOf`."""
    return [branch for key in _ALTERNATIVES for branch in schemas_in(schema.get(key))]


def kinds(schema: Schema) -> list[str] | None:
    """The kinds of values that a target allows, without its alternatives; None if it does not restrict them."""
    stated = schema.get("type")
    if isinstance(stated, str | list):
        return [kind for name in ([stated] if isinstance(stated, str) else stated) for kind in _KINDS.get(name, ())]
    if "properties" in schema or (any(key in schema for key in _ABOUT_OBJECTS) and not alternatives(schema)):
        return ["dict"]
    return ["list"] if "items" in schema else None


def values_of_map(schema: Schema) -> Schema | None:
    """The schema of all members of an object that declares none by name; None if there is no single one."""
    further = schema.get("additionalProperties", True)
    by_pattern = [*_mapping(schema, "patternProperties").values()]
    if isinstance(further, Mapping):
        return None if by_pattern else further
    return by_pattern[0] if further is False and len(by_pattern) == 1 and isinstance(by_pattern[0], Mapping) else None


def description(schema: Any) -> str:
    """The description of a schema, or else its title, in one line."""
    text = schema.get("description") or schema.get("title") if isinstance(schema, Mapping) else None
    return " ".join(text.split()) if isinstance(text, str) else ""


def schemas_in(value: Any) -> list[Schema]:
    """The schemas in a value: itself, or the items of a list."""
    return [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, Mapping)]


def _mapping(schema: Schema, key: str) -> Mapping[str, Any]:
    value = schema.get(key)
    return value if isinstance(value, Mapping) else {}


def _both(key: str, first: Any, second: Any) -> Any:
    """Combine the values of the same keyword in two schemas that both apply."""
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        shared = {name: {"allOf": [first[name], second[name]]} for name in first.keys() & second.keys()}
        return {**first, **second, **(shared if key == "properties" else {})}
    if isinstance(first, list) and isinstance(second, list):
        return [each for each in first if each in second] if key in {"enum", "type"} else [*first, *second]
    return first if key in {"title", "description"} else second


# --- Avro schemas as JSON schemas of the same values in JSON, as brokers deliver them ---

_PRIMITIVES: Mapping[str, str] = {
    "null": "null",
    "boolean": "boolean",
    "int": "integer",
    "long": "integer",
    "float": "number",
    "double": "number",
    "bytes": "string",
    "string": "string",
}


def to_json_schema(schema: Any) -> dict[str, Any]:
    """The JSON schema of a record, with its named types as definitions.

    Unions are plain values, `bytes` and `fixed` texts, logical types the numbers or texts below them.

    Raises:
        ValueError: this is no schema of Avro.
    """
    definitions: dict[str, Any] = {}
    root = _converted(schema, "", definitions)
    return {**root, "definitions": definitions}


def _converted(schema: Any, namespace: str, definitions: dict[str, Any]) -> dict[str, Any]:
    if isinstance(schema, list):
        return {"anyOf": [_converted(branch, namespace, definitions) for branch in schema]}
    if isinstance(schema, str):
        return _named(schema, namespace, definitions)
    if not isinstance(schema, Mapping):
        raise ValueError(f"{schema!r} is no type of Avro")  # noqa: TRY004 - as of every schema that is none
    kind = schema.get("type")
    match kind:
        case "array":
            return {"type": "array", "items": _converted(schema.get("items"), namespace, definitions)}
        case "map":
            return {"type": "object", "additionalProperties": _converted(schema.get("values"), namespace, definitions)}
        case "record" | "error" | "enum" | "fixed":
            return _define(schema, kind, namespace, definitions)
    return _converted(kind, namespace, definitions)


def _define(schema: Mapping[str, Any], kind: str, namespace: str, definitions: dict[str, Any]) -> dict[str, Any]:
    name = _full_name(str(schema.get("name", "")), str(schema.get("namespace", namespace)))
    namespace = name.rpartition(".")[0]
    made: dict[str, Any] = {"description": schema.get("doc")}
    definitions[name] = made
    if kind == "enum":
        made["enum"] = list(schema.get("symbols", ()))
    elif kind == "fixed":
        made["type"] = "string"
    else:
        fields = [field for field in schema.get("fields", ()) if isinstance(field, Mapping)]
        made["type"] = "object"
        made["required"] = [field["name"] for field in fields]
        made["properties"] = {
            field["name"]: _converted(field.get("type"), namespace, definitions) | _documented(field)
            for field in fields
        }
    return {"$ref": f"#/definitions/{name}"}


def _documented(field: Mapping[str, Any]) -> dict[str, Any]:
    return {"description": field["doc"]} if "doc" in field else {}


def _named(name: str, namespace: str, definitions: Mapping[str, Any]) -> dict[str, Any]:
    if name in _PRIMITIVES:
        return {"type": _PRIMITIVES[name]}
    for full in (_full_name(name, namespace), name):
        if full in definitions:
            return {"$ref": f"#/definitions/{full}"}
    raise ValueError(f"{name} is no type of Avro")


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"
