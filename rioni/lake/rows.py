"""Events as rows, one by one: each value exactly, or the event does not fit, and is kept as JSON in `_corrupt`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from rioni.lake.columns import CORRUPT, DOC, OFFSET, OWN, PARTITION, REST, marked
from rioni.lake.values import converter


_Members = dict[str, msgspec.Raw]
_MEMBERS = msgspec.json.Decoder(_Members)
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
    declared = pa.struct([each for each in schema if each.name in converters])
    wants_rest = REST in schema.names
    columns: dict[str, list[Any]] = {each.name: [] for each in schema}
    for partition, offset, event in events:
        row: dict[str, Any] = {PARTITION: partition, OFFSET: offset}
        try:
            members = _MEMBERS.decode(event)
            row |= {name: convert(members[name]) for name, convert in converters.items() if name in members}
            if wants_rest and (rest := _undeclared(declared, members)):
                row[REST] = msgspec.json.encode(rest).decode()
        except ValueError:
            row = {PARTITION: partition, OFFSET: offset, CORRUPT: event.decode()}
        for name, values in columns.items():
            values.append(row.get(name))
    stored = marked(schema, mark)
    return pa.record_batch([pa.array(columns[each.name], each.type) for each in stored], schema=stored)


def misfit(schema: pa.Schema, event: bytes) -> str:
    """Why an event does not fit the columns; empty where it does."""
    try:
        members = _MEMBERS.decode(event)
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


def _undeclared(kind: pa.DataType, value: msgspec.Raw | _Members) -> Any:
    """What of a value has no column, in the shape that the value has; None where there is nothing.

    An array of objects becomes an array of the same length, with null for items that are declared completely.
    """
    if pa.types.is_struct(kind):
        if isinstance(value, msgspec.Raw):
            value = {} if bytes(value) == b"null" else _MEMBERS.decode(value)
        found: dict[str, Any] = {}
        for name, each in value.items():
            index = kind.get_field_index(name)
            rest = each if index < 0 else _undeclared(kind.field(index).type, each)
            if rest is not None:
                found[name] = rest
        return found or None
    if pa.types.is_list(kind) and isinstance(value, msgspec.Raw) and _is_nested(kind.value_type):
        items = None if bytes(value) == b"null" else _ITEMS.decode(value)
        found_in = [None if bytes(each) == b"null" else _undeclared(kind.value_type, each) for each in items or ()]
        return found_in if any(each is not None for each in found_in) else None
    return None


def _is_nested(kind: pa.DataType) -> bool:
    return pa.types.is_struct(kind) or (pa.types.is_list(kind) and _is_nested(kind.value_type))
