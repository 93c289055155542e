"""Parses untrusted Avro schemas, and rejects those that would crash or exhaust decoders.

Sources: the Avro specification 1.12; reference schemas#schema-checks. A recursive record lets a message of 10 kB
overflow the stack of decoders, and with an array of zero-byte items five bytes encode twenty million items. Consumers
decode with their own libraries, so such schemas are rejected even though our own decoder can handle them.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import UNSET

from rioni.domain.avro.nodes import (
    PRIMITIVES,
    Array,
    Enum,
    Field,
    Fixed,
    Map,
    Named,
    Node,
    Primitive,
    Record,
    Union,
    children,
    type_name,
)
from rioni.domain.errors import Invalid
from rioni.domain.schemas import strict_json
from rioni.domain.schemas.strict_json import JsonError


SCHEMA_BYTES_MAX = 256 * 1024
DEPTH_MAX = 64
JSON_DEPTH_MAX = 4 * DEPTH_MAX
"""A nested record is three levels of JSON deeper than the outer one."""
EXPANDED_NODES_MAX = 10_000
EXPANDED_NAMES_MAX = 1_000_000
"""Characters of field names, each counted as often as a datum repeats it."""
BRANCHES_MAX = 100
FIXED_BYTES_MAX = 1_000_000
DEFAULT_STEPS_MAX = 50_000

RESERVED_FIELD = "metadata"
"""A member that the broker adds to each event, in addition to the fields of its record."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FULL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*")
_INT32, _INT64 = range(-(2**31), 2**31), range(-(2**63), 2**63)


class _Measure(NamedTuple):
    """Size of a node, including everything it contains."""

    height: int
    nodes: int
    names: int
    bytes_min: int
    """The shortest encoding of a value."""


class _Flaw(Exception):
    """The schema is invalid; the message says why and at which place."""


def parse_event_schema(text: str) -> Record:
    """Read the schema of an event type.

    Args:
        text: the schema as submitted.

    Raises:
        Invalid: it is not an Avro schema, not one of a JSON object, or dangerous for decoders.
    """
    try:
        return _event(_parse(text))
    except (_Flaw, JsonError) as ex:
        raise Invalid(f"failed to parse avro schema {ex}") from ex


def _event(root: Node) -> Record:
    if not isinstance(root, Record):
        raise _Flaw(f"the root has to be a record, as an event is an object; found {type_name(root)}")
    if any(field.name == RESERVED_FIELD for field in root.fields):
        raise _Flaw(f'"{RESERVED_FIELD}" property is reserved')
    return root


def _parse(text: str) -> Node:
    if len(text) > SCHEMA_BYTES_MAX or len(strict_json.to_text(text).encode()) > SCHEMA_BYTES_MAX:
        raise _Flaw(f"it is larger than {SCHEMA_BYTES_MAX} bytes")
    document = strict_json.decode(text)
    if strict_json.depth(document) > JSON_DEPTH_MAX:
        raise _Flaw(f"it is nested more than {JSON_DEPTH_MAX} levels deep")
    return _Parser().node(document, "", "", 0)


class _Parser:
    """Converts JSON to nodes; messages give locations as pointers such as `/fields/2/type`."""

    def __init__(self) -> None:
        self._named: dict[str, Named | None] = {}
        """Types by full name; None while the type is being read."""
        self._measures: dict[int, _Measure] = {}
        self._default_steps = 0

    def node(self, json: Any, namespace: str, place: str, depth: int) -> Node:
        if depth > DEPTH_MAX:
            raise _Flaw(f"it is nested more than {DEPTH_MAX} levels deep")
        match json:
            case str():
                return self._reference(json, namespace, place)
            case list():
                return self._measured(self._union(json, namespace, place, depth), place)
            case {"type": str(kind)}:
                return self._measured(self._complex(kind, json, namespace, place, depth), place)
            case {"type": _}:
                raise _Flaw(f"the type at {place or '/'} must be written as its name")
            case _:
                raise _Flaw(f"no type at {place or '/'}: found {_shown(json)}")

    def _reference(self, name: str, namespace: str, place: str) -> Node:
        if name in PRIMITIVES:
            return self._measured(Primitive(name, {}), place)
        full_name = name if "." in name or not namespace else f"{namespace}.{name}"
        if full_name not in self._named:
            raise _Flaw(f"unknown type {_shown(name)} at {place or '/'}")
        if (node := self._named[full_name]) is None:
            raise _Flaw(f"{full_name} contains itself at {place}: recursive schemas are refused")
        return node

    def _complex(self, kind: str, json: Mapping[str, Any], namespace: str, place: str, depth: int) -> Node:
        match kind:
            case "array":
                items = self.node(_member(json, "items", place), namespace, f"{place}/items", depth + 1)
                return Array(items, _properties(json, "items"))
            case "map":
                values = self.node(_member(json, "values", place), namespace, f"{place}/values", depth + 1)
                return Map(values, _properties(json, "values"))
            case "fixed" | "enum" | "record":
                return self._define(kind, json, namespace, place, depth)
            case _ if kind in PRIMITIVES:
                return Primitive(kind, _properties(json))
            case _:
                # A reference in the long form, {"type": "name"}.
                return self._reference(kind, namespace, place)

    def _union(self, json: Sequence[Any], namespace: str, place: str, depth: int) -> Union:
        if not 1 <= len(json) <= BRANCHES_MAX:
            raise _Flaw(f"the union at {place or '/'} must have 1 to {BRANCHES_MAX} branches")
        branches = [self.node(branch, namespace, f"{place}/{n}", depth + 1) for n, branch in enumerate(json)]
        if any(isinstance(branch, Union) for branch in branches):
            raise _Flaw(f"the union at {place or '/'} immediately contains another one")
        kinds = [branch.name if isinstance(branch, Named) else type_name(branch) for branch in branches]
        if len(set(kinds)) < len(kinds):
            raise _Flaw(f"the union at {place or '/'} has the same type twice")
        return Union(branches)

    # --- Named types ---

    def _define(self, kind: str, json: Mapping[str, Any], namespace: str, place: str, depth: int) -> Named:
        name, namespace = _full_name(json, namespace, place)
        if name in self._named:
            raise _Flaw(f"{name} is defined twice")
        self._named[name] = None
        aliases = [
            alias if "." in alias or not namespace else f"{namespace}.{alias}"
            for alias in _names(json.get("aliases", []), _FULL_NAME, f"{place}/aliases")
        ]
        node: Named
        match kind:
            case "fixed":
                node = Fixed(name, aliases, _size(json, place), _properties(json, "size"))
            case "enum":
                node = _enum(name, aliases, json, place)
            case _:
                fields = self._fields(_member(json, "fields", place), namespace, f"{place}/fields", depth)
                node = Record(name, aliases, fields, _properties(json, "fields"))
        self._named[name] = node
        return node

    def _fields(self, json: Any, namespace: str, place: str, depth: int) -> Sequence[Field]:
        if not isinstance(json, list):
            raise _Flaw(f"{place} must be a list of fields")
        fields = [self._field(field, namespace, f"{place}/{n}", depth) for n, field in enumerate(json)]
        names = [field.name for field in fields]
        if len(set(names)) < len(names):
            raise _Flaw(f"{place} has two fields of the same name")
        return fields

    def _field(self, json: Any, namespace: str, place: str, depth: int) -> Field:
        if not isinstance(json, dict):
            raise _Flaw(f"{place} must be an object")
        name = json.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise _Flaw(f"the name at {place} must be letters, digits and underscores, found {_shown(name)}")
        aliases = _names(json.get("aliases", []), _NAME, f"{place}/aliases")
        node = self.node(_member(json, "type", place), namespace, f"{place}/type", depth + 1)
        default = json.get("default", UNSET)
        if default is not UNSET and not self._fits(node, default):
            raise _Flaw(f"the default at {place} does not fit its type: {_shown(default)}")
        return Field(name, aliases, node, default, _properties(json, "default"))

    def _fits(self, node: Node, default: Any) -> bool:  # noqa: PLR0911 - one for each type
        """Whether a default is a value of a type; bytes are written as text, a union may take any branch."""
        self._default_steps += 1
        if self._default_steps > DEFAULT_STEPS_MAX:
            raise _Flaw("its defaults are too large")
        match node:
            case Primitive(type=kind):
                return _fits_primitive(kind, default)
            case Fixed(size=size):
                return _fits_primitive("bytes", default) and len(default) == size
            case Enum(symbols=symbols):
                return default in symbols
            case Array(items=items):
                return isinstance(default, list) and all(self._fits(items, item) for item in default)
            case Map(values=values):
                return isinstance(default, dict) and all(self._fits(values, value) for value in default.values())
            case Union(branches=branches):
                return any(self._fits(branch, default) for branch in branches)
            case Record(fields=fields):
                return isinstance(default, dict) and all(
                    self._fits(field.type, default[field.name]) if field.name in default else field.default is not UNSET
                    for field in fields
                )

    # --- Sizes ---

    def _measured(self, node: Node, place: str) -> Node:
        if id(node) in self._measures:
            return node
        inner = [self._measures[id(child)] for child in children(node)]
        names = sum(len(field.name) for field in node.fields) if isinstance(node, Record) else 0
        measure = _Measure(
            height=1 + max((child.height for child in inner), default=0),
            nodes=1 + sum(child.nodes for child in inner),
            names=names + sum(child.names for child in inner),
            bytes_min=_bytes_min(node, [child.bytes_min for child in inner]),
        )
        if isinstance(node, Array | Map) and inner[0].bytes_min == 0:
            raise _Flaw(f"the {type_name(node)} at {place or '/'} is of values without bytes, such as null")
        if measure.height > DEPTH_MAX:
            raise _Flaw(f"it is nested more than {DEPTH_MAX} levels deep")
        if measure.nodes > EXPANDED_NODES_MAX:
            raise _Flaw(f"it has more than {EXPANDED_NODES_MAX} types, those of references counted each time")
        if measure.names > EXPANDED_NAMES_MAX:
            raise _Flaw(f"its names have more than {EXPANDED_NAMES_MAX} characters, those of references counted again")
        self._measures[id(node)] = measure
        return node


def _bytes_min(node: Node, inner: Sequence[int]) -> int:  # noqa: PLR0911 - one for each type
    match node:
        case Primitive(type="null"):
            return 0
        case Primitive(type="float"):
            return 4
        case Primitive(type="double"):
            return 8
        case Fixed(size=size):
            return size
        case Record():
            return sum(inner)
        case Union():
            return 1 + min(inner)
        case _:
            return 1


def _fits_primitive(kind: str, default: Any) -> bool:
    match kind:
        case "null":
            return default is None
        case "boolean":
            return isinstance(default, bool)
        case "int" | "long":
            integers = _INT32 if kind == "int" else _INT64
            return isinstance(default, int) and not isinstance(default, bool) and default in integers
        case "float" | "double":
            return isinstance(default, int | float) and not isinstance(default, bool)
        case "bytes":
            return isinstance(default, str) and all(character <= "\xff" for character in default)
        case _:
            return isinstance(default, str)


def _full_name(json: Mapping[str, Any], enclosing: str, place: str) -> tuple[str, str]:
    """The full name of a type, and the namespace for the types inside it."""
    name, namespace = json.get("name"), json.get("namespace", enclosing)
    if not isinstance(name, str) or not _FULL_NAME.fullmatch(name):
        raise _Flaw(f"the name at {place or '/'} must be letters, digits and underscores, found {_shown(name)}")
    if not isinstance(namespace, str) or (namespace and not _FULL_NAME.fullmatch(namespace)):
        raise _Flaw(f"the namespace at {place or '/'} must be names joined by dots, found {_shown(namespace)}")
    if "." in name:
        return name, name.rpartition(".")[0]
    if name in PRIMITIVES:
        raise _Flaw(f"{name} is the name of a primitive type, at {place or '/'}")
    return (f"{namespace}.{name}" if namespace else name), namespace


def _names(json: Any, pattern: re.Pattern[str], place: str) -> Sequence[str]:
    if not isinstance(json, list) or not all(isinstance(name, str) and pattern.fullmatch(name) for name in json):
        raise _Flaw(f"{place} must be a list of names")
    return json


def _enum(name: str, aliases: Sequence[str], json: Mapping[str, Any], place: str) -> Enum:
    symbols = _names(_member(json, "symbols", place), _NAME, f"{place}/symbols")
    if not symbols or len(set(symbols)) < len(symbols):
        raise _Flaw(f"the symbols of {name} must be different, and at least one")
    default = json.get("default")
    if default is not None and default not in symbols:
        raise _Flaw(f"the default of {name} must be one of its symbols")
    return Enum(name, aliases, symbols, default, _properties(json, "symbols", "default"))


def _size(json: Mapping[str, Any], place: str) -> int:
    size = _member(json, "size", place)
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= FIXED_BYTES_MAX:
        raise _Flaw(f"the size at {place or '/'} must be an integer between 0 and {FIXED_BYTES_MAX}")
    return size


def _member(json: Mapping[str, Any], name: str, place: str) -> Any:
    if name not in json:
        raise _Flaw(f'"{name}" is missing at {place or "/"}')
    return json[name]


def _properties(json: Mapping[str, Any], *known: str) -> Mapping[str, Any]:
    """The members that are ignored here, order and logical types among them."""
    structural = {"type", "name", "namespace", "aliases", "doc", *known}
    return {name: value for name, value in json.items() if name not in structural}


def _shown(json: Any) -> str:
    text = repr(json)
    return text if len(text) <= 100 else f"{text[:100]}..."  # noqa: PLR2004 - enough to find it
