"""The internal log for Spark: its streams, distributed over tasks, their hash chain checked.

Executors import this module: it needs neither SQLAlchemy nor a JDBC driver, only the database's own client.
"""

import re
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.utils import is_remote

from rioni.domain.hash_chain import GENESIS, LogHead
from rioni.projections.log_rows import LOG_COLUMNS, CorruptLog, LogRow, check_chain, check_entry


ENTRIES_PER_TASK = 50_000
"""Enough that starting a task does not count, few enough that its rows fit into memory several times."""

PREFIX_DIGITS = 3
PREFIXES: int = 16**PREFIX_DIGITS
"""A task reads the streams whose ids begin with some of these hexadecimal prefixes."""

ENTRIES_PER_READ = 2_000
"""A schema may have 256 kB: 10,000 of them at once would be too much."""

MapTask = Callable[[int, Iterable[LogRow]], Iterator[pa.RecordBatch]]
"""Called with the number of a task and the entries of its streams."""

TASKS_ELSEWHERE = 8
"""The minimum number of tasks with Spark Connect, which does not report how many run at once."""


class Database(NamedTuple):
    """The location of the log, in the terms of the database's own client."""

    kind: str
    """`sqlite` or `postgresql`."""
    address: str
    """A file's path, or a libpq URI."""


def read_head(database: Database, position: int | None = None) -> LogHead:
    """The end of the log, or of its first entries. Blocks on the database.

    Args:
        database: which holds the log.
        position: the position of the entry that is to count as the last one.

    Raises:
        CorruptLog: the entry at this position is missing.
    """
    with closing(connect(database)) as connection:
        cursor = connection.cursor()
        if position is None:
            row = cursor.execute("SELECT position, hash FROM head").fetchone()
        else:
            query = f"SELECT position, hash FROM log WHERE position = {_mark(database)}"  # noqa: S608 - constants
            row = cursor.execute(query, (position,)).fetchone()
    if row is None and position:
        raise CorruptLog(f"The log is damaged: the entry at position {position} is missing.")
    return LogHead(0, GENESIS) if row is None else LogHead(row[0], bytes(row[1]))


def map_log(
    spark: SparkSession,
    database: Database,
    head: LogHead,
    function: MapTask,
    schema: pa.Schema,
    *,
    count: int | None = None,
    skip: Collection[int] = (),
) -> DataFrame:
    """Let tasks map the log up to `head`, each of them some whole streams, each stream in the order of its versions.

    Every entry is checked against the stored hash of the entry before it: together the tasks check the whole chain.
    Blocks on the database for a moment; the tasks run when an action asks for the rows.

    Args:
        spark: the session.
        database: which holds the log.
        head: the end of the log.
        function: called once in each task, with the task's number and the entries of its streams.
        schema: the schema of the batches that the function yields.
        count: the number of tasks; by default the result of `tasks`.
        skip: the numbers of tasks that are done already.

    Raises:
        CorruptLog: the log does not end with `head`; while it runs: an entry is missing, or is not what was written.
    """
    check_end(database, head)
    count = count or tasks(spark, head)
    # PERF: Spark starts three Python processes for a data source in Python, one after the other: four seconds.
    numbers = spark.range(0, count, 1, count)
    if skip:
        numbers = numbers.where(~numbers.id.isin([*skip]))
    run = partial(map_task, count=count, database=database, head=head, function=function)
    return numbers.mapInArrow(run, from_arrow_schema(schema))


def count_entries(spark: SparkSession, database: Database, head: LogHead) -> int:
    """Read the log up to `head` and check its hash chain, in parallel; return how many entries were found. Blocks.

    Raises:
        CorruptLog: as `map_log`.
    """
    counted = map_log(spark, database, head, _count, COUNT_SCHEMA).agg(f.sum("entries")).first()
    return 0 if counted is None else counted[0] or 0


COUNT_SCHEMA = pa.schema([("entries", pa.int64())])


def _count(_number: int, log: Iterable[LogRow]) -> Iterator[pa.RecordBatch]:
    yield record_batch(COUNT_SCHEMA, [[sum(1 for _ in log)]])


def copy_log(database: Database, head: LogHead, path: Path) -> Database:
    """Copy the log up to `head` into an SQLite file that doesn't change, for executors on other machines. Blocks."""
    path.unlink(missing_ok=True)
    with closing(connect(database)) as connection:
        connection.execute("ATTACH ? AS copy", (f"file:{quote(str(path))}?mode=rwc",))
        connection.execute("PRAGMA copy.journal_mode=OFF")
        columns = ", ".join((*LOG_COLUMNS, "hash"))
        connection.execute(f"CREATE TABLE copy.log ({columns}, PRIMARY KEY (position))")
        connection.execute(f"INSERT INTO copy.log SELECT {columns} FROM log WHERE position <= ?", (head.position,))  # noqa: S608 - constants
        connection.execute("CREATE UNIQUE INDEX copy.streams ON log (stream, version)")
    return Database("sqlite", str(path.resolve()))


def map_task(
    numbers: Iterable[pa.RecordBatch],
    *,
    count: int,
    database: Database,
    head: LogHead,
    function: MapTask,
) -> Iterator[pa.RecordBatch]:
    """Read the streams of some of the `count` tasks: the function that Spark maps."""
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            begin, end = (prefix(each * PREFIXES // count) for each in (number, (number + 1) % count))
            yield from function(number, read_streams(database, begin, end, head))


def prefix(number: int) -> str:
    """The beginning of the ids of streams, from its number; empty for 0."""
    return f"{number:0{PREFIX_DIGITS}x}" if number else ""


def tasks(spark: SparkSession, head: LogHead) -> int:
    """The number of tasks in which a log is read."""
    if is_remote():
        at_once = int(spark.conf.get("spark.default.parallelism", None) or TASKS_ELSEWHERE)
    else:
        at_once = spark.sparkContext.defaultParallelism
    return min(PREFIXES, max(at_once, ceil(head.position / ENTRIES_PER_TASK)))


def record_batch(schema: pa.Schema, columns: Iterable[Sequence[Any]]) -> pa.RecordBatch:
    """Columns as one Arrow batch."""
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def check_count(entries: int, head: LogHead) -> None:
    """Check how many entries the tasks have read: one that is in the table, but not in its index, is not read.

    Raises:
        CorruptLog: the tasks have not read as many entries as the log has.
    """
    if entries != head.position:
        raise CorruptLog(f"The log is damaged: {entries} of {head.position} entries were found by their streams.")


def check_end(database: Database, head: LogHead) -> None:
    """Check the number of entries and the last one. Blocks on the database.

    Raises:
        CorruptLog: an entry is missing, or the log does not end with `head`.
    """
    mark = _mark(database)
    with closing(connect(database)) as connection:
        cursor = connection.cursor()
        # PERF: without a condition, an index is counted; with one it would be the table.
        counted = f"SELECT (SELECT count(*) FROM log) - (SELECT count(*) FROM log WHERE position > {mark})"  # noqa: S608 - all names are ours
        if cursor.execute(counted, (head.position,)).fetchone()[0] != head.position:
            raise CorruptLog(f"The log is damaged: the entry at position {_first_missing(cursor)} is missing.")
        row = cursor.execute(f"SELECT hash FROM log WHERE position = {mark}", (head.position,)).fetchone()  # noqa: S608 - as above
    if row is not None and bytes(row[0]) != head.hash:
        raise CorruptLog(f"The log does not end as its head says: the entry at position {head.position} was replaced.")


def _first_missing(cursor: Any) -> int:
    query = (
        "SELECT min(l.position) + 1 FROM (SELECT 0 AS position UNION ALL SELECT position FROM log) AS l "
        "LEFT JOIN log AS n ON n.position = l.position + 1 WHERE n.position IS NULL"
    )
    position: int = cursor.execute(query).fetchone()[0]
    return position


def read_streams(database: Database, begin: str, end: str, head: LogHead) -> Iterator[LogRow]:
    """Read the entries of the streams from one id up to another one, in the order of streams and versions.

    Without a second id, up to the last stream with any id: damaged ids are found too.

    PERF: by an index, so that Spark need not sort the log, which took a third of the CPU of a rebuild. Blocks on the
    database.

    Raises:
        CorruptLog: an entry is not the one that was written after its predecessor, or its predecessor is missing.
    """
    columns, mark = ", ".join([f"l.{name}" for name in LOG_COLUMNS]), _mark(database)
    before, ends = (f"AND l.stream < {mark} ", (end,)) if end else ("", ())
    query = (
        f"SELECT {columns}, l.hash, p.hash FROM log AS l LEFT JOIN log AS p ON p.position = l.position - 1 "  # noqa: S608 - as above
        f"WHERE (l.stream, l.version) > ({mark}, {mark}) AND l.position <= {mark} {before}"
        f"ORDER BY l.stream, l.version LIMIT {ENTRIES_PER_READ}"
    )
    after = (begin, 0)
    with closing(connect(database)) as connection:
        cursor = connection.cursor()
        # One query after the other: no transaction stays open for long.
        while rows := cursor.execute(query, (*after, head.position, *ends)).fetchall():
            for *row, stored, previous in rows:
                check_entry(row, stored, GENESIS if row[0] == 1 else previous)
                yield row
            after = str(rows[-1][1]), rows[-1][2]


def _mark(database: Database) -> str:
    return "?" if database.kind == "sqlite" else "%s"


def connect(database: Database) -> Any:
    """A connection for reading, in the mode where every statement is its own transaction."""
    if database.kind == "sqlite":
        uri = f"file:{quote(database.address)}?mode=ro"
        return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=60)
    import psycopg  # noqa: PLC0415 - an extra: absent where everything is in SQLite

    return psycopg.connect(database.address, autocommit=True)


@contextmanager
def damage_named(database: Database) -> Iterator[None]:
    """Turn the failure of a Spark job over a damaged log into a CorruptLog that names the first position concerned.

    Of several tasks that come upon the same damage, any one may fail first: so the chain is read once more, in order.

    Raises:
        CorruptLog: the first break of the chain; if there is none, the damage that an executor reported.
    """
    try:
        yield
    except PySparkException as ex:
        # All that comes back from an executor is its traceback, as text.
        if (found := re.search(rf"{CorruptLog.__name__}: (.+)", str(ex))) is not None:
            check_whole_chain(database)
            raise CorruptLog(found[1]) from ex
        raise


def check_whole_chain(database: Database) -> None:
    """Check the hash chain from the first entry to the head. Blocks on the database, for seconds with a long log.

    Raises:
        CorruptLog: names the first position that is wrong.
    """
    head, position, previous = read_head(database), 0, GENESIS
    query = f"SELECT {', '.join(LOG_COLUMNS)}, hash FROM log WHERE position > {_mark(database)} ORDER BY position "  # noqa: S608 - as above
    with closing(connect(database)) as connection:
        cursor = connection.cursor()
        while position < head.position:
            upto = min(position + ENTRIES_PER_READ, head.position)
            rows = cursor.execute(f"{query} LIMIT {upto - position}", (position,)).fetchall()
            previous = check_chain(rows, position, upto, previous)
            position = upto
