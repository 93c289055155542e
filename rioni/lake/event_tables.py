"""The two tables of an event type: the events by their columns, and in quarantine those that do not fit.

The quarantine is committed first. If the process dies between the two commits, its rows are known by their
offsets: they are after those of the first table.
"""

from collections.abc import Mapping, Sequence
from datetime import date
from itertools import count
from typing import NamedTuple

import pyarrow as pa

from rioni.client import Client, EventType
from rioni.client.ranges import check_identity
from rioni.domain.errors import Conflict
from rioni.lake.columns import CORRUPT, DOC, event_schema, evolve, marked
from rioni.lake.reader import Read, RowBuffer, created_at_ms, schema_versions
from rioni.lake.rows import misfit, record_batch
from rioni.lake.table import DAY, EVENTS, QUARANTINE, Lake, TableProgress, plain_schema


# --- The columns of a table: those that an event type has now, mapped to those that the table has ---
#
# The type of a column never changes, since neither Delta nor Iceberg widens integers to numbers or numbers to text in a
# table with rows. A value that no longer fits gets a further column, `amount__2` after `amount`; an event has a value
# in one.


class TableColumn(NamedTuple):
    """A column of a table."""

    field: str
    """The member of the event."""
    name: str
    """The name of the column in the table."""
    type: pa.DataType


def merged(versions: Sequence[pa.Schema]) -> pa.Schema:
    """The columns that hold the events of all versions of a schema, the oldest first."""
    first, *others = versions
    for each in others:
        first = evolve(first, each)
    return plain_schema(first)


def place_columns(table: pa.Schema | None, events: pa.Schema) -> list[TableColumn]:
    """Choose the column of a table for each column of the events.

    Args:
        table: the columns of the table; None if there is no table yet.
        events: the columns of the events.

    Returns:
        A column for each one of the events, of a type that the table has, or that adds fields to it, or a new one.
    """
    known = {each.name.lower(): (each.name, each.type) for each in table or ()}
    columns = []
    for each in events:
        column = _place(known, each)
        # Most engines do not distinguish names by case.
        known[column.name.lower()] = (column.name, pa.null())
        columns.append(column)
    return columns


def _place(known: Mapping[str, tuple[str, pa.DataType]], field: pa.Field) -> TableColumn:
    for number in count(1):
        name = field.name if number == 1 else f"{field.name}__{number}"
        found, has = known.get(name.lower(), (None, None))
        if found is None:
            return TableColumn(field.name, name, field.type)
        if found == name and not pa.types.is_null(has):
            both = _widened(has, field.type)
            if _only_adds(has, both):
                return TableColumn(field.name, name, both)
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
    rows: pa.RecordBatch, columns: Sequence[TableColumn], table: pa.Schema | None, own: Mapping[str, pa.Array]
) -> pa.Table:
    """Rename columns to those of a table, and add those that only the table has, without values.

    Args:
        rows: with the columns by their field, each of the type in `columns`.
        columns: those to which they belong.
        table: the columns of the table; None if there is no table yet.
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


JSON = "_event"
"""The JSON of events, in the table of events if it is wanted."""
QUARANTINE_COLUMNS = pa.schema(
    [
        pa.field("event_type", pa.string()),
        pa.field("partition", pa.string()),
        pa.field("offset", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("event", pa.string()),
        pa.field(DAY, pa.date32()),
    ]
)


class EventTables:
    """The tables of an event type as they were when they were opened."""

    def __init__(self, lake: Lake, client: Client, event_type: EventType, *, keeps_json: bool) -> None:
        """Open both tables.

        Args:
            lake: where they are.
            client: of the broker, to ask for schemas.
            event_type: whose tables.
            keeps_json: whether to add the JSON of each event.

        Raises:
            Conflict: they are of another event type that had the same name.
            Unavailable: the lake can't be read.
        """
        self._client, self._event_type, self._keeps_json = client, event_type, keeps_json
        self._created_at_ms = created_at_ms(event_type)
        self._events = lake.open(EVENTS, event_type.name)
        self._quarantine = lake.open(QUARANTINE, event_type.name)
        stored_ms, places = self._events.progress
        self.places = dict(places)
        if stored_ms not in {None, self._created_at_ms}:
            raise Conflict(
                f"The table of {event_type.name} has events of an event type of this name that was deleted. "
                "Archive to another place, or move that table away, and that of its quarantine."
            )
        self._quarantined = self._unfinished()

    def _unfinished(self) -> set[tuple[str, str]]:
        """The rows that were quarantined by a process that died before it committed the events between."""
        stored_ms, places = self._quarantine.progress
        if stored_ms not in {None, self._created_at_ms}:
            raise Conflict(
                f"The quarantine of {self._event_type.name} has events of an event type of this name that was "
                "deleted. Archive to another place, or move that table away."
            )
        if all(name in self.places and place <= self.places[name] for name, place in places.items()):
            return set()
        return self._quarantine.keys_behind(self.places)

    def commit(self, buffer: RowBuffer) -> int:
        """Append events, and return how many of them are in quarantine.

        Raises:
            WriterConflict: another process has written to one of the tables.
            Unavailable: the lake can't be written to.
            ClientError: the broker can't be asked for its schemas.
            RangeError: the event type was deleted and created again meanwhile.
        """
        places = {**self.places, **buffer.places}
        progress = TableProgress(self._created_at_ms, places)
        new = [each for each in buffer.events if (each.partition, each.place.offset) not in self._quarantined]
        rows, misfits = self._rows(new)
        # Afterwards: from here on, events and schemas are known to be of this event type.
        check_identity(self._client, self._event_type.name, self._event_type.created_at)
        if misfits:
            self._quarantine.append(_quarantine_rows(self._event_type.name, misfits), progress)
        self._events.append(rows, progress)
        self.places = places
        return len(misfits) + len(buffer.events) - len(new)

    def expire(self, before: date) -> None:
        """Remove the rows of all days before this one."""
        self._events.expire(before)
        self._quarantine.expire(before)

    def _rows(self, events: Sequence[Read]) -> tuple[pa.Table, list[tuple[Read, str]]]:
        """The rows of the events that fit the columns, and the events that do not, with the reason.

        The schemas are those of this moment: later than the events, so that none of their fields is missing.
        """
        table, category = self._events.schema, self._event_type.category
        versions = schema_versions(self._client, self._event_type.name)
        schema = merged([event_schema(kind, text, category) for kind, text in versions])
        # A member with the name of a column of the archive is in `_rest`.
        taken = {CORRUPT, DAY, JSON} if self._keeps_json else {CORRUPT, DAY}
        fields = pa.schema([each for each in schema if each.name.lower() not in taken])
        columns = place_columns(table, fields)
        written = pa.schema([*(pa.field(each.field, each.type) for each in columns), schema.field(CORRUPT)])
        batch = record_batch(written, [(each.partition, each.place.offset, each.event) for each in events])
        fits = batch[CORRUPT].is_null()
        misfits = [each for each, fit in zip(events, fits.to_pylist(), strict=True) if not fit]
        own = {DAY: pa.array([each.day for each in events], pa.date32())}
        if self._keeps_json:
            own[JSON] = pa.array([each.event.decode() for each in events], pa.string())
        rows = shaped(batch, columns, table, own)
        reasons = [misfit(written, each.event) for each in misfits]
        return (rows.filter(fits) if misfits else rows), list(zip(misfits, reasons, strict=True))


def _quarantine_rows(event_type: str, misfits: Sequence[tuple[Read, str]]) -> pa.Table:
    rows = [
        (event_type, each.partition, each.place.offset, reason, each.event.decode(), each.day)
        for each, reason in misfits
    ]
    columns = zip(*rows, strict=True)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, QUARANTINE_COLUMNS, strict=True)]
    return pa.Table.from_arrays(arrays, schema=QUARANTINE_COLUMNS)
