"""Events as rows, one by one: each value exactly, or the event does not fit, and is kept as JSON in `_corrupt`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from rioni.lake.columns import CORRUPT, DOC, OFFSET, OWN, PARTITION, REST, marked
from rioni.lake.values import converter


Members = dict[str, msgspec.Raw]
MEMBERS = msgspec.json.Decoder(Members)
"""Reads the members of an event, each as it is written."""
_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])


def record_batch(
    schema: pa.Schema, events: Sequence[tuple[str, str, bytes]], mark: Mapping[str, str] = DOC
) -> pa.RecordBatch:
    """Events as rows: those that do not fit have their JSON in `_corrupt`, and no other values.

    Args:
        schema: with `_partition`, `_offset` and `_corrupt`; with `_rest`, it gets what has no column.
        events: partition, offset, and the JSON of the event.
        mark: of columns of JSON.
    """
    converters = _converters(schema)
    rest_of = rest_reader(schema) if REST in schema.names else None
    columns: dict[str, list[Any]] = {each.name: [] for each in schema}
    for partition, offset, event in events:
        row: dict[str, Any] = {PARTITION: partition, OFFSET: offset}
        try:
            members = MEMBERS.decode(event)
            row |= {name: convert(members[name]) for name, convert in converters.items() if name in members}
            if rest_of is not None:
                row[REST] = rest_of(members)
        except ValueError:
            row = {PARTITION: partition, OFFSET: offset, CORRUPT: event.decode()}
        for name, values in columns.items():
            values.append(row.get(name))
    stored = marked(schema, mark)
    return pa.record_batch([pa.array(columns[each.name], each.type) for each in stored], schema=stored)


def rest_reader(schema: pa.Schema) -> Callable[[Members], str | None]:
    """What finds what of an event has no column: JSON, None where there is nothing.

    Args:
        schema: with `_rest` or without.
    """
    rest_of = _of_members({each.name: each.type for each in schema if each.name not in OWN})

    def read(members: Members) -> str | None:
        rest = rest_of(members)
        return None if rest is None else msgspec.json.encode(rest).decode()

    return read


def misfit(schema: pa.Schema, event: bytes) -> str:
    """Why an event does not fit the columns; empty where it does."""
    try:
        members = MEMBERS.decode(event)
        for name, convert in _converters(schema).items():
            if name in members:
                convert(members[name])
    except ValueError as ex:
        return str(ex)
    return ""


def check_readable(schema: pa.Schema) -> None:
    """Check that each column has a type that values of JSON can be read as.

    Raises:
        Invalid: one has not; the text names its path.
    """
    _converters(schema)


def _converters(schema: pa.Schema) -> dict[str, Callable[[msgspec.Raw], Any]]:
    return {each.name: converter(each.type, each.name) for each in schema if each.name not in OWN}


def _of_members(kinds: Mapping[str, pa.DataType]) -> Callable[[Members], dict[str, Any] | None]:
    # PERF: asking Arrow's types for each value takes ten times as long.
    declared = {name: _rest_of(kind) for name, kind in kinds.items()}
    is_flat = all(inner is None for inner in declared.values())

    def rest(members: Members) -> dict[str, Any] | None:
        if is_flat and members.keys() <= declared.keys():
            return None
        found: dict[str, Any] = {}
        for name, each in members.items():
            if name not in declared:
                found[name] = each
            elif (inner := declared[name]) is not None and (left := inner(each)) is not None:
                found[name] = left
        return found or None

    return rest


def _rest_of(kind: pa.DataType) -> Callable[[msgspec.Raw], Any] | None:
    """What finds the rest of a value, in the shape that the value has; None for a type that leaves nothing.

    An array of objects becomes an array of the same length, with null for items that are declared completely.
    """
    if pa.types.is_struct(kind):
        members = _of_members({each.name: each.type for each in kind})
        return lambda value: None if bytes(value) == b"null" else members(MEMBERS.decode(value))
    if not pa.types.is_list(kind) or (of_item := _rest_of(kind.value_type)) is None:
        return None

    def items(value: msgspec.Raw) -> Any:
        found = [
            None if bytes(each) == b"null" else of_item(each)
            for each in (() if bytes(value) == b"null" else _ITEMS.decode(value))
        ]
        return found if any(each is not None for each in found) else None

    return items
