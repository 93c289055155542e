"""Classes for the objects of JSON schemas, with types for all other values."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from rioni.client.codegen import json_schema
from rioni.client.codegen.json_schema import Document, Schema
from rioni.client.codegen.python_types import ANY, GENERAL, PythonType, kind_of, literal, union


RESERVED = frozenset(("Any", "Literal", "UUID", "None", "True", "False", "TypeAlias"))
"""Names that can't be those of classes, as modules of models import them."""
METADATA = {
    "title": "What the API says about an event; the broker adds to it.",
    "type": "object",
    "properties": {
        "eid": {"type": "string", "format": "uuid"},
        "occurred_at": {"type": "string", "format": "date-time"},
        "event_type": {"type": "string"},
        "received_at": {"type": "string", "format": "date-time"},
        "published_by": {"type": "string"},
        "version": {"type": "string"},
        "partition": {"type": "string"},
        "partition_keys": {"type": "array", "items": {"type": "string"}},
        "partition_compaction_key": {"type": "string"},
        "parent_eids": {"type": "array", "items": {"type": "string", "format": "uuid"}},
        "flow_id": {"type": "string"},
        "span_ctx": {},
        "event_owner": {"type": "string"},
    },
    "required": ["eid", "occurred_at"],
}
_OPERATION = {"enum": ["C", "U", "D", "S"], "description": "Create, update, delete or snapshot."}
_METADATA = "metadata of events"
_FORMATS = {"date-time": "dt.datetime", "date": "dt.date", "uuid": "UUID"}


@dataclass(frozen=True)
class Member:
    """A member of an object."""

    name: str
    """The name in JSON."""
    type: PythonType
    required: bool
    description: str


@dataclass
class ModelClass:
    """A class for objects."""

    name: str
    description: str = ""
    members: list[Member] = field(default_factory=list)


class ModelClasses:
    """The classes of one or several event types, with names of their own."""

    def __init__(self, *, formats: bool) -> None:
        """Know no class but that of metadata.

        Args:
            formats: whether texts with the format `date-time`, `date` or `uuid` get types of their own.
        """
        self.classes: dict[str, ModelClass] = {}
        self._formats = formats
        self._document = Document({})
        self._prefix = ""
        self._references: dict[str, PythonType] = {}
        self._metadata = self._type(METADATA, "Metadata")

    def add(self, event_type: str, schema: Schema, category: str) -> tuple[str, str]:
        """Make the classes of an event type; returns the name and the type of its events, which may be the same.

        Raises:
            ValueError: a reference of the schema leads nowhere.
        """
        name = self._free(class_name(event_type))
        self._prefix, self._document, self._references = name, Document(schema), {_METADATA: self._metadata}
        target, metadata = self._document.target(schema), {"metadata": {"$ref": _METADATA}}
        if category == "data":
            members = {"data_type": {"type": "string"}, "data_op": _OPERATION, "data": schema, **metadata}
            target = {"properties": members, "required": ["data_type", "data_op", "data"]}
        elif not any(self._document.members(target)):
            return name, GENERAL["dict"]
        elif category == "business":
            target = {**target, "properties": {**target.get("properties", {}), **metadata}}
        return name, self._class(target, name)

    def _type(self, schema: Any, hint: str) -> PythonType:
        if not isinstance(schema, Mapping):
            return ANY
        if isinstance(reference := schema.get("$ref"), str):
            return self._referenced(reference)
        schema = self._document.target(schema)
        kinds = json_schema.kinds(schema)
        if "enum" in schema or "const" in schema:
            values = schema.get("enum", [schema.get("const")])
            return literal(value for value in values if kinds is None or kind_of(value) in kinds)
        if kinds is not None:
            return PythonType({kind: self._text(kind, schema, hint) for kind in kinds})
        return self._alternatives(json_schema.alternatives(schema), hint)

    def _alternatives(self, schemas: list[Schema], hint: str) -> PythonType:
        """One of several; alternatives that are objects with declared members become one class with those of all."""
        objects = [each for each in schemas if json_schema.kinds(self._document.target(each)) == ["dict"]]
        if len(objects) > 1 and all(any(self._document.members(self._document.target(each))) for each in objects):
            schemas = [{"type": "object", "anyOf": objects}, *(each for each in schemas if each not in objects)]
        return union(self._type(each, hint) for each in schemas) if schemas else ANY

    def _text(self, kind: str, schema: Schema, hint: str) -> str:
        if kind == "dict":
            return self._object(schema, hint)
        if kind == "list":
            items = schema.get("items")
            return f"list[{self._type(items, _singular(hint)).text}]"
        if kind == "str" and self._formats:
            return _FORMATS.get(schema.get("format", ""), "str")
        return GENERAL[kind]

    def _object(self, schema: Schema, hint: str) -> str:
        if any(self._document.members(schema)):
            return self._class(schema, self._free(hint))
        values = json_schema.values_of_map(schema)
        return GENERAL["dict"] if values is None else f"dict[str, {self._type(values, hint).text}]"

    def _class(self, schema: Schema, name: str) -> str:
        made = self.classes[name] = ModelClass(name, json_schema.description(schema))
        members: dict[str, Member] = {}
        for member, declared, required in self._document.members(schema):
            before = members.get(member)
            types = [self._type(declared, class_name(member)), *([] if before is None else [before.type])]
            text = json_schema.description(declared) or ("" if before is None else before.description)
            members[member] = Member(member, union(types), required, text)
        made.members = list(members.values())
        return name

    def _referenced(self, reference: str) -> PythonType:
        if (known := self._references.get(reference)) is not None:
            return known
        target = self._document.target({"$ref": reference})
        name = class_name(unquote(reference).rpartition("/")[2].removeprefix("#") or self._prefix)
        # A class may refer to itself, as its name is known before it is read. Other types have ANY in that place.
        if json_schema.kinds(target) == ["dict"] and any(self._document.members(target)):
            name = self._free(name)
            self._references[reference] = PythonType({"dict": name})
            self._class(target, name)
        else:
            self._references[reference] = ANY
            self._references[reference] = self._type(target, name)
        return self._references[reference]

    def _free(self, hint: str) -> str:
        """A name that no class has; it is taken from then on."""
        name, number = hint, 1
        while name in self.classes or name in RESERVED:
            name = f"{self._prefix}{hint}{number if number > 1 else ''}"
            number += 1
        self.classes[name] = ModelClass(name)
        return name


def class_name(name: str) -> str:
    """The name of a class after any text: `order_line` and `order-line` become `OrderLine`."""
    words: Iterable[str] = re.findall(r"[A-Za-z0-9]+", name)
    joined = "".join(word.capitalize() if word.isupper() else word[0].upper() + word[1:] for word in words)
    return joined if joined[:1].isalpha() else f"Model{joined}"


def _singular(name: str) -> str:
    return name.removesuffix("s") if name.endswith("s") and not name.endswith("ss") else f"{name}Item"
