"""Reads a range of a partition over HTTP, as Arrow batches; runs in the tasks of Spark."""

import time
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from rioni.domain.errors import Unavailable
from rioni.domain.timelines.position import TimelinePosition
from rioni.lake.broker import Batch, Broker, TooManyStreams, place
from rioni.lake.columns import CORRUPT, OFFSET, PARTITION
from rioni.lake.json_reader import read_batch
from rioni.spark.options import Options
from rioni.spark.ranges import Range


ROWS = 5_000
"""Rows of an Arrow batch."""
RETRY_S = 0.2
EVENT_TYPE = "_event_type"

Located = tuple[TimelinePosition, bytes]


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
        is_wanted: whether to keep the event at a place; by default all are kept.

    Raises:
        Incomplete: events have expired, the broker ended the stream early, or the time was up.
        Unavailable: the broker does not answer, or refuses.
    """
    own = {OFFSET, PARTITION, CORRUPT, EVENT_TYPE}
    kept = [each for each in schema if each.name not in own]
    columns = pa.schema([*kept, *((name, pa.string()) for name in (PARTITION, OFFSET, CORRUPT))])
    rows: list[tuple[str, str, bytes]] = []
    for at, event in _events(options, part):
        if is_wanted is not None and not is_wanted(at):
            continue
        rows.append((part.partition, at.offset, event))
        if len(rows) == ROWS:
            yield _batch(schema, columns, part.event_type, rows)
            rows = []
    if rows:
        yield _batch(schema, columns, part.event_type, rows)


def _batch(
    schema: pa.Schema, columns: pa.Schema, event_type: str, rows: Sequence[tuple[str, str, bytes]]
) -> pa.RecordBatch:
    found = read_batch(columns, rows)
    named = {each.name: found.column(each.name) for each in columns}
    named[EVENT_TYPE] = pa.repeat(pa.scalar(event_type), len(rows))
    return pa.record_batch([named[each.name] for each in schema], schema=schema)


def _events(options: Options, part: Range) -> Iterator[Located]:
    broker, deadline = options.broker(), time.monotonic() + options.timeout_s
    after = part.after
    while after < part.to:
        try:
            for found, last in _stream(broker, options, part, after, deadline):
                yield from found
                after = last
        except TooManyStreams:
            # The broker limits the streams of a client on one partition: other tasks have them.
            if time.monotonic() + RETRY_S > deadline:
                raise
            time.sleep(RETRY_S)


def _stream(
    broker: Broker, options: Options, part: Range, after: TimelinePosition, deadline: float
) -> Iterator[tuple[Sequence[Located], TimelinePosition]]:
    """The events of a stream, with the place up to which they are complete; the last one is the end of the range."""
    count = broker.distance(part.event_type, part.partition, after, part.to) if after != part.after else part.count
    delivered = 0
    with broker.stream(part.event_type, part.partition, after, count, keep_alives=options.quiet_s) as batches:
        for quiet, batch in _with_quiet(batches):
            if time.monotonic() > deadline:
                raise Incomplete(f"{part} was not read within {options.timeout_s} s; see the option timeout_s.")
            if batch.expired:
                raise Incomplete(f"{batch.expired} events of {part} have expired before they were read.")
            if not batch.events:
                if batch.info.debug:
                    raise Incomplete(f"The broker ended the stream of {part}: {batch.info.debug}.")
                if quiet >= options.quiet_s:
                    # The rest of the range has no events: deletions, compaction, events for others.
                    yield (), part.to
                    return
                continue
            last = place(batch.cursor.offset)
            found = _located(broker, part, after, last, batch)
            delivered += len(found)
            # The end of a timeline is the same place as the beginning of the next one, and the less of the two.
            complete = part.to if delivered == count else min(last, part.to)
            yield [each for each in found if each[0] <= part.to], complete
            after = last
            if last >= part.to or delivered == count:
                return
    raise Incomplete(f"The stream of {part} ended at {after.offset}, before its end.")


def _with_quiet(batches: Iterator[Batch]) -> Iterator[tuple[int, Batch]]:
    """Each batch with the number of batches without events up to it."""
    quiet = 0
    for batch in batches:
        quiet = 0 if batch.events else quiet + 1
        yield quiet, batch


def _located(
    broker: Broker, part: Range, before: TimelinePosition, last: TimelinePosition, batch: Batch
) -> Sequence[Located]:
    """The events of a batch with their places; the batch itself names only that of the last one."""
    count = len(batch.events)
    if count == 1:
        return [(last, bytes(batch.events[0]))]
    if last.order == before.order and last.position - before.position == count:
        first = before.position + 1
        return [(TimelinePosition(last.order, first + n), bytes(each)) for n, each in enumerate(batch.events)]
    # Some positions have no events, or a timeline ends in between: read them again, one by one.
    found = []
    with broker.stream(part.event_type, part.partition, before, count, alone=True) as batches:
        for single in batches:
            found += [(place(single.cursor.offset), bytes(event)) for event in single.events]
    if len(found) != count:
        raise Incomplete(f"Events of {part} behind {before.offset} were removed while they were read; read again.")
    return found
