"""Reads events from CSV: the header names members, dots in it nested ones, and cells get the types of the schema."""

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from rioni.domain.errors import Invalid
from rioni.tools.events.records import EVENT_BYTES_MAX, Found, Record, Unreadable


TEXT, NUMBER, INTEGER, BOOLEAN, ANY_JSON = "text", "number", "integer", "boolean", "json"
TYPES = (TEXT, NUMBER, INTEGER, BOOLEAN, ANY_JSON)

_BY_SCHEMA = {
    "string": TEXT,
    "number": NUMBER,
    "integer": INTEGER,
    "boolean": BOOLEAN,
    "object": ANY_JSON,
    "array": ANY_JSON,
}
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
    return columns


def _of_schema(schema: Mapping[str, Any], path: Sequence[str]) -> tuple[str | None, bool]:
    node: Any = schema
    for name in path:
        node = node.get("properties", {}).get(name) if isinstance(node, Mapping) else None
        if isinstance(node, Mapping) and isinstance(reference := node.get("$ref"), str):
            node = _referred(schema, reference)
    declared = node.get("type") if isinstance(node, Mapping) else None
    if declared is None:
        return None, True
    kinds = declared if isinstance(declared, list) else [declared]
    known = [_BY_SCHEMA[kind] for kind in kinds if kind in _BY_SCHEMA]
    # A cell that may be several things is what its text looks like only if the user says so.
    return (known[0] if len(known) == 1 else None), "null" in kinds


def _referred(schema: Mapping[str, Any], reference: str) -> Any:
    node: Any = schema
    for name in reference.removeprefix("#").split("/")[1:]:
        node = node.get(name.replace("~1", "/").replace("~0", "~")) if isinstance(node, Mapping) else None
    return node


def csv_events(
    lines: Iterable[bytes], types: Mapping[str, str], schema: Mapping[str, Any], *, delimiter: str = ","
) -> Iterator[Found]:
    """The events of a file.

    Args:
        lines: of the file, in UTF-8; the first one is the header.
        types: of columns, which the user gives.
        schema: of the events.
        delimiter: between cells.

    Raises:
        Invalid: the header can't be used.
    """
    csv.field_size_limit(EVENT_BYTES_MAX)
    rows = csv.reader(_decoded(lines), delimiter=delimiter, strict=True)
    try:
        header = next(rows, None)
        if header is None:
            return
        columns = columns_of(header, types, schema)
        line = rows.line_num + 1
        for row in rows:
            if row:
                yield _event(line, row, columns)
            line = rows.line_num + 1
    except csv.Error as ex:
        yield Unreadable(rows.line_num, f"it is not CSV: {ex}", b"")
    except UnicodeDecodeError as ex:
        yield Unreadable(rows.line_num + 1, f"it is not UTF-8: {ex.reason}", ex.object[:1_000])


def _decoded(lines: Iterable[bytes]) -> Iterator[str]:
    """Whole lines, where longer ones come in pieces."""
    begun = b""
    for piece in lines:
        begun += piece
        if len(begun) > EVENT_BYTES_MAX:
            raise csv.Error(f"a line has more than {EVENT_BYTES_MAX:,} bytes")
        if piece.endswith(b"\n"):
            yield begun.decode()
            begun = b""
    if begun:
        yield begun.decode()


def _event(line: int, row: Sequence[str], columns: Sequence[Column]) -> Found:
    if len(row) != len(columns):
        text = ",".join(row).encode()
        return Unreadable(line, f"the row has {len(row)} cells, the header {len(columns)}", text)
    event: dict[str, Any] = {}
    for cell, column in zip(row, columns, strict=True):
        try:
            value = _value(cell, column)
        except ValueError as ex:
            return Unreadable(line, f"column {'.'.join(column.path)}: {ex}", ",".join(row).encode())
        if value is msgspec.UNSET:
            continue
        place = event
        for name in column.path[:-1]:
            place = place.setdefault(name, {})
        place[column.path[-1]] = value
    return Record(line, msgspec.json.encode(event))


def _value(cell: str, column: Column) -> Any:
    """The value of a cell; UNSET where its member is left out. Raises ValueError."""
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
            msgspec.json.decode(text)
        except msgspec.MsgspecError as ex:
            raise ValueError(f"{cell[:100]!r} is not JSON") from ex
    elif not pattern.fullmatch(text):
        raise ValueError(f"{cell[:100]!r} is not {_ARTICLES[column.type]}")
    # As it is written: no digit of a number is lost.
    return msgspec.Raw((text.lower() if column.type == BOOLEAN else text).encode())
