"""Syntax tree of an Avro schema, with names resolved.

Records are never recursive here, so the tree is finite; a type that is named twice is one node with two parents. Two
trees are equal if readers and writers can't tell them apart: `doc` is left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastavro.schema import to_parsing_canonical_form
from msgspec import UNSET


PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")

Properties = Mapping[str, Any]
"""The members of a schema that Avro gives no meaning to, or only a logical one."""


@dataclass(frozen=True, slots=True)
class Primitive:
    """A type that has no name."""

    type: str
    properties: Properties


@dataclass(frozen=True, slots=True)
class Fixed:
    """A number of bytes."""

    name: str
    aliases: Sequence[str]
    size: int
    properties: Properties


@dataclass(frozen=True, slots=True)
class Enum:
    """One of several symbols."""

    name: str
    aliases: Sequence[str]
    symbols: Sequence[str]
    default: str | None
    """The symbol that a reader substitutes for unknown ones."""
    properties: Properties


@dataclass(frozen=True, slots=True)
class Array:
    """Any number of items."""

    items: "Node"
    properties: Properties


@dataclass(frozen=True, slots=True)
class Map:
    """Any number of values under keys that are strings."""

    values: "Node"
    properties: Properties


@dataclass(frozen=True, slots=True)
class Union:
    """One of several types."""

    branches: Sequence["Node"]


@dataclass(frozen=True, slots=True)
class Field:
    """A member of a record."""

    name: str
    aliases: Sequence[str]
    type: "Node"
    default: Any
    """UNSET if there is none."""
    properties: Properties


@dataclass(frozen=True, slots=True)
class Record:
    """Fields in an order."""

    name: str
    aliases: Sequence[str]
    fields: Sequence[Field]
    properties: Properties


Named = Fixed | Enum | Record
Node = Primitive | Array | Map | Union | Named


def type_name(node: Node) -> str:
    """The name of a node's type in schemas: `record`, `long`, `union`."""
    return node.type if isinstance(node, Primitive) else type(node).__name__.lower()


def children(node: Node) -> Sequence[Node]:
    """The types directly inside a type."""
    match node:
        case Array(items=child) | Map(values=child):
            return (child,)
        case Union(branches=branches):
            return branches
        case Record(fields=fields):
            return [field.type for field in fields]
        case _:
            return ()


def definition(root: Node) -> Any:
    """The schema as plain JSON for other libraries: full names, each type defined once, no logical types."""
    return _definition(root, set())


def canonical_form(root: Node) -> str:
    """The Parsing Canonical Form: equal for schemas that write the same bytes under the same names."""
    return to_parsing_canonical_form(definition(root))


def _definition(node: Node, defined: set[str]) -> Any:  # noqa: PLR0911 - one for each type
    if isinstance(node, Primitive):
        return node.type
    if isinstance(node, Array):
        return {"type": "array", "items": _definition(node.items, defined)}
    if isinstance(node, Map):
        return {"type": "map", "values": _definition(node.values, defined)}
    if isinstance(node, Union):
        return [_definition(branch, defined) for branch in node.branches]
    if node.name in defined:
        return node.name
    defined.add(node.name)
    named: dict[str, Any] = {"type": type_name(node), "name": node.name}
    if node.aliases:
        named["aliases"] = list(node.aliases)
    match node:
        case Fixed(size=size):
            return {**named, "size": size}
        case Enum(symbols=symbols, default=default):
            return {**named, "symbols": list(symbols)} | ({} if default is None else {"default": default})
        case Record(fields=fields):
            return {**named, "fields": [_field(field, defined) for field in fields]}


def _field(field: Field, defined: set[str]) -> dict[str, Any]:
    members: dict[str, Any] = {"name": field.name, "type": _definition(field.type, defined)}
    if field.aliases:
        members["aliases"] = list(field.aliases)
    if field.default is not UNSET:
        members["default"] = field.default
    return members
