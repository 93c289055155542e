"""Spark executors' part of a rebuild: fold each stream and write the rows of the read models.

Executors import this module: it needs neither SQLAlchemy nor anything that serves requests.
"""

import gc
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from uuid import uuid4

import msgspec
import pyarrow as pa

from rioni.domain.errors import Conflict
from rioni.projections.bulk.source import Database, connect, record_batch
from rioni.projections.custom import Projection, installed
from rioni.projections.log_rows import AUDIT_LOG, CorruptLog, LogRow, Row, StreamFold, log_entry


ROWS_PER_RUN = 50_000
CHARACTERS_PER_RUN = 64_000_000
"""A run is sorted in memory before it is written; schemas of 256 kB make it short."""

CHARACTERS_PER_BATCH = 4_000_000
ROWS_PER_BATCH = 10_000
"""The most that the driver loads in one transaction: this takes some hundredths of a second."""

FILE_SUFFIX = ".db"
"""The suffix of a complete file."""


class Target(NamedTuple):
    """A table to fill."""

    name: str
    """The read model."""
    schema: pa.Schema
    """The columns of the table."""
    key: Sequence[str]
    """The columns of its primary key."""
    copy: str
    """PostgreSQL's COPY statement into the table of the generation; not used elsewhere."""


DONE_SCHEMA = pa.schema([("task", pa.int64())])
"""The schema of a task's result: its number, next to the numbers of rows that it wrote."""

ENTRIES = "log"
"""The name under which a task reports how many entries it has folded; its other reports are rows per table."""


def rows_of(log: Iterable[LogRow], custom: Sequence[Projection] = ()) -> Iterator[tuple[str, Row]]:
    """Fold a log that is sorted by stream and version into the rows of the read models, as pairs of table and row.

    One stream is open at a time; rows that it deletes again never appear.

    Args:
        log: the entries.
        custom: projections of users that are folded too.

    Raises:
        CorruptLog: a version is missing, or an entry can't be read.
        BrokenProjection: the function of a user failed.
    """
    stream, folded = None, StreamFold(custom)
    for row in log:
        if row[1] != stream:
            yield from folded.rows()
            stream, folded = row[1], StreamFold(custom)
        try:
            audited = folded.add(log_entry(row))
        except ValueError as ex:
            raise CorruptLog(f"The log is damaged: {ex}.") from ex
        for each in audited:
            yield AUDIT_LOG, each
    yield from folded.rows()


class Sink(Protocol):
    """The destination of the rows of one task."""

    def write(self, target: Target, rows: Sequence[Sequence[Any]], characters: int) -> None:
        """Write some rows, which have this many characters; blocks."""

    def close(self, report: Mapping[str, int]) -> None:
        """Finish: make all rows valid, together with the report of their number in each table."""


def write_rows(
    number: int, log: Iterable[LogRow], *, targets: Sequence[Target], open_sink: Callable[[int], Sink]
) -> Iterator[pa.RecordBatch]:
    """Fold and write: the function that Spark maps over the log.

    Yields:
        One batch as in `DONE_SCHEMA`.
    """
    # PERF: a fifth faster. A run of rows is many small objects without cycles, which the collector need not visit.
    gc.disable()
    sink = open_sink(number)
    buffers = {target.name: _Buffer(target, sink) for target in targets}
    entries = 0
    # The functions of users are not sent: executors have the same packages installed.
    custom = [each for each in installed() if each.table in buffers]
    for table, row in rows_of(log, custom):
        entries += table == AUDIT_LOG
        if table in buffers:
            buffers[table].add(row)
    for buffer in buffers.values():
        buffer.flush()
    sink.close({ENTRIES: entries} | {name: buffer.written for name, buffer in buffers.items() if buffer.written})
    yield record_batch(DONE_SCHEMA, [[number]])


class _Buffer:
    """Collects rows of one table until there are enough for a run, by number or by size.

    PERF: runs are sorted by the primary key. In the order of the streams, almost every row would touch another page of
    its table's index, and loading would write three times as much.
    """

    def __init__(self, target: Target, sink: Sink) -> None:
        self.written = 0
        self._target, self._sink = target, sink
        self._values = itemgetter(*target.schema.names)
        self._key = itemgetter(*map(target.schema.get_field_index, target.key))
        self._rows: list[Sequence[Any]] = []
        self._characters = 0

    def add(self, row: Row) -> None:
        values = self._values(row)
        self._rows.append(values)
        self._characters += sum([len(value) for value in values if type(value) is str])
        if len(self._rows) >= ROWS_PER_RUN or self._characters >= CHARACTERS_PER_RUN:
            self.flush()

    def flush(self) -> None:
        if self._rows:
            self._rows.sort(key=self._key)
            self._sink.write(self._target, self._rows, self._characters)
            self.written += len(self._rows)
            self._rows, self._characters = [], 0


class FileSink:
    """Writes the rows of a task into an SQLite file in a folder, from which the driver copies them.

    The file gets its name, the number of the task, when it is complete and on disk. Its tables are called like the read
    models; `batches` lists the rows that the driver copies in one transaction, `report` the numbers of rows.

    PERF: copying from file to file takes half of the CPU of inserting rows that Python has read from another format.
    """

    def __init__(self, folder: str, task: int) -> None:
        self._part, self._complete = Path(folder) / f"{uuid4().hex}.part", Path(folder) / f"{task:06}{FILE_SUFFIX}"
        self._connection = sqlite3.connect(self._part, isolation_level=None)
        # Leftovers of a crash are dropped.
        for setting in ("journal_mode=OFF", "synchronous=OFF", "locking_mode=EXCLUSIVE", "page_size=65536"):
            self._connection.execute(f"PRAGMA {setting}")
        self._connection.execute("BEGIN")
        self._connection.execute("CREATE TABLE batches (name, first, last)")
        self._connection.execute("CREATE TABLE report (name, rows)")
        self._rows: dict[str, int] = {}

    def write(self, target: Target, rows: Sequence[Sequence[Any]], characters: int) -> None:
        """Write some rows, and how they are divided into batches."""
        name, columns = target.name, target.schema.names
        if name not in self._rows:
            self._rows[name] = 0
            quoted = ", ".join(f'"{column}"' for column in columns)
            self._connection.execute(f"CREATE TABLE {name} ({quoted})")
        marks = ", ".join("?" * len(columns))
        self._connection.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)  # noqa: S608 - all names are ours
        first, last = self._rows[name] + 1, self._rows[name] + len(rows)
        step = max(1, min(ROWS_PER_BATCH, CHARACTERS_PER_BATCH * len(rows) // max(1, characters)))
        batches = [(name, begin, min(begin + step - 1, last)) for begin in range(first, last + 1, step)]
        self._connection.executemany("INSERT INTO batches VALUES (?, ?, ?)", batches)
        self._rows[name] = last

    def close(self, report: Mapping[str, int]) -> None:
        """Complete the file."""
        self._connection.executemany("INSERT INTO report VALUES (?, ?)", report.items())
        self._connection.execute("COMMIT")
        self._connection.close()
        with self._part.open("rb") as file:
            os.fsync(file.fileno())
        self._part.replace(self._complete)


class CopySink:
    """Writes into PostgreSQL by COPY, all rows of a task in one transaction that also notes the task.

    A task that failed leaves nothing. The note comes first, so that of two attempts at a task the second one waits for
    the first one, and adds nothing if that has committed.
    """

    def __init__(self, database: Database, rebuild: str, task: int) -> None:
        self._connection, self._key = connect(database), (rebuild, task)
        self._connection.autocommit = False
        noted = "INSERT INTO rebuild_tasks VALUES (%s, %s, 1, '') ON CONFLICT DO NOTHING"
        self._is_done = not self._connection.cursor().execute(noted, self._key).rowcount

    def write(self, target: Target, rows: Sequence[Sequence[Any]], characters: int) -> None:  # noqa: ARG002
        """Copy some rows into the table of the generation."""
        if self._is_done:
            return
        with self._connection.cursor().copy(target.copy) as copy:
            for row in rows:
                copy.write_row(row)

    def close(self, report: Mapping[str, int]) -> None:
        """Commit, unless another attempt has done so.

        Raises:
            Conflict: the rebuild is no longer running, and its tables may belong to another one by now.
        """
        with closing(self._connection):
            # PostgreSQL makes the end of a rebuild wait for this transaction, or this statement wait for that end.
            cursor, (rebuild, _) = self._connection.cursor(), self._key
            is_running = "SELECT id FROM rebuilds WHERE id = %s AND state = 'running' FOR SHARE"
            if not cursor.execute(is_running, (rebuild,)).rowcount:
                raise Conflict(f"The rebuild {rebuild} is no longer running.")
            if not self._is_done:
                noted = "UPDATE rebuild_tasks SET rows = %s WHERE rebuild = %s AND task = %s"
                cursor.execute(noted, (msgspec.json.encode(report).decode(), *self._key))
            self._connection.commit()


def sink_for(database: Database, rebuild: str, folder: str) -> Callable[[int], Sink]:
    """How executors write into a database: SQLite has one writer, the driver, so they write files for it."""
    return partial(FileSink, folder) if database.kind == "sqlite" else partial(CopySink, database, rebuild)
