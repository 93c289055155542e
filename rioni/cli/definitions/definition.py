"""A definition of an event type or subscription: its format, its members and place, and differences by path."""

import functools
import json
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path as FilePath
from typing import Any, BinaryIO, NamedTuple

import jsonschema_rs
from msgspec import UNSET

from rioni.cli.terminal.json_and_yaml import Document, Path, json_values, read
from rioni.domain.json_patch import json_patch, names
from rioni.domain.texts import nearest
from rioni.files.plain import read_file


# A definition of an event type or subscription: its content, source location and errors.

EVENT_TYPE = "event-type"
SUBSCRIPTION = "subscription"


@dataclass(frozen=True, order=True)
class SourceLocation:
    """The location of a definition: a file, and a line from 1; 0 if there is no line."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True, order=True)
class DefinitionError:
    """An error in a definition, with its location; `about` names the definition, if it is known."""

    place: SourceLocation
    about: str
    text: str

    def __str__(self) -> str:
        return ": ".join(filter(None, [str(self.place), self.about, self.text]))


@dataclass(frozen=True)
class Definition:
    """The content of a document: a definition of a resource.

    Args:
        kind: `event-type` or `subscription`.
        members: those that it sets, as the API takes them.
        place: of the document.
    """

    kind: str
    members: Mapping[str, Any]
    place: SourceLocation

    @property
    def key(self) -> tuple[str, ...]:
        """The identity of the resource; definitions of the same resource have the same key."""
        if self.kind == EVENT_TYPE:
            return (self.kind, self.members["name"])
        group = self.members.get("consumer_group", "default")
        return (self.kind, self.members["owning_application"], group, *sorted(set(self.members["event_types"])))

    @property
    def name(self) -> str:
        """The name of the resource, for people."""
        return name_of(self.kind, self.members)


def name_of(kind: str, members: Mapping[str, Any]) -> str:
    """The name of an event type or subscription for people, if it has one."""
    if kind == EVENT_TYPE:
        return str(members.get("name", ""))
    parts = (members.get("owning_application", ""), members.get("consumer_group", "default"))
    return f"{'/'.join(map(str, parts))} of {', '.join(map(str, members.get('event_types') or ()))}"


def dotted(path: Path) -> str:
    """A path for people: `labels.team`, `authorization.admins[0]`, `labels["example.org/team"]`."""
    text = ""
    for segment in path:
        if isinstance(segment, int):
            text += f"[{segment}]"
        elif segment.replace("_", "").replace("$", "").replace("-", "").isalnum():
            text += f".{segment}" if text else segment
        else:
            text += f"[{json.dumps(segment, ensure_ascii=False)}]"
    return text


# --- The differences of two JSON values, by path, with old and new values ---


class ChangedValue(NamedTuple):
    """A value that differs; `UNSET` on the side that lacks it."""

    path: Path
    before: Any = UNSET
    after: Any = UNSET

    def as_json(self) -> dict[str, Any]:
        """An object with `path`, and `before` and `after` if there is such a value."""
        values = {"before": self.before, "after": self.after}
        return {"path": dotted(self.path)} | {name: value for name, value in values.items() if value is not UNSET}


def differences(before: Any, after: Any) -> list[ChangedValue]:
    """All differences, in the order in which they can be changed; none if the values are the same JSON."""
    return [_difference(before, operation) for operation in json_patch(before, after)]


def _difference(before: Any, operation: Any) -> ChangedValue:
    path: list[str | int] = []
    value = before
    for segment in names(operation["path"]):
        key = int(segment) if isinstance(value, list) else segment
        path.append(key)
        value = _member(value, key)
    there = operation["op"] != "add"
    return ChangedValue(tuple(path), value if there else UNSET, operation.get("value", UNSET))


def _member(value: Any, key: str | int) -> Any:
    """A member or item; UNSET if it does not exist, for example because it was added."""
    if isinstance(value, dict):
        return value.get(key, UNSET)
    return value[key] if isinstance(key, int) and key < len(value) else UNSET


# --- The format of definitions: a JSON schema, the errors of a document, and the members that are sent ---


KINDS = {EVENT_TYPE: "event_type", SUBSCRIPTION: "subscription"}
"""The kinds of definitions, and what their part of the JSON schema is named."""


@functools.cache
def json_schema() -> dict[str, Any]:
    """The JSON schema of a document, for editors."""
    text = resources.files(__package__).joinpath("definitions.schema.json").read_text()
    schema: dict[str, Any] = json.loads(text)
    return schema


def definition(
    document: Document, file: str, *, root: FilePath | None = None, anywhere: bool = False
) -> Definition | list[DefinitionError]:
    """Return the definition that a document holds, or all its problems.

    Members that only the broker sets are left out, and so are nulls: the API treats them as absent.

    Args:
        document: of the file.
        file: its name; `schema_file` is relative to the folder that it is in.
        root: the folder in which `schema_file` has to be; by default that of the file.
        anywhere: whether `schema_file` may be in any folder, since the user names it.
    """
    place = SourceLocation(file, document.line)
    if not isinstance(document.value, dict):
        return [DefinitionError(place, "", "a definition is an object, with members such as name")]
    value = {name: _without_nulls(value) for name, value in document.value.items() if value is not None}
    kind = kind_of(value)
    if not isinstance(kind, str) or kind not in KINDS:
        return [DefinitionError(place, "", f"kind is {' or '.join(KINDS)}, not {json.dumps(kind)}")]
    problems = [
        DefinitionError(SourceLocation(file, document.line_of(path)), name_of(kind, value), text)
        for path, text in _violations(kind, value)
    ]
    if problems:
        return sorted(set(problems))
    try:
        folder = FilePath(file).parent
        members = _sent(kind, value, folder, None if anywhere else root or folder)
    except ValueError as ex:
        return [
            DefinitionError(SourceLocation(file, document.line_of(("schema_file",))), name_of(kind, value), str(ex))
        ]
    return Definition(kind, members, place)


def kind_of(value: Mapping[str, Any]) -> Any:
    """Return the kind of a document: its member `kind`, or the kind to which its members belong; not checked."""
    return value.get("kind", SUBSCRIPTION if "event_types" in value else EVENT_TYPE)


def document_of(kind: str, members: Mapping[str, Any]) -> dict[str, Any]:
    """The document that defines a resource.

    Args:
        kind: `event-type` or `subscription`.
        members: as the API takes them.
    """
    return {"kind": kind, **comparable(members)}


def comparable(members: Mapping[str, Any]) -> Mapping[str, Any]:
    """Members with the schema as a JSON value; as its text, if Python would change a number or a name."""
    try:
        schema = members["schema"]
        (document,) = json_values(schema["schema"])
        return {**members, "schema": {"type": schema.get("type"), **schema, "schema": document.value}}
    except (KeyError, ValueError):
        return members


def _without_nulls(value: Any) -> Any:
    """Members of members; not the values of a schema, in which null has a meaning."""
    if not isinstance(value, dict):
        return value
    return {name: each for name, each in value.items() if each is not None}


def _violations(kind: str, value: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    for error in _validator(kind).iter_errors(value):
        path = tuple(error.instance_path)
        yield from _described(kind, path, error)
    if kind == EVENT_TYPE and "schema" in value and "schema_file" in value:
        yield ("schema_file",), "schema and schema_file are both given; use one of them"


def _described(kind: str, path: Path, error: jsonschema_rs.ValidationError) -> Iterator[tuple[Path, str]]:
    name, rule = dotted(path), error.kind.as_dict()
    if error.kind.name == "additionalProperties":
        for each in rule["unexpected"]:
            yield (*path, each), f"unknown member {dotted((*path, each))}; {_suggestion(kind, path, each)}"
    elif error.kind.name == "required":
        yield path, f"{dotted((*path, rule['property']))} is missing"
    elif error.kind.name == "type" and rule["types"] == ["string"]:
        yield path, f"{name} is a text: write {json.dumps(str(json.dumps(error.instance)))}, in quotes"
    elif error.kind.name == "enum" and (near := nearest(str(error.instance), map(str, rule["options"]))):
        yield path, f"{name}: {error.message}; did you mean {near}?"
    else:
        yield path, f"{name}: {error.message}"


def _suggestion(kind: str, path: Path, name: str) -> str:
    """The nearest name, first among those of the same object, then among all."""
    known = _members_at(kind, path)
    everywhere: dict[str, Path] = {each: (each,) for each in _members_at(kind, ())}
    for outer in list(everywhere):
        everywhere |= {inner: (outer, inner) for inner in _members_at(kind, (outer,)) if inner not in everywhere}
    if near := nearest(name, known):
        return f"did you mean {near}?"
    if near := nearest(name, everywhere):
        return f"did you mean {dotted(everywhere[near])}?"
    return f"there are {', '.join(known)}"


@functools.cache
def _validator(kind: str) -> jsonschema_rs.Validator:
    definitions = json_schema()["definitions"]
    return jsonschema_rs.validator_for({"$ref": f"#/definitions/{KINDS[kind]}", "definitions": definitions})


def _members_at(kind: str, path: Path) -> list[str]:
    """The names that an object may have, without those that only the broker sets; none if it may have any."""
    definitions = json_schema()["definitions"]
    schema = definitions[KINDS[kind]]
    for segment in path:
        schema = schema["items"] if isinstance(segment, int) else schema["properties"][segment]
        if "$ref" in schema:
            schema = definitions[schema["$ref"].rsplit("/", 1)[1]]
    return [name for name, each in schema.get("properties", {}).items() if not each.get("readOnly")]


def _sent(kind: str, value: dict[str, Any], folder: FilePath, root: FilePath | None) -> dict[str, Any]:
    properties = json_schema()["definitions"][KINDS[kind]]["properties"]
    members = {name: each for name, each in value.items() if name != "kind" and not properties[name].get("readOnly")}
    if "schema_file" in members:
        members["schema"] = schema_of_file(folder / members.pop("schema_file"), root)
    elif "schema" in members:
        schema = members["schema"]
        text = (
            schema["schema"] if isinstance(schema["schema"], str) else json.dumps(schema["schema"], ensure_ascii=False)
        )
        members["schema"] = {"type": schema.get("type", "json_schema"), "schema": text}
    return members


# --- Files with schemas: below the folder of the definitions only, wherever names and links lead ---


FILE_BYTES_MAX = 20_000_000


def schema_of_file(path: FilePath, root: FilePath | None) -> dict[str, str]:
    """Read a schema, in the form that the API takes.

    Args:
        path: of the file: JSON, YAML (`.yaml`, `.yml`), or Avro (`.avsc`).
        root: the folder in which it has to be; None if the user names the file, which may be anywhere.

    Raises:
        ValueError: there is no such schema.
    """
    try:
        text = (read_file(path) if root is None else read_bytes_below(root, path)).decode("utf-8-sig")
    except OSError as ex:
        raise ValueError(f"schema_file {path} can't be read: {ex.strerror}") from ex
    except UnicodeDecodeError as ex:
        raise ValueError(f"schema_file {path} is not UTF-8") from ex
    if path.suffix in (".yaml", ".yml"):
        documents = [each.value for each in read(text)]
        if len(documents) != 1:
            raise ValueError(f"schema_file {path} has {len(documents)} documents instead of one")
        text = json.dumps(documents[0], ensure_ascii=False)
    return {"type": "avro_schema" if path.suffix == ".avsc" else "json_schema", "schema": text}


def read_bytes_below(root: FilePath, path: FilePath) -> bytes:
    """Read a file that is in a folder, or in one below.

    Args:
        root: the folder.
        path: of the file; links and `..` may not lead out of the folder.

    Raises:
        OSError: it can't be read.
        ValueError: it is outside of the folder, is no file, or is too large.
    """
    resolved = path.resolve()
    if not resolved.is_relative_to(root.resolve()):
        raise ValueError(f"{path} is outside of the folder {root}; name a folder that has both")
    # The path may name another file by now: a link is not followed, and a pipe not waited for.
    fd = os.open(resolved, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ValueError(f"{path} is no file")
        return bounded(file)


def bounded(file: BinaryIO) -> bytes:
    """Read all that a file has; raises ValueError if that is too much."""
    content = file.read(FILE_BYTES_MAX + 1)
    if len(content) > FILE_BYTES_MAX:
        raise ValueError(f"has more than {FILE_BYTES_MAX:,} bytes")
    return content
