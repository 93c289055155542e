"""The port of the archive's tables: rows and the offsets up to which they are complete, in one atomic commit."""

from collections.abc import Mapping
from datetime import date
from typing import NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from rioni.client.ranges import Place
from rioni.domain.errors import RioniError
from rioni.lake.columns import DOC, JSON


EVENTS = "events"
QUARANTINE = "quarantine"
"""The two tables of an event type: its events, and those that do not fit the columns of the first one."""

DAY = "event_day"
"""The column by which tables are partitioned."""


class WriterConflict(RioniError):
    """Another process has written to the table since it was opened. Nothing was written."""


class TableProgress(NamedTuple):
    """The progress of a table, as it is stored with it."""

    created_at_ms: int | None
    """When the event type was created; None if there is no table yet."""
    places: Mapping[str, Place]
    """The last place of each partition whose events up to there are in the table."""


class Table(Protocol):
    """A table of one event type as it was when it was opened.

    All methods block on disk or network, and raise Unavailable where these fail.
    """

    @property
    def progress(self) -> TableProgress:
        """The places up to which the table is complete, after the last commit of this object."""

    @property
    def schema(self) -> pa.Schema | None:
        """The columns; None if there is no table yet."""

    def append(self, rows: pa.Table, progress: TableProgress) -> None:
        """Make the table if it does not exist, add new columns, and append rows, all or nothing.

        Args:
            rows: with all columns that the table has, of the same types, and perhaps further ones or further fields
                in a struct; may have no rows.
            progress: how far the table is complete with them.

        Raises:
            WriterConflict: another process has committed since this table was opened.
        """

    def keys_behind(self, places: Mapping[str, Place]) -> set[tuple[str, str]]:
        """The rows of a quarantine after these places, as pairs of partition and offset."""

    def expire(self, before: date) -> None:
        """Remove all rows of days before this one.

        Raises:
            WriterConflict: another process has committed since this table was opened.
        """


class Lake(Protocol):
    """The storage of the tables."""

    def open(self, kind: str, event_type: str) -> Table:
        """Open a table, which need not exist yet.

        Raises:
            Unavailable: it can't be read.
        """


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """A schema as formats give it back, with the types that were written: one type of text and lists, marks as JSON."""
    return pa.schema([_plain_field(each) for each in schema])


def _plain_field(field: pa.Field) -> pa.Field:
    is_json = (field.metadata or {}).get(b"doc") == DOC["doc"].encode()
    return pa.field(field.name, JSON if is_json else plain_type(field.type))


def plain_type(kind: pa.DataType) -> pa.DataType:
    """A type that a format gives back, as it was written: with one type of text, of bytes and of lists."""
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(plain_type(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([_plain_field(each) for each in kind])
    return kind


def keys_behind(keys: pa.Table, places: Mapping[str, Place]) -> set[tuple[str, str]]:
    """The keys after some places: all keys of a partition that has no place.

    Args:
        keys: columns `partition` and `offset`.
        places: by partition.
    """
    found = set()
    for name in pc.unique(keys["partition"]).to_pylist():
        offsets = keys.filter(pc.equal(keys["partition"], name))["offset"]
        # Offsets compare as the places do.
        after = places[name].offset if name in places else ""
        found |= {(name, offset) for offset in offsets.filter(pc.greater(offsets, after)).to_pylist()}
    return found
