"""Reads events from CSV: the header names members, dots in it nested ones, and cells get the types of the schema."""

import contextlib
import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from rioni.cli.publishing.records import EVENT_BYTES_MAX, MARKED, Found, Unreadable, checked
from rioni.domain.errors import Invalid
from rioni.domain.schemas import strict_json
from rioni.domain.schemas.walker import resolve


TEXT, NUMBER, INTEGER, BOOLEAN, ANY_JSON = "text", "number", "integer", "boolean", "json"
TYPES = (TEXT, NUMBER, INTEGER, BOOLEAN, ANY_JSON)

METADATA = "metadata"

_BY_SCHEMA = {
    "string": TEXT,
    "number": NUMBER,
    "integer": INTEGER,
    "boolean": BOOLEAN,
    "object": ANY_JSON,
    "array": ANY_JSON,
}
_KINDS_OF_VALUES = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
    dict: "object",
    list: "array",
}
_COMBINATIONS = ("allOf", "anyOf", "oneOf")
_OTHER_FORMATS = ("{", "[", "<")
"""Beginnings of JSON and HTML, which the first cell of a header does not have."""
_MARK = "\ufeff"
_OTHER_SEPARATORS = re.compile(r"[,;|\t]")
_PATTERNS = {
    NUMBER: re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII),
    INTEGER: re.compile(r"-?(?:0|[1-9]\d*)", re.ASCII),
    BOOLEAN: re.compile(r"true|false", re.IGNORECASE),
}
_ARTICLES = {NUMBER: "a number", INTEGER: "a whole number", BOOLEAN: "true or false", ANY_JSON: "JSON"}


class Column(NamedTuple):
    """A column of the file."""

    path: tuple[str, ...]
    type: str | None = None
    """One of TYPES; None if it is not known, which means a text."""
    nullable: bool = True
    """Whether an empty cell is null."""


def parse_types(text: str) -> dict[str, str]:
    """Types of columns that the user gives, as in `price=number,paid=boolean`; raises Invalid."""
    found = {}
    for item in filter(None, (each.strip() for each in text.split(","))):
        name, equals, kind = item.rpartition("=")
        if not equals or kind not in TYPES:
            raise Invalid(f"{item} is not the type of a column; write column=TYPE with one of {', '.join(TYPES)}.")
        found[name.strip()] = kind
    return found


def columns_of(header: Sequence[str], types: Mapping[str, str], schema: Mapping[str, Any]) -> list[Column]:
    """The columns of a file.

    Args:
        header: the names.
        types: those that the user gives, by name.
        schema: of the events, whose types hold for the others.

    Raises:
        Invalid: a name is empty, or there twice, or of a column that the file does not have.
    """
    names = [name.strip() for name in header]
    if any(name.startswith(_MARK) for name in names):
        raise Invalid(f"line 1 has {MARKED}.")
    if names and names[0].startswith(_OTHER_FORMATS):
        raise Invalid(f"line 1 is not the header of a CSV file: {header[0][:60]!r}.")
    if unknown := sorted(types.keys() - set(names)):
        raise Invalid(f"There is no column {unknown[0]}; the columns are {', '.join(names)}.")
    paths = [tuple(name.split(".")) for name in names]
    for number, path in enumerate(paths):
        if not all(path):
            raise Invalid(f"Column {number + 1} of the header has no name, or one with dots that separate nothing.")
        # A member can't be a value, and an object with members, at the same time.
        others = [each for other, each in enumerate(paths) if other != number]
        if any(each[: len(path)] == path for each in others):
            raise Invalid(f"The header has the column {names[number]} twice, or also columns within it.")
    columns = []
    for name, path in zip(names, paths, strict=True):
        kind, nullable = _of_schema(schema, path)
        columns.append(Column(path, types.get(name, kind), nullable))
    _check_is_header(paths, types, schema)
    return columns


def _check_is_header(paths: Sequence[Sequence[str]], types: Mapping[str, str], schema: Mapping[str, Any]) -> None:
    """Refuse a first line with another separator, or with values, if the schema shows that; raises Invalid."""
    if not types and len(paths) == 1 and (other := _OTHER_SEPARATORS.search(".".join(paths[0]))):
        raise Invalid(
            f"line 1 is a single column with {other[0]!r} in its name. Columns are separated by commas in CSV and by "
            "tabulators in TSV: convert the file. If the column has this name, give its type with --types."
        )
    declared = {name for node in _alternatives(schema, [schema]) for name in node.get("properties", ())}
    if declared - {METADATA} and not types and not declared & {path[0] for path in paths}:
        raise Invalid(
            "line 1 names no member that the schema declares: is it a header? If it is, give the type of one of its "
            "columns with --types."
        )


def _of_schema(schema: Mapping[str, Any], path: Sequence[str]) -> tuple[str | None, bool]:
    """The type of a column, and whether its member may be null."""
    nodes: list[Any] = [schema]
    for name in path:
        nodes = [inner for node in _alternatives(schema, nodes) if (inner := _member(node, name)) is not None]
    kinds = {kind for node in _alternatives(schema, nodes) for kind in _kinds(node)}
    if not kinds:
        return None, True
    known = {_BY_SCHEMA[kind] for kind in kinds if kind in _BY_SCHEMA}
    if known == {NUMBER, INTEGER}:
        known = {NUMBER}
    # A cell that may be a text is one, whatever it looks like. Other values can be distinguished by their form.
    kind = known.pop() if len(known) == 1 else TEXT if TEXT in known else ANY_JSON
    return kind, "null" in kinds


def _alternatives(schema: Mapping[str, Any], nodes: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
    """Schemas with those that they refer to or combine; each once."""
    waiting, seen = list(nodes), set()
    while waiting:
        node = waiting.pop()
        if not isinstance(node, Mapping) or id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        if isinstance(reference := node.get("$ref"), str):
            with contextlib.suppress(LookupError):
                waiting.append(resolve(schema, reference))
        for combination in _COMBINATIONS:
            if isinstance(parts := node.get(combination), list):
                waiting += parts


def _member(node: Mapping[str, Any], name: str) -> Any:
    properties = node.get("properties")
    return properties.get(name) if isinstance(properties, Mapping) else None


def _kinds(node: Mapping[str, Any]) -> Iterator[str]:
    """The names of the JSON types that a schema declares by itself."""
    declared = node.get("type", [])
    if declared:
        yield from declared if isinstance(declared, list) else [declared]
        return
    values = node["enum"] if isinstance(node.get("enum"), list) else [node["const"]] if "const" in node else []
    for value in values:
        yield _KINDS_OF_VALUES[type(value)]


def csv_events(
    lines: Iterable[bytes],
    types: Mapping[str, str],
    schema: Mapping[str, Any],
    *,
    delimiter: str = ",",
    check: Callable[[Sequence[str]], None] = lambda _: None,
) -> Iterator[Found]:
    """The events of a file.

    Args:
        lines: of the file, in UTF-8; the first one is the header.
        types: of columns, which the user gives.
        schema: of the events.
        delimiter: between cells.
        check: is called with the names of the columns that `types` does not have; raises Invalid.

    Raises:
        Invalid: the header can't be used.
    """
    csv.field_size_limit(EVENT_BYTES_MAX)
    rows = csv.reader(_decoded(lines), delimiter=delimiter, strict=True)
    try:
        header = next(rows, None)
        if not header:
            raise Invalid("line 1 has to be a header with the names of the columns, and is empty.")
        columns = columns_of(header, types, schema)
        check([name for column in columns if (name := ".".join(column.path)) not in types])
        line = rows.line_num + 1
        for row in rows:
            if row == header:
                yield Unreadable(line, "the row is the header once more", _text(row, delimiter))
            elif row and row[0].startswith(_MARK):
                yield Unreadable(line, f"the row begins with {MARKED}", _text(row, delimiter))
            elif row:
                yield _event(line, row, columns, delimiter)
            line = rows.line_num + 1
    except csv.Error as ex:
        yield Unreadable(rows.line_num, f"it is not CSV: {ex}", b"")
    except UnicodeDecodeError as ex:
        yield Unreadable(rows.line_num + 1, f"it is not UTF-8: {ex.reason}", ex.object[:1_000])


def _decoded(lines: Iterable[bytes]) -> Iterator[str]:
    """Whole lines, even if longer ones come in pieces."""
    begun = b""
    for piece in lines:
        begun += piece
        if b"\0" in piece:
            raise csv.Error("a line has a NUL byte")
        if len(begun) > EVENT_BYTES_MAX:
            raise csv.Error(f"a line has more than {EVENT_BYTES_MAX:,} bytes")
        if piece.endswith(b"\n"):
            yield begun.decode()
            begun = b""
    if begun:
        yield begun.decode()


def _event(line: int, row: Sequence[str], columns: Sequence[Column], delimiter: str) -> Found:
    if len(row) != len(columns):
        return Unreadable(line, f"the row has {len(row)} cells, the header {len(columns)}", _text(row, delimiter))
    event: dict[str, Any] = {}
    for cell, column in zip(row, columns, strict=True):
        try:
            value = _value(cell, column)
        except ValueError as ex:
            return Unreadable(line, f"column {'.'.join(column.path)}: {ex}", _text(row, delimiter))
        if value is msgspec.UNSET:
            continue
        place = event
        for name in column.path[:-1]:
            place = place.setdefault(name, {})
        place[column.path[-1]] = value
    return checked(line, msgspec.json.encode(event))


def _text(row: Sequence[str], delimiter: str) -> bytes:
    """A row as a line that is read as the same cells again."""
    text = io.StringIO()
    # The writer quotes line breaks only if they are part of its line terminator.
    csv.writer(text, delimiter=delimiter, lineterminator="\r\n").writerow(row)
    return text.getvalue().removesuffix("\r\n").encode()


def _value(cell: str, column: Column) -> Any:
    """The value of a cell; UNSET if its member is left out. Raises ValueError."""
    if not cell and column.nullable:
        return None
    if column.type in (TEXT, None):
        return cell
    if not cell.strip():
        return msgspec.UNSET
    text = cell.strip()
    pattern = _PATTERNS.get(column.type)
    if pattern is None:
        try:
            strict_json.decode(text)
        except strict_json.JsonError as ex:
            raise ValueError(f"{cell[:100]!r} is not JSON: {ex}") from ex
    elif not pattern.fullmatch(text):
        raise ValueError(f"{cell[:100]!r} is not {_ARTICLES[column.type]}")
    # The text is kept as written: no digit of a number is lost.
    return msgspec.Raw((text.lower() if column.type == BOOLEAN else text).encode())
