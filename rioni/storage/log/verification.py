"""Checks the internal log: positions, hash chain, versions, topics, data and end."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Engine, column, func, select, table

from rioni.domain.aggregates import FORMATS
from rioni.domain.hash_chain import GENESIS
from rioni.sql.log_tables import LOG
from rioni.storage.log.segments import RESTORE, UPGRADE, LogDefect, Topics, entries, segments
from rioni.storage.sql.engines import reading
from rioni.storage.sql.read_only import any_text


__all__ = ["LogDefect", "setbacks", "verify"]

# Untyped columns, so that damaged values are read as they are.
_ROWS = table("log", *(column(name) for name in LOG.c.keys()))  # noqa: SIM118 - no dict: it iterates over columns
_HEAD = table("head", column("position"), column("hash"), column("format"))

GAP_MAX = 100_000
"""Missing entries that are read past; a larger gap is left out."""


class _Head(NamedTuple):
    """The row of the head, as it is stored now."""

    position: int
    hash: bytes
    format: int


def verify(
    engine: Engine,
    topics: Topics,
    *,
    processes: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[LogDefect]:
    """Yield all defects of the present log, in constant memory; does not block readers and appends.

    One change may be reported at two positions: if an entry's hash was changed, the next entry does not match it. If
    the end was cut off together with the head, only a previously exported head can reveal it.

    Args:
        engine: the engine of the database.
        topics: all event classes that may occur in the log.
        processes: how many to use at most, for a long log.
        progress: called with the number of entries checked and their total.

    Raises:
        Unavailable: the database can't be read.
    """
    heads, end = _bounds(engine)
    position = 0
    previous: bytes | None = GENESIS
    yield from _check_beginning(engine)
    for after, upto in _stretches(engine, end):
        for segment in segments(engine, topics, after, upto, processes):
            if segment.first:
                if segment.first != position + 1:
                    yield LogDefect(position + 1, f"{entries(segment.first - position - 1)} missing", RESTORE)
                yield from segment.findings
                position, previous = segment.last, segment.hash
                if progress is not None:
                    progress(position, end)
    yield from _check_head(heads, position, previous)


class Setback(NamedTuple):
    """An entry that was recorded at an earlier time than the one before it."""

    position: int
    recorded_at: str
    before: str
    """The time of the entry before it."""

    def __str__(self) -> str:
        return (
            f"log, position {self.position}: recorded at {self.recorded_at}, and the entry before it at {self.before}: "
            "the clock had been set back. Queries by time are not exact around these times"
        )


def setbacks(engine: Engine) -> Sequence[Setback]:
    """Return all entries whose time is earlier than that of the entry before; releases before 0.1.1 wrote them.

    Raises:
        Unavailable: the database can't be read.
    """
    before = func.lag(_ROWS.c.recorded_at).over(order_by=_ROWS.c.position).label("before")
    pairs = select(_ROWS.c.position, _ROWS.c.recorded_at, before).subquery()
    query = select(pairs).where(pairs.c.recorded_at < pairs.c.before).order_by(pairs.c.position)
    with reading(engine) as connection, any_text(connection):
        return [Setback(*map(_readable, row)) for row in connection.execute(query)]


def _readable(value: Any) -> Any:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else value


def _bounds(engine: Engine) -> tuple[Sequence[_Head], int]:
    """Return the head and the last position, from one snapshot."""
    last = select(func.coalesce(func.max(_ROWS.c.position), 0)).scalar_subquery()
    with reading(engine) as connection:
        rows = connection.execute(select(_HEAD.c.position, _HEAD.c.hash, _HEAD.c.format, last)).all()
        end: int = rows[0][-1] if rows else connection.execute(select(last)).scalar_one()
    return [_Head(*row[:-1]) for row in rows], end


def _stretches(engine: Engine, upto: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of positions between large gaps, so that one forged position does not keep us busy for years."""
    later = _ROWS.c.position > 0, _ROWS.c.position <= upto
    pairs = select(_ROWS.c.position, func.lead(_ROWS.c.position).over(order_by=_ROWS.c.position).label("next"))
    found = pairs.where(*later).subquery()
    with reading(engine) as connection:
        count, first = connection.execute(select(func.count(), func.min(_ROWS.c.position)).where(*later)).one()
        if not count:
            return
        gaps: Sequence[Any] = []
        if upto - count > GAP_MAX:
            query = select(found.c.position, found.c.next).where(found.c.next - found.c.position > GAP_MAX)
            gaps = connection.execute(query.order_by(found.c.position)).all()
    after = first - 1 if first > GAP_MAX else 0
    for end, begin in gaps:
        yield after, end
        after = begin - 1
    yield after, upto


def _check_beginning(engine: Engine) -> Iterator[LogDefect]:
    query = select(func.count(), func.min(_ROWS.c.position)).where(_ROWS.c.position < 1)
    with reading(engine) as connection:
        count, lowest = connection.execute(query).one()
    if count:
        yield LogDefect(lowest, f"{entries(count)} before position 1, where none can be", RESTORE)


def _check_head(heads: Sequence[_Head], end: int, last: bytes | None) -> Iterator[LogDefect]:
    if len(heads) != 1:
        yield LogDefect(end, f"the head has {len(heads)} rows, not one", RESTORE)
        return
    (head,) = heads
    if tuple(map(type, head)) != (int, bytes, int):
        yield LogDefect(end, "the head has a field of another type than was written", RESTORE)
    elif head.format not in FORMATS:
        yield LogDefect(end, f"the head names the unknown log format {head.format}", UPGRADE)
    elif head.position > end:
        yield LogDefect(end + 1, f"the end is cut off: {entries(head.position - end)} missing", RESTORE)
    elif head.position < end:
        yield LogDefect(head.position + 1, f"the head names {head.position} as the end, the log ends at {end}", RESTORE)
    elif last is not None and head.hash != last:
        yield LogDefect(end, "the head has another hash than the last entry", RESTORE)
