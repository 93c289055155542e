"""Positions of the log that times stand for, as the audit trail has them."""

from collections.abc import Callable

from sqlalchemy import Connection, Select, bindparam, func, select

from rioni.projections.tables import AUDIT_LOG
from rioni.sql.log_tables import LOG


# PERF: SQLAlchemy takes 0.2 ms to put a statement together, and 0.06 ms to execute one that it knows.
_HEAD = select(func.max(AUDIT_LOG.c.position))
_RECORDED_AT = select(AUDIT_LOG.c.recorded_at).where(AUDIT_LOG.c.position == bindparam("at"))
_RECORDED_IN_LOG = select(LOG.c.recorded_at).where(LOG.c.position == bindparam("at"))


def head(connection: Connection) -> int:
    """The last position that the read models show; 0 while the log is empty."""
    return connection.scalar(_HEAD) or 0


def last_recorded_at(connection: Connection) -> str:
    """When the last entry was recorded; empty while the log is empty."""
    return connection.scalar(_RECORDED_AT, {"at": head(connection)}) or ""


def first_since(connection: Connection, time: str) -> int:
    """The position of the first entry recorded at a time or later; one after the last entry if there is none.

    A binary search, since times do not decrease along the log. Releases before 0.1.1 recorded earlier times after the
    clock had been set back by more than an hour; `rioni verify` names these entries. All queries by time use this
    function, so that they agree about them as well.

    Args:
        connection: to the read models.
        time: as `rioni.domain.timestamps.rfc3339` writes it.
    """
    return _first(connection, _RECORDED_AT, head(connection), lambda recorded_at: recorded_at >= time)


def recorded_within(connection: Connection, since: str | None, until: str | None) -> tuple[int, int | None]:
    """The first and the last position of the entries recorded in a period.

    Args:
        connection: to the read models.
        since: the first time, as for `first_since`; None for the beginning of the log.
        until: the end, not included; None for entries without an end, also later ones.
    """
    first = 1 if since is None else first_since(connection, since)
    return first, None if until is None else first_since(connection, until) - 1


def last_until(connection: Connection, time: str) -> int:
    """The position of the last entry recorded at a time or earlier, 0 if there is none; see `first_since`."""
    return _first(connection, _RECORDED_AT, head(connection), lambda recorded_at: recorded_at > time) - 1


def last_in_log_until(connection: Connection, time: str) -> int:
    """As `last_until`, from the log itself: for what does not trust the read models."""
    end = connection.scalar(select(func.max(LOG.c.position))) or 0
    return _first(connection, _RECORDED_IN_LOG, end, lambda recorded_at: recorded_at > time) - 1


def in_log_within(connection: Connection, since: str | None, until: str | None) -> tuple[int, int]:
    """As `recorded_within`, from the log itself; without an end the last position that there is."""
    end = connection.scalar(select(func.max(LOG.c.position))) or 0
    first, last = 1, end
    if since is not None:
        first = _first(connection, _RECORDED_IN_LOG, end, lambda recorded_at: recorded_at >= since)
    if until is not None:
        last = _first(connection, _RECORDED_IN_LOG, end, lambda recorded_at: recorded_at >= until) - 1
    return first, last


def resolved(connection: Connection, moment: int | str) -> tuple[int, int]:
    """The position that a position or a time means, as `last_until`, and the last one that there is."""
    return (moment if isinstance(moment, int) else last_until(connection, moment)), head(connection)


def _first(connection: Connection, recorded_at: Select[str], end: int, is_behind: Callable[[str], bool]) -> int:
    low, high = 1, end + 1
    while low < high:
        middle = (low + high) // 2
        if is_behind(connection.scalar(recorded_at, {"at": middle}) or ""):
            high = middle
        else:
            low = middle + 1
    return low
