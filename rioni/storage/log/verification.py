"""Checks the internal log: positions, hash chain, versions, topics, data and end."""

from collections.abc import Callable, Iterator, Sequence

from sqlalchemy import Engine, column, func, select, table

from rioni.domain.hash_chain import GENESIS, LogHead
from rioni.log_tables import LOG
from rioni.storage.log.segments import RESTORE, Finding, Topics, entries, segments
from rioni.storage.sql.engines import reading


__all__ = ["Finding", "verify"]

# Untyped columns, so that damaged values are read as they are.
_ROWS = table("log", *(column(name) for name in LOG.c.keys()))  # noqa: SIM118 - no dict: it iterates over columns
_HEAD = table("head", column("position"), column("hash"))


def verify(
    engine: Engine,
    topics: Topics,
    *,
    from_position: int = 0,
    processes: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[Finding]:
    """Yield all defects of the present log, in constant memory; does not block readers and appends.

    One change may be reported at two positions: if an entry's hash was changed, the next entry does not match it. If
    the end was cut off together with the head, only a previously exported head can reveal it.

    Args:
        engine: of the database.
        topics: all event classes that may occur in the log.
        from_position: the last position known to be correct; checking starts after it.
        processes: how many to use at most, for a long log.
        progress: called with the number of entries checked and their total.

    Raises:
        Unavailable: the database can't be read.
    """
    heads, end, previous = _bounds(engine, from_position)
    position = from_position
    if previous is None:
        yield Finding(position, "this entry, behind which to begin, is missing", RESTORE)
    yield from _check_beginning(engine)
    for segment in segments(engine, topics, from_position, end, processes):
        if segment.first:
            if segment.first != position + 1:
                yield Finding(position + 1, f"{entries(segment.first - position - 1)} missing", RESTORE)
            yield from segment.findings
            position, previous = segment.last, segment.hash
            if progress is not None:
                progress(position - from_position, end - from_position)
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
        yield Finding(lowest, f"{entries(count)} before position 1, where none can be", RESTORE)


def _check_head(heads: Sequence[LogHead], end: int, last: bytes | None) -> Iterator[Finding]:
    if len(heads) != 1:
        yield Finding(end, f"the head has {len(heads)} rows, not one", RESTORE)
        return
    (head,) = heads
    if head.position > end:
        yield Finding(end + 1, f"the end is cut off: {entries(head.position - end)} missing", RESTORE)
    elif head.position < end:
        yield Finding(head.position + 1, f"the head names {head.position} as the end, the log ends at {end}", RESTORE)
    elif last is not None and head.hash != last:
        yield Finding(end, "the head has another hash than the last entry", RESTORE)
