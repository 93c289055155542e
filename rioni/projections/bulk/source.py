"""The internal log for Spark: ranges of positions, read as Arrow batches, their hash chain checked.

Executors import this module: it needs neither SQLAlchemy nor a JDBC driver, only the database's own client.
"""

import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import pairwise
from math import ceil
from typing import Any, NamedTuple
from urllib.parse import quote

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import substring
from pyspark.sql.pandas.types import from_arrow_schema

from rioni.domain.errors import RioniError
from rioni.domain.hash_chain import GENESIS, LogHead, follows


ENTRIES_PER_RANGE = 50_000
"""Enough that starting a task does not count, few enough that a range fits into memory several times."""

PREFIX_DIGITS = 3
"""Of a stream's id: 4,096 groups of streams are spread over the partitions."""

ENTRIES_PER_BATCH = 2_000
"""A schema may have 256 kB: 10,000 of them in one batch would be too much."""

LOG_SCHEMA = pa.schema(
    [
        pa.field("position", pa.int64(), nullable=False),
        pa.field("stream", pa.string(), nullable=False),
        pa.field("version", pa.int32(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("recorded_at", pa.string(), nullable=False),
        pa.field("actor", pa.string(), nullable=False),
        pa.field("client", pa.string(), nullable=False),
        pa.field("flow_id", pa.string(), nullable=False),
        pa.field("command_id", pa.string(), nullable=False),
        pa.field("data", pa.binary(), nullable=False),
    ]
)
"""The columns of the log without the hash, which is checked on reading and not needed afterwards."""


class CorruptLog(RioniError):
    """The log is not the one that was written; the detail names the position where it begins to differ."""


class Database(NamedTuple):
    """Where the log is, in the words of the database's own client."""

    kind: str
    """`sqlite` or `postgresql`."""
    address: str
    """A file's path, or a libpq URI."""


def read_head(database: Database) -> LogHead:
    """The end of the log. Blocks on the database.

    Raises:
        CorruptLog: head names another entry than the last one, so that the log's tail is missing.
    """
    with closing(connect(database)) as connection:
        cursor = connection.cursor()
        row = cursor.execute("SELECT position, hash FROM head").fetchone()
    return LogHead(0, GENESIS) if row is None else LogHead(row[0], bytes(row[1]))


def read_log(spark: SparkSession, database: Database, head: LogHead) -> DataFrame:
    """The log from its first entry to `head`, columns as in `LOG_SCHEMA`; read when an action asks for it."""
    # PERF: Spark starts three Python processes for a data source in Python, one after the other: four seconds.
    begins = spark.range(0, head.position, ENTRIES_PER_RANGE, max(1, ranges(head)))
    return begins.mapInArrow(partial(read_ranges, database=database, head=head), from_arrow_schema(LOG_SCHEMA))


def ranges(head: LogHead) -> int:
    """In how many ranges the log is read, each by a task of its own."""
    return ceil(head.position / ENTRIES_PER_RANGE)


def read_ranges(begins: Iterable[pa.RecordBatch], *, database: Database, head: LogHead) -> Iterator[pa.RecordBatch]:
    """Read the ranges that begin behind the given positions: the function that Spark maps."""
    for batch in begins:
        for after in batch.column(0).to_pylist():
            yield from read_range(database, after, min(after + ENTRIES_PER_RANGE, head.position), head)


def record_batch(schema: pa.Schema, columns: Iterable[Sequence[Any]]) -> pa.RecordBatch:
    """Columns as one Arrow batch."""
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def read_range(database: Database, begin: int, end: int, head: LogHead) -> Iterator[pa.RecordBatch]:
    """Read the entries behind position `begin` up to `end`, checking that each one continues the chain.

    The first entry is checked against the stored hash of its predecessor, which the range before has checked: together
    the ranges check the whole chain. Blocks on the database.

    Raises:
        CorruptLog: an entry is missing or is not what was written, or the log does not end as `head` says.
    """
    columns = ", ".join([*LOG_SCHEMA.names, "hash"])
    mark = "?" if database.kind == "sqlite" else "%s"
    query = f"SELECT {columns} FROM log WHERE position > {mark} AND position <= {mark} ORDER BY position"  # noqa: S608 - all names are ours
    with closing(connect(database)) as connection:
        cursor = connection.cursor()
        previous = _hash_at(cursor, begin, mark)
        steps = (*range(begin, end, ENTRIES_PER_BATCH), end)
        for after, upto in pairwise(steps):
            # One query per batch: no transaction stays open while Spark is busy elsewhere.
            rows = cursor.execute(query, (after, upto)).fetchall()
            previous = check_chain(rows, after, upto, previous)
            *values, _ = zip(*rows, strict=True)
            yield record_batch(LOG_SCHEMA, values)
        if end == head.position and previous != head.hash:
            raise CorruptLog(
                f"The log does not end as its head says: the entry at position {head.position} was replaced."
            )


def check_chain(rows: Sequence[Any], after: int, upto: int, previous: bytes) -> bytes:
    """Check that rows, columns as in `LOG_SCHEMA` and the hash, are the entries `after + 1` to `upto`.

    Args:
        rows: in the order of their positions.
        after: the position before the first row.
        upto: the position of the last row.
        previous: the hash at position `after`.

    Returns:
        The hash at position `upto`.

    Raises:
        CorruptLog: names the first position that is wrong.
    """
    expected = after
    for row in rows:
        expected += 1
        if row[0] != expected:
            raise CorruptLog(f"The log is damaged: the entry at position {expected} is missing.")
        if not follows(previous, row[:-1], row[-1]):
            raise CorruptLog(f"The log is damaged: the entry at position {expected} is not the one that was written.")
        previous = row[-1]
    if expected != upto:
        raise CorruptLog(f"The log is damaged: the entry at position {expected + 1} is missing.")
    return previous


def _hash_at(cursor: Any, position: int, mark: str) -> bytes:
    if position == 0:
        return GENESIS
    query = f"SELECT hash FROM log WHERE position = {mark}"  # noqa: S608 - as above
    row = cursor.execute(query, (position,)).fetchone()
    if row is None:
        raise CorruptLog(f"The log is damaged: the entry at position {position} is missing.")
    return bytes(row[0])


def connect(database: Database) -> Any:
    """A connection for reading, in the mode where every statement is its own transaction."""
    if database.kind == "sqlite":
        uri = f"file:{quote(database.address)}?mode=ro"
        return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=60)
    import psycopg  # noqa: PLC0415 - an extra: absent where everything is in SQLite

    return psycopg.connect(database.address, autocommit=True)


def sorted_log(spark: SparkSession, database: Database, head: LogHead) -> DataFrame:
    """The log as a fold needs it: every stream whole in one partition, in the order of its versions."""
    log = read_log(spark, database, head)
    # PERF: neighbours by stream id share a partition, so that their rows share the pages of an index.
    return log.repartition(partitions(spark, head), substring("stream", 1, PREFIX_DIGITS)).sortWithinPartitions(
        "stream", "version"
    )


def partitions(spark: SparkSession, head: LogHead) -> int:
    """How many partitions the streams are spread over."""
    return max(spark.sparkContext.defaultParallelism, ranges(head))


@contextmanager
def damage_named() -> Iterator[None]:
    """Turn the failure of a Spark job over a damaged log into the CorruptLog that an executor raised.

    Raises:
        CorruptLog: as the executor raised it.
    """
    try:
        yield
    except PySparkException as ex:
        # All that comes back from an executor is its traceback, as text.
        if (found := re.search(rf"{CorruptLog.__name__}: (.+)", str(ex))) is not None:
            raise CorruptLog(found[1]) from ex
        raise
