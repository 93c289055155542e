"""The rows of the audit table: the entries of the log with their changes, folded and written by executors.

Executors import this module: it needs neither SQLAlchemy nor anything that serves requests.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from rioni.domain.audit_events import shown_state
from rioni.domain.events import client_parts, realm_of
from rioni.domain.json_patch import json_patch
from rioni.files.plain import fsync_directory
from rioni.projections.bulk.source import record_batch
from rioni.projections.log_rows import LOG_COLUMNS, CorruptLog, LogRow, StreamFold, log_entry


ENTRIES = "entries"
"""The column in which the last row of a task has the number of entries of the log that the task has read."""
DAY = "day"
"""The column by which files are divided into folders: the day in UTC when the entry was recorded."""

DERIVED = ("address", "user_agent", "realm", "resource_type", "resource", "changes", "state")
NUMBERS = ("position", "version")
TABLE_SCHEMA = pa.schema(
    [(name, pa.int64() if name in NUMBERS else pa.string()) for name in (*LOG_COLUMNS, *DERIVED)],
)
"""The columns of the files: all fields of the log that its hashes cover, and values derived from them."""
ROWS_SCHEMA = TABLE_SCHEMA.append(pa.field(DAY, pa.string())).append(pa.field(ENTRIES, pa.int64()))
FILES_SCHEMA = pa.schema(
    [(name, pa.string() if name in {"path", "sha256"} else pa.int64()) for name in ("path", "first", "last", "rows")]
    + [("bytes", pa.int64()), ("sha256", pa.string())]
)

ROWS_PER_BATCH = 1_000
CHARACTERS_PER_BATCH = 8_000_000
ROWS_HELD_MAX = 1_000
"""How many rows of a stream are held until it is known whether it has a new entry."""
FILE_ROWS_MAX = 50_000


class WrittenFile(NamedTuple):
    """A file of the table."""

    path: str
    """The path in the folder of the table."""
    first: int
    """The first and the last position; all in between that are not in another file of the same export."""
    last: int
    rows: int
    bytes: int
    sha256: str
    """Hexadecimal."""


def entries_behind(_number: int, log: Iterable[LogRow], *, after: int) -> Iterator[pa.RecordBatch]:
    """Fold the log into the rows of entries after a position: the function that Spark maps.

    PERF: streams that have no entry after it are read, so that the hash chain is checked, and not folded.

    Yields:
        Batches as in `ROWS_SCHEMA`; the last row of a task has its number of entries and nothing else.

    Raises:
        CorruptLog: an entry can't be read.
    """
    read, rows, characters = 0, [], 0
    for _, stream in groupby(log, itemgetter(1)):
        folded, held = StreamFold(), []
        for entry in stream:
            read += 1
            held.append(entry)
            if entry[0] <= after and len(held) < ROWS_HELD_MAX:
                continue
            for each in held:
                row = _row(each, folded)
                if each[0] > after:
                    rows.append([*row, None])
                    characters += sum(len(value) for value in row if type(value) is str)
            held = []
            if len(rows) >= ROWS_PER_BATCH or characters >= CHARACTERS_PER_BATCH:
                yield record_batch(ROWS_SCHEMA, zip(*rows, strict=True))
                rows, characters = [], 0
    rows.append([*[None] * (len(ROWS_SCHEMA) - 1), read])
    yield record_batch(ROWS_SCHEMA, zip(*rows, strict=True))


def _row(entry: LogRow, folded: StreamFold) -> list[Any]:
    """The columns of an entry, without the number of entries."""
    try:
        (audited,) = folded.add(log_entry(entry))
        data = bytes(entry[-1]).decode()
    except ValueError as ex:
        raise CorruptLog(f"The log is damaged: {ex}.") from ex
    kind = audited["resource_type"]
    before, after = shown_state(kind, audited["before"]), shown_state(kind, audited["after"])
    changes = msgspec.json.encode(json_patch(before, after)).decode()
    state = None if after is None else msgspec.json.encode(after).decode()
    client = audited["client"]
    derived = [*client_parts(client), realm_of(client), kind, audited["resource"], changes, state]
    return [*entry[:-1], data, *derived, audited["recorded_at"][: len("2026-01-01")]]


def write_files(batches: Iterable[pa.RecordBatch], *, folder: str) -> Iterator[pa.RecordBatch]:
    """Write rows that are sorted by day and position into a new file for each day: the function that Spark maps.

    Each file has a unique name, complete or not: files left by a killed or repeated task are in no commit.

    Yields:
        Batches as in `FILES_SCHEMA`.
    """
    for day, parts in groupby(_by_day(batches), itemgetter(0)):
        place = Path(folder) / f"{DAY}={day}"
        place.mkdir(parents=True, exist_ok=True)
        part = place / f".{uuid4().hex}.part"
        positions: list[int] = []
        with pq.ParquetWriter(part, TABLE_SCHEMA, compression="zstd") as writer:
            for _, rows in parts:
                writer.write_batch(rows)
                positions += rows.column("position").to_pylist()
        path = part.rename(place / f"{positions[0]:012}-{uuid4().hex}.parquet")
        yield _written(path, folder, positions)


def _by_day(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the parts of batches that are of one day, without the columns that no file has."""
    for batch in batches:
        days = batch.column(DAY).to_pylist()
        begin = 0
        for day, same in groupby(days):
            length = sum(1 for _ in same)
            yield day, batch.slice(begin, length).select(TABLE_SCHEMA.names)
            begin += length


def _written(path: Path, folder: str, positions: Sequence[int]) -> pa.RecordBatch:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
    for each in (path.parent, Path(folder)):
        fsync_directory(each)
    name = path.relative_to(folder).as_posix()
    row = WrittenFile(name, positions[0], positions[-1], len(positions), path.stat().st_size, digest)
    return record_batch(FILES_SCHEMA, [[value] for value in row])
