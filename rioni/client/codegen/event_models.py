"""Classes of Python for event types: as objects, and as source."""

import keyword
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import msgspec

from rioni.client.codegen import json_schema
from rioni.client.codegen.json_schema import (
    ANY,
    GENERAL,
    PythonType,
    Schema,
    SchemaDocument,
    kind_of,
    literal,
    quoted,
    to_json_schema,
    union,
)
from rioni.wire.event_types import EventType


# --- Classes for the objects of JSON schemas, with types for all other values ---

RESERVED = frozenset(("Any", "Literal", "UUID", "None", "True", "False", "TypeAlias"))
"""Names that can't be those of classes, as modules of models import them."""
METADATA = {
    "title": "Metadata of an event; the broker adds members to it.",
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
    """The classes of one or several event types, with their own names."""

    def __init__(self, *, formats: bool) -> None:
        """Know no class but that of metadata.

        Args:
            formats: whether texts with the format `date-time`, `date` or `uuid` get their own types.
        """
        self.classes: dict[str, ModelClass] = {}
        self._formats = formats
        self._document = SchemaDocument({})
        self._prefix = ""
        self._references: dict[str, PythonType] = {}
        self._metadata = self._type(METADATA, "Metadata")

    def add(self, event_type: str, schema: Schema, category: str) -> tuple[str, str]:
        """Make the classes of an event type; returns the name and the type of its events, which may be the same.

        Raises:
            ValueError: a reference of the schema leads nowhere.
        """
        name = self._free(class_name(event_type))
        self._prefix, self._document, self._references = name, SchemaDocument(schema), {_METADATA: self._metadata}
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


# --- Writes classes as Python source: as msgspec structs, or as dataclasses ---

STYLES = ("msgspec", "dataclass")
WIDTH = 110

_TAKEN = frozenset(
    ("bool", "dict", "float", "int", "list", "str", "dataclass", "dt", "msgspec", "Any", "Literal", "UUID", "TypeAlias")
)
"""Names that annotations use, so that a member of this name would hide them."""
_BASES = {
    "msgspec": "class {name}(msgspec.Struct, kw_only=True, omit_defaults=True):",
    "dataclass": "@dataclass(kw_only=True)\nclass {name}:",
}


def source(title: str, events: Mapping[str, str], classes: Mapping[str, ModelClass], *, style: str) -> str:
    """A module with the classes that events need.

    Args:
        title: a description of the module, as sentences.
        events: the type of the events, by the name that it gets.
        classes: all classes, by name.
        style: one of `STYLES`.

    Raises:
        ValueError: there is no such style, or a member can't have its name in a dataclass.
    """
    if style not in STYLES:
        raise ValueError(f"{style!r} is not a style; there are {', '.join(STYLES)}")
    used = _used(events, classes)
    taken = _TAKEN | set(used)
    blocks = [_class(each, taken, style) for each in used.values()]
    blocks += [f"{name}: TypeAlias = {text}\n" for name, text in events.items() if text != name]
    texts = [*events.values(), *(member.type.text for each in used.values() for member in each.members)]
    body = "\n\n".join(blocks)
    aliases = any(name != text for name, text in events.items())
    imports = _imports(" ".join(texts), style, aliases=aliases, msgspec="msgspec." in body)
    return f'"""{_escaped(title)}"""\n\n{imports}\n\n\n{body}'


def _used(events: Mapping[str, str], classes: Mapping[str, ModelClass]) -> dict[str, ModelClass]:
    """The classes that events consist of, beginning with those of whole events."""
    used: dict[str, ModelClass] = {}
    texts = [*events.values()]
    while texts:
        found = [name for name in re.findall(r"(?<![\"\w.])[A-Za-z]\w*(?![\"\w])", texts.pop(0)) if name in classes]
        for name in found:
            if name not in used:
                used[name] = classes[name]
                texts += [member.type.text for member in classes[name].members]
    return used


def _imports(annotations: str, style: str, *, aliases: bool, msgspec: bool) -> str:
    typing = [name for name in ("Any", "Literal") if name in annotations] + (["TypeAlias"] if aliases else [])
    standard = [
        "import datetime as dt" if "dt." in annotations else "",
        "from dataclasses import dataclass" if style == "dataclass" else "",
        f"from typing import {', '.join(typing)}" if typing else "",
        "from uuid import UUID" if "UUID" in annotations else "",
    ]
    used = ["\nimport msgspec"] if msgspec else []
    return "\n".join(["from __future__ import annotations\n", *filter(None, standard), *used])


def _class(model: ModelClass, taken: Iterable[str], style: str) -> str:
    lines = [_BASES[style].format(name=model.name)]
    if model.description:
        lines += [*_docstring(model.description), ""]
    names: set[str] = set(taken)
    for member in model.members:
        name = _member_name(member.name, names)
        names.add(name)
        lines.append(f"    {name}: {_annotation(member, style)}{_default(model, member, name, style)}")
        lines += _docstring(member.description) if member.description else ()
    return "\n".join(lines) + "\n"


def _annotation(member: Member, style: str) -> str:
    text = member.type.text
    if member.required or text == "Any":
        return text
    # A member that may be null needs another mark of its absence; msgspec leaves None out of structs only.
    if member.type.nullable or style == "dataclass":
        return f"{text} | msgspec.UnsetType"
    return f"{text} | None"


def _default(model: ModelClass, member: Member, name: str, style: str) -> str:
    value = None
    if not member.required:
        unset = member.type.nullable or style == "dataclass"
        value = "msgspec.UNSET" if unset else "None"
    if name == member.name:
        return "" if value is None else f" = {value}"
    if style == "dataclass":
        raise ValueError(
            f"The member {member.name!r} of {model.name} can't have this name in a dataclass: use the style msgspec"
        )
    return f" = msgspec.field(name={quoted(member.name)}{'' if value is None else f', default={value}'})"


def _member_name(name: str, taken: set[str]) -> str:
    """The name of a member in Python: its own, if that is possible."""
    found = re.sub(r"[^A-Za-z0-9_]", "_", name)
    if not found or found[0].isdigit() or found.startswith("__"):
        found = f"member_{found.lstrip('_')}"
    while keyword.iskeyword(found) or found in taken:
        found += "_"
    return found


def _docstring(text: str) -> list[str]:
    return textwrap.wrap(
        f'"""{_escaped(text)}"""',
        WIDTH,
        initial_indent="    ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _escaped(text: str) -> str:
    """A text that stays within a docstring."""
    printable = "".join(char if char.isprintable() else " " for char in text)
    return printable.replace("\\", "\\\\").replace('"', "'")


# --- Models for the events of event types: Python source from their schemas ---


def event_models(event_types: Sequence[EventType], *, style: str = "msgspec", formats: bool = True) -> str:
    """A module of Python with a class for the events of each event type, and for the objects in them.

    Args:
        event_types: with their schemas.
        style: `msgspec` (structs) or `dataclass`.
        formats: whether texts with the format `date-time`, `date` or `uuid` become `datetime`, `date` and `UUID`.

    Raises:
        ValueError: a schema can't be read, or the style can't express it.
    """
    classes, events = ModelClasses(formats=formats), dict[str, str]()
    for event_type in event_types:
        try:
            schema = event_type.schema.parsed()
            if event_type.schema.type == "avro_schema":
                schema = to_json_schema(schema)
            name, text = classes.add(event_type.name, schema, event_type.category)
        except (ValueError, msgspec.MsgspecError) as ex:
            raise ValueError(f"{event_type.name}: {ex}") from ex
        events[name] = text
    names = ", ".join(event_type.name for event_type in event_types)
    return source(f"Events of {names}.", events, classes.classes, style=style)
