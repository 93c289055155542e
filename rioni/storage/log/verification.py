"""Checks the internal log: positions, hash chain, versions, topics, data and end."""

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, Row, and_, column, func, select, table

from rioni.domain.events import DomainEvent
from rioni.domain.hash_chain import GENESIS, LogHead, follows
from rioni.log_tables import LOG
from rioni.storage.log.mapper import LogMapper, UnreadableEntry
from rioni.storage.log.recorder import stored_entry
from rioni.storage.sql.engines import reading


ROWS_PER_READ = 200
"""A schema may have 256 kB; and short reads don't block others for long."""

RESTORE = "stop the broker and restore a backup, or compare with an audit export to see what was there"
UPGRADE = "use the version of Rioni that wrote it, or a newer one"

_TYPES = (int, str, int, str, str, str, str, str, str, bytes, bytes)
# Untyped columns, so that damaged values are read as they are.
_ROWS = table("log", *(column(name) for name in LOG.c.keys()))  # noqa: SIM118 - no dict: it iterates over columns
_HEAD = table("head", column("position"), column("hash"))
_PREDECESSORS = _ROWS.alias("predecessors")
_PREDECESSOR = and_(
    _PREDECESSORS.c.stream == _ROWS.c.stream,
    _PREDECESSORS.c.version == _ROWS.c.version - 1,
    _PREDECESSORS.c.position < _ROWS.c.position,
)


class Finding(NamedTuple):
    """A defect found in the log."""

    position: int
    """The affected position."""
    text: str
    """Description of the defect."""
    remedy: str
    """Recommended action."""

    def __str__(self) -> str:
        return f"position {self.position}: {self.text}; {self.remedy}"


def verify(engine: Engine, topics: Mapping[str, type[DomainEvent]], *, from_position: int = 0) -> Iterator[Finding]:
    """Yield all defects of the present log, in constant memory; does not block readers and appends.

    One change may be reported at two positions: if an entry's hash was changed, the next entry does not match it. If
    the end was cut off together with the head, only a previously exported head can reveal it.

    Args:
        engine: of the database.
        topics: all event classes that may occur in the log.
        from_position: the last position known to be correct; checking starts after it.

    Raises:
        Unavailable: the database can't be read.
    """
    heads, end, previous = _bounds(engine, from_position)
    mapper = LogMapper(topics)
    position = from_position
    if previous is None:
        yield Finding(position, "this entry, behind which to begin, is missing", RESTORE)
    yield from _check_beginning(engine)
    while rows := _page(engine, position, end):
        for row in rows:
            if row.position != position + 1:
                yield Finding(position + 1, f"{_entries(row.position - position - 1)} missing", RESTORE)
                previous = None
            yield from _check_row(row, previous, mapper)
            position, previous = row.position, row.hash if isinstance(row.hash, bytes) else None
    yield from _check_head(heads, position, previous)


def _bounds(engine: Engine, from_position: int) -> tuple[Sequence[LogHead], int, bytes | None]:
    """Return the head, the last position, and the initial hash, from one snapshot."""
    last = select(func.coalesce(func.max(_ROWS.c.position), 0)).scalar_subquery()
    with reading(engine) as connection:
        rows = connection.execute(select(_HEAD.c.position, _HEAD.c.hash, last)).all()
        end: int = rows[0][2] if rows else connection.execute(select(last)).scalar_one()
        before = connection.scalar(select(_ROWS.c.hash).where(_ROWS.c.position == from_position))
    return [LogHead(row[0], row[1]) for row in rows], end, before if from_position else GENESIS


def _check_beginning(engine: Engine) -> Iterator[Finding]:
    query = select(func.count(), func.min(_ROWS.c.position)).where(_ROWS.c.position < 1)
    with reading(engine) as connection:
        count, lowest = connection.execute(query).one()
    if count:
        yield Finding(lowest, f"{_entries(count)} before position 1, where none can be", RESTORE)


def _page(engine: Engine, after: int, end: int) -> Sequence[Row[Any]]:
    query = (
        select(_ROWS, _PREDECESSORS.c.position.label("predecessor"))
        .outerjoin(_PREDECESSORS, _PREDECESSOR)
        .where(_ROWS.c.position > after, _ROWS.c.position <= end)
        .order_by(_ROWS.c.position)
        .limit(ROWS_PER_READ)
    )
    with reading(engine) as connection, _any_text(connection):
        return connection.execute(query).all()


@contextlib.contextmanager
def _any_text(connection: Connection) -> Iterator[None]:
    """Read text that is not valid UTF-8 from a damaged SQLite file; other databases can't contain any."""
    driver = connection.connection.driver_connection
    if not isinstance(driver, sqlite3.Connection):
        yield
        return
    driver.text_factory = lambda data: data.decode(errors="surrogateescape")
    try:
        yield
    finally:
        driver.text_factory = str


def _check_row(row: Row[Any], previous: bytes | None, mapper: LogMapper) -> Iterator[Finding]:
    values = tuple(row)
    fields, stored, predecessor = values[:-2], values[-2], values[-1]
    position, version = row.position, row.version
    if not all(isinstance(value, kind) for value, kind in zip(values[:-1], _TYPES, strict=True)):
        yield Finding(position, "a field is of another type than was written", RESTORE)
        return
    if previous is not None and not follows(previous, fields, stored):
        yield Finding(position, "the hash does not fit: this entry, or the hash before it, was changed", RESTORE)
    if version != 1 and predecessor is None:
        yield Finding(position, f"version {version} of stream {row.stream} does not follow another one", RESTORE)
    try:
        mapper.to_domain_event(stored_entry(row))
    except UnreadableEntry as ex:
        yield Finding(position, ex.reason, UPGRADE)
    except ValueError:
        yield Finding(position, f"{row.stream} is not the id of a stream", RESTORE)


def _check_head(heads: Sequence[LogHead], end: int, last: bytes | None) -> Iterator[Finding]:
    if len(heads) != 1:
        yield Finding(end, f"the head has {len(heads)} rows, not one", RESTORE)
        return
    (head,) = heads
    if head.position > end:
        yield Finding(end + 1, f"the end is cut off: {_entries(head.position - end)} missing", RESTORE)
    elif head.position < end:
        yield Finding(head.position + 1, f"the head names {head.position} as the end, the log ends at {end}", RESTORE)
    elif last is not None and head.hash != last:
        yield Finding(end, "the head has another hash than the last entry", RESTORE)


def _entries(count: int) -> str:
    return "1 entry is" if count == 1 else f"{count} entries are"
