"""Spark executors' part of a rebuild: fold each stream and write the rows of the read models.

Executors import this module: it needs neither SQLAlchemy nor anything that serves requests.
"""

import gc
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from uuid import UUID, uuid4

import msgspec
import pyarrow as pa

from rioni.domain.aggregates import TOPICS
from rioni.domain.events import Origin
from rioni.domain.ports.event_log import LogEntry
from rioni.projections.bulk.source import CorruptLog, Database, LogRow, connect, record_batch
from rioni.projections.stream_fold import AUDIT_LOG, Row, StreamFold


ROWS_PER_RUN = 50_000
CHARACTERS_PER_RUN = 64_000_000
"""A run is sorted in memory before it is written; schemas of 256 kB make it short."""

CHARACTERS_PER_BATCH = 4_000_000
ROWS_PER_BATCH = 10_000
"""What the driver loads in one transaction, at most: some hundredths of a second."""

FILE_SUFFIX = ".db"
"""Of a file that is complete."""


class Target(NamedTuple):
    """A table to fill."""

    name: str
    """The read model."""
    schema: pa.Schema
    """Its columns."""
    key: Sequence[str]
    """The columns of its primary key."""
    copy: str
    """PostgreSQL's COPY statement into its shadow; empty elsewhere."""


WRITTEN_SCHEMA = pa.schema([("table", pa.string()), ("rows", pa.int64())])
"""What a task reports: how many rows of which table it wrote."""


def log_entry(row: LogRow) -> LogEntry:
    """The entry that a row of the log holds, columns as in `LOG_COLUMNS`.

    Raises:
        CorruptLog: its topic is unknown, or its data does not fit.
    """
    position, stream, version, topic, recorded_at, actor, client, flow_id, command_id, data = row
    try:
        event = TOPICS[topic].decode(bytes(data))
    except KeyError as ex:
        raise CorruptLog(f"The entry at position {position} has the unknown topic {topic}.") from ex
    except msgspec.MsgspecError as ex:
        raise CorruptLog(f"The entry at position {position} can't be read as {topic}: {ex}") from ex
    origin = Origin(actor=actor, client=client, flow_id=flow_id, command_id=command_id, recorded_at=recorded_at)
    return LogEntry(position=position, stream=_uuid(stream), version=version, event=event, origin=origin)


# PERF: the entries of a stream come one after the other.
_uuid = lru_cache(1)(UUID)


def rows_of(log: Iterable[LogRow]) -> Iterator[tuple[str, Row]]:
    """Fold a log that is sorted by stream and version into the rows of the read models, as pairs of table and row.

    One stream is open at a time; what it deletes again is never seen.

    Raises:
        CorruptLog: a version is missing, or an entry can't be read.
    """
    stream, folded = None, StreamFold()
    for row in log:
        if row[1] != stream:
            yield from folded.rows()
            stream, folded = row[1], StreamFold()
        try:
            audited = folded.add(log_entry(row))
        except ValueError as ex:
            raise CorruptLog(f"The log is damaged: {ex}.") from ex
        for each in audited:
            yield AUDIT_LOG, each
    yield from folded.rows()


class Sink(Protocol):
    """Where the rows of one task go."""

    def write(self, target: Target, rows: Sequence[Sequence[Any]], characters: int) -> None:
        """Write some rows, which hold so much text; blocks."""

    def close(self) -> None:
        """Finish, so that all rows count."""


def write_rows(
    log: Iterable[LogRow], *, targets: Sequence[Target], open_sink: Callable[[], Sink]
) -> Iterator[pa.RecordBatch]:
    """Fold and write: the function that Spark maps over the log.

    Yields:
        One batch as in `WRITTEN_SCHEMA`.
    """
    # PERF: a fifth faster. A run of rows is many small objects without cycles, which the collector need not visit.
    gc.disable()
    sink = open_sink()
    buffers = {target.name: _Buffer(target, sink) for target in targets}
    for table, row in rows_of(log):
        buffers[table].add(row)
    for buffer in buffers.values():
        buffer.flush()
    sink.close()
    report = [(name, buffer.written) for name, buffer in buffers.items() if buffer.written]
    yield record_batch(WRITTEN_SCHEMA, zip(*report, strict=True) if report else ([], []))


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

    The file gets its name when it is complete. Its tables are called as the read models are; `batches` says which of
    their rows the driver copies in one transaction.

    PERF: copying from file to file takes half of the CPU of inserting what Python has read from another format.
    """

    def __init__(self, folder: str) -> None:
        path = Path(folder) / uuid4().hex
        self._part, self._complete = path.with_suffix(".part"), path.with_suffix(FILE_SUFFIX)
        self._connection = sqlite3.connect(self._part, isolation_level=None)
        # What a crash leaves behind is thrown away.
        for setting in ("journal_mode=OFF", "synchronous=OFF", "locking_mode=EXCLUSIVE", "page_size=65536"):
            self._connection.execute(f"PRAGMA {setting}")
        self._connection.execute("BEGIN")
        self._connection.execute("CREATE TABLE batches (name, first, last)")
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

    def close(self) -> None:
        """Complete the file."""
        self._connection.execute("COMMIT")
        self._connection.close()
        self._part.replace(self._complete)


class CopySink:
    """Writes into PostgreSQL by COPY, all rows of a task in one transaction: a task that is repeated leaves nothing."""

    def __init__(self, database: Database) -> None:
        self._connection = connect(database)
        self._connection.autocommit = False

    def write(self, target: Target, rows: Sequence[Sequence[Any]], characters: int) -> None:  # noqa: ARG002
        """Copy some rows into the table's shadow."""
        with self._connection.cursor().copy(target.copy) as copy:
            for row in rows:
                copy.write_row(row)

    def close(self) -> None:
        """Commit."""
        self._connection.commit()
        self._connection.close()


def sink_for(database: Database, folder: str) -> Callable[[], Sink]:
    """How executors write into a database: SQLite has one writer, the driver, so they write files for it."""
    return partial(FileSink, folder) if database.kind == "sqlite" else partial(CopySink, database)
