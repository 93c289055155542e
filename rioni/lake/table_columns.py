"""The columns of a table: how those that an event type has now are put into those that the table has already.

The type of a column never changes, since neither Delta nor Iceberg widens integers to numbers or numbers to text in a
table with rows. What no longer fits gets a further column, `amount__2` after `amount`; an event has a value in one.
"""

from collections.abc import Mapping, Sequence
from itertools import count
from typing import NamedTuple

import pyarrow as pa

from rioni.lake.columns import DOC, evolve, marked
from rioni.lake.table import plain_schema


class Column(NamedTuple):
    """A column of a table."""

    field: str
    """The member of the event."""
    name: str
    """What the column is called in the table."""
    type: pa.DataType


def merged(versions: Sequence[pa.Schema]) -> pa.Schema:
    """The columns that hold the events of all versions of a schema, the oldest first."""
    first, *others = versions
    for each in others:
        first = evolve(first, each)
    return plain_schema(first)


def place_columns(table: pa.Schema | None, events: pa.Schema) -> list[Column]:
    """Choose the column of a table for each column of the events.

    Args:
        table: what the table has; None where there is no table yet.
        events: what the events have.

    Returns:
        A column for each one of the events, of a type that the table has, or that adds fields to it, or a new one.
    """
    known = {each.name.lower(): (each.name, each.type) for each in table or ()}
    columns = []
    for each in events:
        column = _place(known, each)
        # Most engines do not tell names apart by their case.
        known[column.name.lower()] = (column.name, pa.null())
        columns.append(column)
    return columns


def _place(known: Mapping[str, tuple[str, pa.DataType]], field: pa.Field) -> Column:
    for number in count(1):
        name = field.name if number == 1 else f"{field.name}__{number}"
        found, has = known.get(name.lower(), (None, None))
        if found is None:
            return Column(field.name, name, field.type)
        if found == name and not pa.types.is_null(has):
            both = _widened(has, field.type)
            if _only_adds(has, both):
                return Column(field.name, name, both)
    raise AssertionError


def _widened(has: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    both = evolve(pa.schema([pa.field("x", has)]), pa.schema([pa.field("x", wanted)]))
    return plain_schema(both).field(0).type


def _only_adds(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether a type differs from an older one only by further fields of structs."""
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        return all(
            new.get_field_index(each.name) >= 0 and _only_adds(each.type, new.field(each.name).type) for each in old
        )
    if pa.types.is_list(old) and pa.types.is_list(new):
        return _only_adds(old.value_type, new.value_type)
    return bool(old == new)


def shaped(
    rows: pa.RecordBatch, columns: Sequence[Column], table: pa.Schema | None, own: Mapping[str, pa.Array]
) -> pa.Table:
    """Rename columns to those of a table, and add those that only the table has, without values.

    Args:
        rows: with the columns by their field, each of the type that `columns` says.
        columns: where they belong.
        table: what the table has; None where there is no table yet.
        own: columns of the archive itself.
    """
    kinds = {each.name: each.type for each in (*(table or ()), *columns)}
    stored = {each.name: each for each in marked(pa.schema(list(kinds.items())), DOC)}
    found = {each.name: rows.column(each.field) for each in columns} | dict(own)
    for each in table or ():
        if each.name not in found:
            found[each.name] = pa.nulls(rows.num_rows, stored[each.name].type)
    known = [each.name for each in table or ()]
    names = [*known, *(name for name in found if name not in set(known))]
    fields = [stored.get(name, pa.field(name, found[name].type)) for name in names]
    return pa.table([found[name] for name in names], schema=pa.schema(fields))
