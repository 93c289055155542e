"""Copies the internal log into another database: entry by entry, preserving the hash chain."""

from collections.abc import Callable

from sqlalchemy import Engine, func, insert, select, update

from rioni.domain.errors import Conflict
from rioni.domain.hash_chain import LogHead
from rioni.sql.log_tables import HEAD, LOG, TRACKING
from rioni.storage.log.recorder import lock_head
from rioni.storage.log.segments import hash_at
from rioni.storage.sql.engines import reading, writing


ROWS_PER_TURN = 500
CopyProgress = Callable[[int, int], None]


def copy_log(source: Engine, target: Engine, progress: CopyProgress) -> LogHead:
    """Copy the entries that the target lacks; existing ones are unchanged. Blocks.

    Args:
        source: must not be written to meanwhile.
        target: migrated to the same schema; empty, or with a beginning of the same log.
        progress: called with the number of copied entries and the total number.

    Returns:
        The head of the source.

    Raises:
        Conflict: the target holds another log, or one that has diverged.
        Unavailable: a database can't be used.
    """
    with reading(source) as connection:
        row = connection.execute(select(HEAD.c.position, HEAD.c.hash, HEAD.c.format)).one()
        end = LogHead(row.position, row.hash)
    _check_same(source, target, end)
    while True:
        with writing(target) as connection:
            head = lock_head(connection)
            progress(min(head.position, end.position), end.position)
            if head.position >= end.position:
                return end
            with reading(source) as beginning:
                query = select(LOG).where(LOG.c.position > head.position).order_by(LOG.c.position)
                rows = [dict(row) for row in beginning.execute(query.limit(ROWS_PER_TURN)).mappings()]
            connection.execute(insert(LOG), rows)
            last = rows[-1]
            connection.execute(update(HEAD).values(position=last["position"], hash=last["hash"], format=row.format))


def copy_followers(source: Engine, target: Engine, *, but: str) -> None:
    """Copy the checkpoints of the log's consumers, except that of `but`; blocks."""
    with reading(source) as connection:
        rows = connection.execute(select(TRACKING.c.name, TRACKING.c.position).where(TRACKING.c.name != but)).all()
    with writing(target) as connection:
        for name, position in rows:
            known = TRACKING.c.name == name
            if not connection.execute(update(TRACKING).where(known).values(position=position)).rowcount:
                connection.execute(insert(TRACKING).values(name=name, position=position))


def _check_same(source: Engine, target: Engine, end: LogHead) -> None:
    """Compare the last common entry: its hash covers all entries before it."""
    with reading(target) as connection:
        last = min(end.position, connection.scalar(select(func.max(LOG.c.position))) or 0)
        theirs = hash_at(connection, last)
    with reading(source) as connection:
        ours = hash_at(connection, last)
    if ours != theirs:
        raise Conflict(
            f"The database to migrate to holds another log: entry {last} differs. Use an empty database or the target "
            "of the earlier run."
        )
