"""Reads a range of a partition over HTTP, as Arrow batches; runs in the tasks of Spark."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import datetime

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from rioni.client import ClientError, TooManyRequests, ranges
from rioni.client.ranges import Place, RangePart
from rioni.client.retries import Patience
from rioni.domain.errors import Invalid, Unavailable
from rioni.lake.columns import CORRUPT, JSON, OFFSET, PARTITION, marked
from rioni.lake.json_reader import read_batch
from rioni.lake.rows import misfit
from rioni.spark.options import SourceOptions
from rioni.spark.places import ReadRange


# --- Columns of Spark that hold JSON: their fields are marked, from reading to writing ---

IS_JSON = "rioni.json"
"""The member in the metadata of a column made by the source which marks its texts as JSON."""
MARK = {"SPARK::metadata::json": json.dumps({IS_JSON: True})}
"""The mark of such a column in Arrow's metadata, as PySpark expects it."""


def spark_schema(columns: pa.Schema) -> StructType:
    """Columns for Spark: JSON is text with a mark."""
    return from_arrow_schema(marked(columns, MARK))


def arrow_columns(schema: StructType) -> pa.Schema:
    """Columns of Spark: marked text is JSON."""
    return pa.schema([_field(each) for each in to_arrow_schema(schema, timezone="UTC")])


def has_marks(columns: pa.Schema) -> bool:
    """Whether there is JSON, so that the columns are not those of a user."""
    return any(each.type == JSON for each in columns)


def as_declared(columns: pa.Schema, declared: pa.Schema) -> pa.Schema:
    """Columns that a user has named, with texts marked as JSON if they would be so without the user."""
    return pa.schema([_as_declared(each, declared) for each in columns])


def _as_declared(field: pa.Field, declared: pa.Schema | pa.StructType) -> pa.Field:
    if (index := declared.get_field_index(field.name)) < 0:
        return field
    return pa.field(field.name, _type_as_declared(field.type, declared.field(index).type))


def _type_as_declared(kind: pa.DataType, declared: pa.DataType) -> pa.DataType:
    if pa.types.is_string(kind):
        return declared if declared == JSON else kind
    if pa.types.is_struct(kind) and pa.types.is_struct(declared):
        return pa.struct([_as_declared(each, declared) for each in kind])
    if pa.types.is_list(kind) and pa.types.is_list(declared):
        return pa.list_(_type_as_declared(kind.value_type, declared.value_type))
    return kind


def _field(field: pa.Field) -> pa.Field:
    marks = json.loads((field.metadata or {}).get(b"SPARK::metadata::json", b"{}"))
    return pa.field(field.name, JSON if marks.get(IS_JSON) and pa.types.is_string(field.type) else _type(field.type))


def _type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([_field(each) for each in kind])
    if pa.types.is_map(kind):
        return pa.map_(_type(kind.key_type), _type(kind.item_type))
    return pa.list_(_type(kind.value_type)) if pa.types.is_list(kind) else kind


ROWS = 5_000
"""Rows of an Arrow batch, or a few more."""
RETRY_S = 0.2
EVENT_TYPE = "_event_type"

_DIGITS = len(Place(1, 0).offset.rpartition("-")[2])


class Incomplete(Unavailable):
    """A range could not be read to its end."""


class _TaskPatience(Patience):
    """The broker limits the streams of a client on one partition: a task waits while other tasks have them."""

    def __init__(self, sleep: Callable[[float], object], retry_s: float, deadline_s: float) -> None:
        super().__init__(sleep, retry_s=retry_s)
        self._deadline_s = deadline_s

    def failed(self, ex: ClientError | None = None) -> None:
        """Wait before the next attempt; raises the error after the deadline, or as `Patience`."""
        if not isinstance(ex, TooManyRequests):
            super().failed(ex)
        elif time.monotonic() + RETRY_S > self._deadline_s:
            raise ex
        else:
            self._sleep(RETRY_S)


def read_range(
    options: SourceOptions, schema: pa.Schema, part: ReadRange, is_wanted: Callable[[Place], bool] | None = None
) -> Iterator[pa.RecordBatch]:
    """Read the events of a range.

    Args:
        options: of the source.
        schema: the columns wanted.
        part: what to read.
        is_wanted: whether a place is within bounds, which have no gaps; by default all are.

    Raises:
        Invalid: an event does not fit the columns, and `_corrupt` is not among them.
        Incomplete: events have expired, or the time was up.
        ClientError: the broker does not answer, or refuses, or has another event type of that name now.
    """
    pieces: list[RangePart] = []
    count = 0
    deadline_s = time.monotonic() + options.timeout_s
    with options.client() as client:
        reader = ranges.Reader(
            client,
            part.event_type,
            created_at=datetime.fromisoformat(part.created_at),
            quiet_max=options.quiet_s,
            patience=lambda: _TaskPatience(client.pause, client.retry_s, deadline_s),
        )
        with closing(reader.read(ranges.Range(part.partition, part.after, part.to, part.count))) as reading:
            for found in reading:
                _check_complete(part, found, options.timeout_s, deadline_s)
                piece = found if is_wanted is None else _within(found, is_wanted)
                if piece.events:
                    pieces.append(piece)
                    count += len(piece.events)
                if count >= ROWS:
                    yield _batch(schema, part, pieces)
                    pieces, count = [], 0
        if pieces:
            yield _batch(schema, part, pieces)
        reader.check_identity()


def _check_complete(part: ReadRange, found: RangePart, timeout_s: int, deadline_s: float) -> None:
    if time.monotonic() > deadline_s:
        raise Incomplete(f"{part} was not read within {timeout_s} s; see the option timeout_s.")
    if found.expired:
        raise Incomplete(f"{found.expired} events of {part} have expired before they were read.")
    if found.removed:
        raise Incomplete(
            f"Events of {part} before {found.read_to.offset} were removed while they were read; read again."
        )


def _within(piece: RangePart, is_wanted: Callable[[Place], bool]) -> RangePart:
    """The events of a piece whose places are within bounds."""
    wanted = [number for number in range(len(piece.events)) if is_wanted(piece.place(number))]
    if not wanted:
        return piece._replace(events=())
    return piece._replace(first=piece.place(wanted[0]), events=piece.events[wanted[0] : wanted[-1] + 1])


def _offsets(piece: RangePart) -> pa.Array:
    """The offsets of the events, as texts."""
    # PERF: one by one takes as long as half of the JSON.
    begin, first = piece.first.offset[:-_DIGITS], piece.first.position
    numbers = pa.array(range(first, first + len(piece.events)), pa.int64()).cast(pa.string())
    return pc.binary_join_element_wise(begin, pc.utf8_lpad(numbers, _DIGITS, "0"), "")


def _batch(schema: pa.Schema, part: ReadRange, pieces: Sequence[RangePart]) -> pa.RecordBatch:
    own = {OFFSET, PARTITION, CORRUPT, EVENT_TYPE}
    columns = [each for each in schema if each.name not in own]
    columns += [pa.field(name, pa.string()) for name in (PARTITION, OFFSET, CORRUPT)]
    offsets = pa.concat_arrays([_offsets(piece) for piece in pieces])
    events = [event for piece in pieces for event in piece.events]
    found = read_batch(pa.schema(columns), part.partition, offsets, events, MARK)
    named = {each.name: found.column(each.name) for each in found.schema}
    if CORRUPT not in schema.names:
        _check_fits(found, pa.schema(columns), events)
    named[EVENT_TYPE] = pa.repeat(pa.scalar(part.event_type), len(events))
    return pa.record_batch([named[each.name] for each in schema], schema=marked(schema, MARK))


def _check_fits(found: pa.RecordBatch, columns: pa.Schema, events: Sequence[msgspec.Raw]) -> None:
    """Check that all events fit: without a column for those that do not, they would be rows of nulls."""
    if found.column(CORRUPT).null_count == found.num_rows:
        return
    for number, corrupt in enumerate(found.column(CORRUPT)):
        if corrupt.is_valid:
            raise Invalid(
                f"The event at {found.column(OFFSET)[number]} of partition {found.column(PARTITION)[number]} does not "
                f"fit the schema of the query: {misfit(columns, bytes(events[number]))}. Read that column as another "
                f"type, or add {CORRUPT} string to get such events there."
            )
