"""Reads the internal log in segments, one after the other or by several processes at once, and checks them."""

import multiprocessing  # threads: a separate command, which is not patched
import re
import sqlite3
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor  # threads: a separate command, which is not patched
from functools import cache, partial
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from sqlalchemy import Connection, Engine, make_url

from rioni.domain.events import DomainEvent
from rioni.domain.hash_chain import GENESIS, follows
from rioni.sql.log_tables import LOG
from rioni.storage.log.recorder import LogMapper
from rioni.storage.sql.engines import reading
from rioni.storage.sql.read_only import any_text, engine_for_reading


# --- Maps ranges of the internal log by several processes, which read the database themselves ---

WAITING_PER_PROCESS = 3
RESULTS_MAX = 64
"""Ranges begun and not yielded yet: a process that takes long must not let the results of others pile up."""

Result = TypeVar("Result")
Work = Callable[[Engine, int, int], Result]
"""Maps the entries after one position up to another. A function, or a `partial`: other processes import it."""


def map_ranges(
    work: Work[Result], engine: Engine, ranges: Sequence[tuple[int, int]], processes: int
) -> Iterator[Result]:
    """Yield the result of a function for each range, in their order; blocks on the database.

    Args:
        work: reads the database.
        engine: the engine of the database. Other processes open it for reading.
        ranges: positions as `work` takes them.
        processes: how many to use at most, this one included, which works as well: others take a second to start.

    Raises:
        Unavailable: the database can't be read.
    """
    if processes == 1 or len(ranges) <= processes:
        yield from (work(engine, *each) for each in ranges)
        return
    address = engine.url.render_as_string(hide_password=False)
    # NOTE: forking would copy the connections of this process.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes - 1, context) as pool:
        begun: deque[Future[Result]] = deque()
        try:
            for after, upto in ranges:
                while begun and (begun[0].done() or len(begun) == RESULTS_MAX):
                    yield begun.popleft().result()  # waits: the user may interrupt the command
                if sum(not each.done() for each in begun) < WAITING_PER_PROCESS * (processes - 1):
                    begun.append(pool.submit(_work_in_worker, work, address, after, upto))
                else:
                    begun.append(Future())
                    begun[-1].set_result(work(engine, after, upto))
            while begun:
                yield begun.popleft().result()  # waits: the user may interrupt the command
        finally:
            for future in begun:
                future.cancel()


def _work_in_worker(work: Work[Result], address: str, after: int, upto: int) -> Result:
    return work(_engine(address), after, upto)


@cache
def _engine(address: str) -> Engine:
    return engine_for_reading(make_url(address))


# --- Checks segments of the internal log, one after the other or by several processes at once ---

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


class LogDefect(NamedTuple):
    """A defect found in the log."""

    position: int
    """The affected position."""
    text: str
    """Description of the defect."""
    remedy: str
    """Recommended action."""
    stream: str = ""
    """The stream of the affected entry, if there is one."""

    def __str__(self) -> str:
        return f"position {self.position}: {self.text}; {self.remedy}"


class Segment(NamedTuple):
    """The entries found in a range of positions, checked."""

    first: int
    """Position of the first entry; 0 without entries."""
    last: int
    """Position of the last entry."""
    hash: bytes | None
    """Stored hash of the last entry; None if it is no hash at all."""
    findings: list[LogDefect]
    """The findings about the entries, and about gaps between them, by position."""


def segments(engine: Engine, topics: Topics, after: int, upto: int, processes: int) -> Iterator[Segment]:
    """Check the entries after one position up to another, and yield segments in order; blocks on the database.

    Args:
        engine: the engine of the database. Other processes open it for reading.
        topics: all event classes that may occur in the log; other processes import them.
        after: the position before the first one to check.
        upto: the last position to check.
        processes: how many to use at most, this one included; a short log is checked by this process.

    Raises:
        Unavailable: the database can't be read.
    """
    step = ROWS_PER_TASK if processes > 1 and upto - after > processes * ROWS_PER_TASK else ROWS_PER_READ
    ranges = [(start, min(start + step, upto)) for start in range(after, upto, step)]
    yield from map_ranges(
        partial(check_segment, topics=topics), engine, ranges, 1 if step == ROWS_PER_READ else processes
    )


def check_segment(engine: Engine, after: int, upto: int, topics: Topics) -> Segment:
    """Check the entries after one position up to another, in short reads; a gap at either end is not reported.

    Raises:
        Unavailable: the database can't be read.
    """
    first, position, previous = 0, after, None
    findings: list[LogDefect] = []
    versions: dict[str, int] = {}
    mapper = LogMapper(topics)
    while position < upto:
        with reading(engine) as connection:
            rows = _read(connection, position, upto)
            if not first:
                previous = hash_at(connection, after)
            unknown = _check_intact(rows, position, previous, mapper, versions)
            orphans = _orphans(connection, _later_versions(rows) if unknown is None else unknown)
        if not rows:
            break
        if unknown is None or orphans:
            versions.clear()
            if not first and rows[0][0] != after + 1:
                position, previous = rows[0][0] - 1, None
            findings += _check_rows(rows, position, previous, mapper, orphans)
        first, position = first or rows[0][0], rows[-1][0]
        previous = _hash_of(rows[-1])
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


def _check_intact(
    rows: Sequence[Any], position: int, previous: bytes | None, mapper: LogMapper, versions: dict[str, int]
) -> list[int] | None:
    """Check entries all at once, as nearly all are intact.

    PERF: 10 µs an entry, 3 of them for `follows` and 4 for decoding; naming findings takes a third longer.

    Args:
        rows: in the order of their positions.
        position: before the first row.
        previous: the hash of the entry there.
        mapper: of all event classes.
        versions: the versions of the streams, as the rows before have shown; updated.

    Returns:
        The positions of entries whose predecessor in their stream is still to be looked up; None if something is wrong.
    """
    unknown = []
    for row in rows:
        position += 1
        if previous is None or row[0] != position or tuple(map(type, row)) != _TYPES:
            return None
        if not follows(previous, row[:-1], row[-1]) or mapper.decoding_error(row[3], row[9]) is not None:
            return None
        _, stream, version, *_, previous = row
        if versions.get(stream) != version - 1:
            if not _is_uuid(stream):
                return None
            if version != 1:
                # PERF: most predecessors are known; looking up each one takes 3 µs.
                unknown.append(position)
        versions[stream] = version
    return unknown


def _later_versions(rows: Sequence[Any]) -> list[int]:
    """Return the positions of entries that need a predecessor in their stream."""
    return [row[0] for row in rows if type(row[2]) is int and row[2] != 1]


def _orphans(connection: Connection, positions: Sequence[int]) -> set[int]:
    """Return the positions of those entries whose predecessor in their stream is not before them."""
    if not positions:
        return set()
    found = connection.exec_driver_sql(_ORPHANS.format(", ".join(map(str, positions))))
    return {position for (position,) in found}


def _check_rows(
    rows: Sequence[Any], position: int, previous: bytes | None, mapper: LogMapper, orphans: Collection[int]
) -> Iterator[LogDefect]:
    """Yield the errors of entries, and the gaps between them.

    Args:
        rows: in the order of their positions.
        position: before the first row; a gap there is reported as well.
        previous: the hash of the entry at that position.
        mapper: of all event classes.
        orphans: the positions of those whose predecessor in their stream is not before them.
    """
    for row in rows:
        if row[0] != position + 1:
            previous = None
            yield LogDefect(position + 1, f"{entries(row[0] - position - 1)} missing", RESTORE)
        if tuple(map(type, row)) == _TYPES:
            yield from _check_row(row, previous, mapper, alone=row[0] in orphans)
        else:
            yield LogDefect(row[0], "a field is of another type than was written", RESTORE)
        position, previous = row[0], _hash_of(row)


def _hash_of(row: Any) -> bytes | None:
    return row[-1] if isinstance(row[-1], bytes) else None


def hash_at(connection: Connection, position: int) -> bytes | None:
    """Return the hash of the entry at a position; None if there is none, or it is no hash at all."""
    if position == 0:
        return GENESIS
    mark = "?" if connection.dialect.name == "sqlite" else "%s"
    row = connection.exec_driver_sql(_HASH.format(mark), (position,)).first()
    return row[0] if row is not None and isinstance(row[0], bytes) else None


def _check_row(row: Any, previous: bytes | None, mapper: LogMapper, *, alone: bool) -> list[LogDefect]:
    position, stream, version, topic, *_, data, stored = row
    findings = []

    def found(text: str, remedy: str = RESTORE) -> None:
        findings.append(LogDefect(position, text, remedy, stream))

    if previous is not None and not follows(previous, row[:-1], stored):
        found("the hash does not fit: this entry, or the hash before it, was changed")
    if alone:
        found(f"version {version} of stream {stream} does not follow another one")
    if (reason := mapper.decoding_error(topic, data)) is not None:
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
