"""Checks segments of the internal log, one after the other or by several processes at once."""

import multiprocessing
import re
import sqlite3
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import URL, Connection, Engine, make_url

from rioni.domain.events import DomainEvent
from rioni.domain.hash_chain import GENESIS, follows
from rioni.log_tables import LOG
from rioni.storage.log.mapper import decoding_error
from rioni.storage.sql.engines import reading
from rioni.storage.sql.read_only import any_text, engine_for_reading


ROWS_PER_READ = 500
"""Entries of one read: a schema may have 256 kB, and short reads don't block others for long. PERF: larger reads are
slower, as they leave the processor's cache."""

ROWS_PER_TASK = 20_000
"""Entries that a process checks at once, a tenth of a second."""

RESTORE = "stop the broker and restore a backup, or compare with an audit export to see what was there"
UPGRADE = "use the version of Rioni that wrote it, or a newer one"

Topics = Mapping[str, type[DomainEvent]]

_USUAL_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch
_COLUMNS = tuple(LOG.columns.keys())
_TYPES = (int, str, int, str, str, str, str, str, str, bytes, bytes)
_ROWS = (
    f"SELECT {', '.join(_COLUMNS)} FROM log "  # noqa: S608 - constants, as below
    f"WHERE position > {{0}} AND position <= {{0}} ORDER BY position LIMIT {ROWS_PER_READ}"
)
_ORPHANS = """
    SELECT l.position FROM log AS l WHERE l.position IN ({}) AND NOT EXISTS (
        SELECT 1 FROM log AS p WHERE p.stream = l.stream AND p.version = l.version - 1 AND p.position < l.position
    )
"""
_HASH = "SELECT hash FROM log WHERE position = {0}"


class Finding(NamedTuple):
    """A defect found in the log."""

    position: int
    """The affected position."""
    text: str
    """Description of the defect."""
    remedy: str
    """Recommended action."""
    stream: str = ""
    """The stream of the affected entry, where there is one."""

    def __str__(self) -> str:
        return f"position {self.position}: {self.text}; {self.remedy}"


class Segment(NamedTuple):
    """The entries found in a range of positions, checked."""

    first: int
    """Position of the first entry; 0 if there is none."""
    last: int
    """Position of the last entry."""
    hash: bytes | None
    """Stored hash of the last entry; None if it is no hash at all."""
    findings: list[Finding]
    """Of the entries, and of gaps between them, by position."""


def segments(engine: Engine, topics: Topics, after: int, upto: int, processes: int) -> Iterator[Segment]:
    """Check the entries after one position up to another, and yield segments in order; blocks on the database.

    Args:
        engine: of the database. Other processes open it for reading.
        topics: all event classes that may occur in the log; other processes import them.
        after: the position before the first one to check.
        upto: the last position to check.
        processes: how many to use at most, this one included; a short log is checked by this process.

    Raises:
        Unavailable: the database can't be read.
    """
    starts = range(after, upto, ROWS_PER_TASK)
    if processes > 1 and len(starts) > processes:
        yield from _in_processes(engine.url, topics, starts, upto, processes)
        return
    for start in range(after, upto, ROWS_PER_READ):
        yield check_segment(engine, topics, start, min(start + ROWS_PER_READ, upto))


def _in_processes(url: URL, topics: Topics, starts: range, upto: int, processes: int) -> Iterator[Segment]:
    address = url.render_as_string(hide_password=False)
    # NOTE: forking would copy the connections of this process.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context) as pool:
        # Few at a time, so that what they found does not pile up.
        running: deque[Future[Segment]] = deque()
        try:
            for start in starts:
                if len(running) == 2 * processes:
                    yield running.popleft().result()
                end = min(start + ROWS_PER_TASK, upto)
                running.append(pool.submit(_check_in_worker, address, topics, start, end))
            while running:
                yield running.popleft().result()
        finally:
            for future in running:
                future.cancel()


def _check_in_worker(address: str, topics: Topics, after: int, upto: int) -> Segment:
    return check_segment(_engine(address), topics, after, upto)


@cache
def _engine(address: str) -> Engine:
    return engine_for_reading(make_url(address))


def check_segment(engine: Engine, topics: Topics, after: int, upto: int) -> Segment:
    """Check the entries after one position up to another, in short reads; a gap at either end is not reported.

    Raises:
        Unavailable: the database can't be read.
    """
    first, position, previous = 0, after, None
    findings: list[Finding] = []
    versions: dict[str, int] = {}
    while position < upto:
        with reading(engine) as connection:
            rows = _read(connection, position, upto)
            orphans = _orphans(connection, rows, versions)
            if not first:
                previous = _hash_at(connection, after)
        if not rows:
            break
        for row in rows:
            if row[0] != position + 1:
                previous = None
                if first:
                    findings.append(Finding(position + 1, f"{entries(row[0] - position - 1)} missing", RESTORE))
            if row[0] in orphans or not _is_intact(row, previous, topics):
                findings += _check_row(row, previous, topics, alone=row[0] in orphans)
            first, position = first or row[0], row[0]
            previous = row[-1] if isinstance(row[-1], bytes) else None
    return Segment(first, position, previous, findings)


def entries(count: int) -> str:
    """Format a number of entries with its verb."""
    return "1 entry is" if count == 1 else f"{count} entries are"


def _read(connection: Connection, after: int, upto: int) -> Sequence[Any]:
    mark = "?" if connection.dialect.name == "sqlite" else "%s"
    try:
        return _fetch(connection, _ROWS.format(mark), (after, upto))
    except sqlite3.OperationalError as ex:
        if "UTF-8" not in str(ex):
            raise
    with any_text(connection):
        return _fetch(connection, _ROWS.format(mark), (after, upto))


def _fetch(connection: Connection, query: str, values: tuple[int, int]) -> Sequence[Any]:
    # PERF: SQLAlchemy's rows take a third longer than the driver's.
    cursor: Any = connection.exec_driver_sql(query, values).cursor
    rows: Sequence[Any] = cursor.fetchall()
    return rows


def _orphans(connection: Connection, rows: Sequence[Any], versions: dict[str, int]) -> set[int]:
    """Return the positions of entries whose predecessor in their stream is not before them.

    PERF: most predecessors are known; looking up each one takes 3 µs.

    Args:
        connection: which has read the rows.
        rows: in the order of their positions.
        versions: of the streams, as the rows before have shown; updated.
    """
    unknown = []
    for position, stream, version, *_ in rows:
        if type(version) is not int:
            continue
        if version != 1 and versions.get(stream) != version - 1:
            unknown.append(position)
        versions[stream] = version
    if not unknown:
        return set()
    found = connection.exec_driver_sql(_ORPHANS.format(", ".join(map(str, unknown))))
    return {position for (position,) in found}


def _hash_at(connection: Connection, position: int) -> bytes | None:
    if position == 0:
        return GENESIS
    mark = "?" if connection.dialect.name == "sqlite" else "%s"
    row = connection.exec_driver_sql(_HASH.format(mark), (position,)).first()
    return row[0] if row is not None and isinstance(row[0], bytes) else None


def _is_intact(row: Any, previous: bytes | None, topics: Topics) -> bool:
    """Whether nothing is wrong with an entry itself. PERF: most are; naming findings takes longer."""
    if previous is None or tuple(map(type, row)) != _TYPES:
        return False
    return (
        follows(previous, row[:-1], row[-1])
        and decoding_error(topics, row[3], row[9]) is None
        and _USUAL_UUID(row[1]) is not None
    )


def _check_row(row: Any, previous: bytes | None, topics: Topics, *, alone: bool) -> list[Finding]:
    position, stream, version, topic, *_, data, stored = row
    if tuple(map(type, row)) != _TYPES:
        return [Finding(position, "a field is of another type than was written", RESTORE)]
    findings = []

    def found(text: str, remedy: str = RESTORE) -> None:
        findings.append(Finding(position, text, remedy, stream))

    if previous is not None and not follows(previous, row[:-1], stored):
        found("the hash does not fit: this entry, or the hash before it, was changed")
    if alone:
        found(f"version {version} of stream {stream} does not follow another one")
    if (reason := decoding_error(topics, topic, data)) is not None:
        found(reason, UPGRADE)
    if not _is_uuid(stream):
        found(f"{stream} is not the id of a stream")
    return findings


def _is_uuid(text: str) -> bool:
    # PERF: an eighth of the time.
    if _USUAL_UUID(text):
        return True
    try:
        UUID(text)
    except ValueError:
        return False
    return True
