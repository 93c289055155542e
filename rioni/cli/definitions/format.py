"""The format of definitions: a JSON schema, the errors of a document, and the members that are sent."""

import functools
import json
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path as FilePath
from typing import Any

import jsonschema_rs

from rioni.cli.definitions.definition import EVENT_TYPE, SUBSCRIPTION, Definition, Place, Problem, dotted, name_of
from rioni.cli.definitions.schema_files import schema_of_file
from rioni.cli.terminal.json_and_yaml import Document, Path, json_values
from rioni.domain.texts import nearest


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
) -> Definition | list[Problem]:
    """Return the definition that a document holds, or all its problems.

    Members that only the broker sets are left out, and so are nulls: the API treats them as absent.

    Args:
        document: of the file.
        file: its name; `schema_file` is relative to the folder that it is in.
        root: the folder in which `schema_file` has to be; by default that of the file.
        anywhere: whether `schema_file` may be in any folder, since the user names it.
    """
    place = Place(file, document.line)
    if not isinstance(document.value, dict):
        return [Problem(place, "", "a definition is an object, with members such as name")]
    value = {name: _without_nulls(value) for name, value in document.value.items() if value is not None}
    kind = kind_of(value)
    if not isinstance(kind, str) or kind not in KINDS:
        return [Problem(place, "", f"kind is {' or '.join(KINDS)}, not {json.dumps(kind)}")]
    problems = [
        Problem(Place(file, document.line_of(path)), name_of(kind, value), text)
        for path, text in _violations(kind, value)
    ]
    if problems:
        return sorted(set(problems))
    try:
        folder = FilePath(file).parent
        members = _sent(kind, value, folder, None if anywhere else root or folder)
    except ValueError as ex:
        return [Problem(Place(file, document.line_of(("schema_file",))), name_of(kind, value), str(ex))]
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
