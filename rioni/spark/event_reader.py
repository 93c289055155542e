"""Reads a range of a partition over HTTP, as Arrow batches; runs in the tasks of Spark."""

import json
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from rioni.domain.errors import Invalid, Unavailable
from rioni.domain.timelines.position import TimelinePosition, format_offset
from rioni.lake.broker import Batch, Broker, place
from rioni.lake.columns import CORRUPT, JSON, OFFSET, PARTITION, marked
from rioni.lake.json_reader import read_batch
from rioni.lake.rows import misfit
from rioni.spark.options import Options
from rioni.spark.places import Range
from rioni.tools.api_client import RequestRefused


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

_TOO_MANY_REQUESTS = 429

_DIGITS = len(format_offset(1, 0).rpartition("-")[2])


class Run(NamedTuple):
    """Events at consecutive positions of a timeline."""

    first: TimelinePosition
    events: Sequence[msgspec.Raw]

    def within(self, is_wanted: Callable[[TimelinePosition], bool]) -> "Run":
        """The events whose places are within bounds."""
        order, position = self.first.order, self.first.position
        wanted = [n for n in range(len(self.events)) if is_wanted(TimelinePosition(order, position + n))]
        if not wanted:
            return Run(self.first, ())
        return Run(TimelinePosition(order, position + wanted[0]), self.events[wanted[0] : wanted[-1] + 1])

    def offsets(self) -> pa.Array:
        """The offsets of the events, as texts."""
        # PERF: one by one takes as long as half of the JSON.
        first = self.first.position
        numbers = pa.array(range(first, first + len(self.events)), pa.int64()).cast(pa.string())
        prefix = format_offset(self.first.order, 0).rpartition("-")[0]
        return pc.binary_join_element_wise(prefix, pc.utf8_lpad(numbers, _DIGITS, "0"), "-")


class Incomplete(Unavailable):
    """A range could not be read to its end."""


def read_range(
    options: Options, schema: pa.Schema, part: Range, is_wanted: Callable[[TimelinePosition], bool] | None = None
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
        Unavailable: the broker does not answer, or refuses, or has another event type of that name now.
    """
    runs: list[Run] = []
    count = 0
    for found in _events(options, part):
        run = found.within(is_wanted) if is_wanted is not None else found
        if run.events:
            runs.append(run)
            count += len(run.events)
        if count >= ROWS:
            yield _batch(schema, part, runs)
            runs, count = [], 0
    if runs:
        yield _batch(schema, part, runs)
    options.broker().check_identity(part.event_type, part.created_at)


def _batch(schema: pa.Schema, part: Range, runs: Sequence[Run]) -> pa.RecordBatch:
    own = {OFFSET, PARTITION, CORRUPT, EVENT_TYPE}
    columns = [each for each in schema if each.name not in own]
    columns += [pa.field(name, pa.string()) for name in (PARTITION, OFFSET, CORRUPT)]
    offsets = pa.concat_arrays([run.offsets() for run in runs])
    events = [event for run in runs for event in run.events]
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


def _events(options: Options, part: Range) -> Iterator[Run]:
    broker, deadline = options.broker(), time.monotonic() + options.timeout_s
    after = part.after
    while after < part.to:
        try:
            for found, last in _stream(broker, options, part, after, deadline):
                yield from found
                after = last
        except RequestRefused as ex:
            # The broker limits the streams of a client on one partition: other tasks have them.
            if ex.problem.status != _TOO_MANY_REQUESTS or time.monotonic() + RETRY_S > deadline:
                raise
            time.sleep(RETRY_S)


def _stream(
    broker: Broker, options: Options, part: Range, after: TimelinePosition, deadline: float
) -> Iterator[tuple[Sequence[Run], TimelinePosition]]:
    """The events of a stream, with the place up to which they are complete; the last one is the end of the range."""
    count = broker.distance(part.event_type, part.partition, after, part.to) if after != part.after else part.count
    delivered = 0
    with _opened(broker, part, after, count, keep_alives=options.quiet_s) as batches:
        for batch in batches:
            if time.monotonic() > deadline:
                raise Incomplete(f"{part} was not read within {options.timeout_s} s; see the option timeout_s.")
            if batch.expired:
                raise Incomplete(f"{batch.expired} events of {part} have expired before they were read.")
            last = place(batch.cursor.offset)
            found = _located(broker, part, after, last, batch)
            delivered += len(batch.events)
            # The end of a timeline is the same place as the beginning of the next one, and the less of the two.
            complete = part.to if delivered == count else min(last, part.to)
            yield [run.within(part.to.__ge__) for run in found] if last > part.to else found, complete
            after = last
            if last >= part.to or delivered == count:
                return
    # The rest of the range has no events: deletions, compaction, events for others.
    yield (), part.to


def _opened(
    broker: Broker, part: Range, after: TimelinePosition, count: int, **wanted: Any
) -> closing[Generator[Batch, None, None]]:
    return broker.stream(part.event_type, part.created_at, part.partition, after, count, waits=False, **wanted)


def _located(broker: Broker, part: Range, before: TimelinePosition, last: TimelinePosition, batch: Batch) -> list[Run]:
    """The events of a batch with their places; the batch itself names only that of the last one."""
    count = len(batch.events)
    if count == 1 or (last.order == before.order and last.position - before.position == count):
        return [Run(TimelinePosition(last.order, last.position - count + 1), batch.events)]
    # Some positions have no events, or a timeline ends in between: read them again, one by one.
    found = []
    with _opened(broker, part, before, count, alone=True) as batches:
        for single in batches:
            found += [Run(place(single.cursor.offset), [event]) for event in single.events]
    if len(found) != count:
        raise Incomplete(f"Events of {part} behind {before.offset} were removed while they were read; read again.")
    return found
