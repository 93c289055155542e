"""The audit trail: who changed what, when, from where; as a whole, in pages, and which positions times stand for."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import ColumnElement, Connection, Select, and_, bindparam, func, select

from rioni.domain.access.authorization import normalize_realm
from rioni.domain.events import REALM_MARK, client_parts, realm_of
from rioni.projections.tables import AUDIT_LOG
from rioni.sql.log_tables import LOG
from rioni.sql.tracking import Begin


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
        time: the time, as `rioni.domain.timestamps.rfc3339` writes it.
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
    """The position of the last entry recorded at a time or earlier, 0 without one; see `first_since`."""
    return _first(connection, _RECORDED_AT, head(connection), lambda recorded_at: recorded_at > time) - 1


def last_in_log_until(connection: Connection, time: str) -> int:
    """The result of `last_until`, from the log itself: for code that does not trust the read models."""
    end = connection.scalar(select(func.max(LOG.c.position))) or 0
    return _first(connection, _RECORDED_IN_LOG, end, lambda recorded_at: recorded_at > time) - 1


def in_log_within(connection: Connection, since: str | None, until: str | None) -> tuple[int, int]:
    """The result of `recorded_within`, from the log itself; without an end, the last position."""
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


# --- Pages of the audit trail: filtered by index, bounded in entries examined and in bytes ---

SCANNED_MAX = 5_000
"""Entries of one index that a page may read. PERF: with further filters each takes 2 to 5 µs."""
PAGE_BYTES_MAX = 2_000_000
"""States of the entries of a page, before and after together; the first entry is included whatever its size."""
ROWS_AT_FIRST = 8
"""Each state may have 256 kB and more: the size of the first rows decides how many are read at a time."""

ROWS_MAX = 250

Row = dict[str, Any]
Condition = tuple[tuple[str, str], ...]
"""Columns and their values."""
_C = AUDIT_LOG.c


class AuditQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of audit entries; None matches all."""

    resource: tuple[str, str] | None = None
    """Kind and key."""
    kind: str | None = None
    """The kind of resource."""
    topic: str | None = None
    """The topic of the domain event."""
    actor: str | None = None
    realm: str | None = None
    """The realm of the actor, who must be named, too."""
    flow_id: str | None = None
    since: str | None = None
    """The start of the period, as `rioni.domain.timestamps.rfc3339` writes it; included."""
    until: str | None = None
    """The end of the period, as `rioni.domain.timestamps.rfc3339` writes it; not included."""


class PageStart(NamedTuple):
    """The place of a page: after a position or, turned back, before it, in one of the two orders."""

    ascending: bool = False
    after: int | None = None
    """Start of the page: positions after this one, in the order of the page; None for all."""
    before: int | None = None
    """Positions before this one, in the order of the page: those next to it. Used if `after` is None."""


class AuditPage(NamedTuple):
    """A page, which has all entries between its links."""

    rows: Sequence[Row]
    """Columns of the audit log; `before` and `after` as JSON text."""
    next: int | None
    """The next page comes `after` this position; None at the end of the order."""
    prev: int | None
    """The page before ends `before` this position; None at the beginning."""
    head: int
    """The position of the log that this answer is about."""


def page(connection: Connection, wanted: AuditQuery, place: PageStart, limit: int) -> AuditPage:
    """The entries that match, next to a place; fewer than there could be if a limit is reached.

    Args:
        connection: to the read models.
        wanted: the filters.
        place: the place and the order.
        limit: how many entries at most.
    """
    newest = head(connection)
    first, end_of_period = recorded_within(connection, wanted.since, wanted.until)
    last = newest if end_of_period is None else end_of_period
    step = 1 if place.ascending else -1
    # A page that ends before a position is searched backwards from there.
    start, direction = (
        (place.before, -step) if place.after is None and place.before is not None else (place.after, step)
    )
    low = first if start is None or direction < 0 else max(first, start + 1)
    high = last if start is None or direction > 0 else min(last, start - 1)
    found, end = _matching(connection, wanted, range(low, high + 1), limit, descending=direction < 0)
    rows = list(_read(connection, found))
    if len(rows) < len(found):
        end = rows[-1]["position"]
    # The position on the other side of the start, from which a page in the other direction goes on.
    back = None
    if start is not None and (start >= first if direction > 0 else start <= last):
        back = start + direction
    if direction == step:
        return AuditPage(rows, end, back, newest)
    return AuditPage(rows[::-1], back, end, newest)


def _matching(
    connection: Connection, wanted: AuditQuery, among: range, limit: int, *, descending: bool
) -> tuple[Sequence[int], int | None]:
    """The positions of the next entries that match, and the last one that was checked if there may be more."""
    conditions = _conditions(wanted)
    has_realm = wanted.realm is not None
    assert conditions or not has_realm, "a realm without an actor"
    if not among:
        return (), None
    if not conditions:
        # There are no gaps.
        found: Sequence[int] = (among[::-1] if descending else among)[:limit]
        return found, found[-1] if len(among) > limit else None
    within = _C.position.between(among[0], among[-1])
    if len(conditions) > 1 or has_realm:
        scanned, fewest = min((_count(connection, each, within), n) for n, each in enumerate(conditions))
    else:
        scanned, fewest = 0, 0
    driving = _on(conditions.pop(fewest), _C)
    order = _C.position.desc() if descending else _C.position
    if not conditions and not has_realm:
        query: Select[Any] = select(_C.position).where(driving, within).order_by(order).limit(limit + 1)
        found = list(connection.scalars(query))
        return found[:limit], found[limit - 1] if len(found) > limit else None
    columns = (_C.position, _C.actor, _C.client, _C.flow_id, _C.topic, _C.resource_type, _C.resource)
    looked_at = select(*columns).where(driving, within).order_by(order).limit(SCANNED_MAX).subquery()
    others = [_on(each, looked_at.c) for each in conditions]
    if wanted.realm is not None:
        others.append(of_realm(looked_at.c.client, wanted.realm))
    place = looked_at.c.position
    matching = select(place).where(*others).order_by(place.desc() if descending else place).limit(limit + 1)
    found = list(connection.scalars(matching))
    if len(found) > limit:
        return found[:limit], found[limit - 1]
    if scanned <= SCANNED_MAX:
        return found, None
    return found, connection.scalar(select(func.min(place) if descending else func.max(place)))


def _conditions(wanted: AuditQuery) -> list[Condition]:
    """A condition for each filter; each has an index in log order."""
    kind, key = wanted.resource or (None, None)
    filters = (
        {"flow_id": wanted.flow_id},
        {"resource_type": kind, "resource": key},
        {"topic": wanted.topic},
        {"actor": wanted.actor},
        {"resource_type": wanted.kind},
    )
    return [
        tuple((name, value) for name, value in each.items() if value is not None)
        for each in filters
        if None not in each.values()
    ]


def _on(condition: Condition, columns: Any) -> ColumnElement[bool]:
    return and_(*(columns[name] == value for name, value in condition))


def of_realm(client: ColumnElement[str], realm: str) -> ColumnElement[bool]:
    """Whether clients are of a realm, with or without its slash; an empty one matches clients without a realm."""
    if not (realm := normalize_realm(realm)):
        return ~client.contains(REALM_MARK)
    end = f"{REALM_MARK}{realm}"
    return func.substr(client, func.length(client) - (len(end) - 1)) == end


def _count(connection: Connection, condition: Condition, within: ColumnElement[bool]) -> int:
    """How many entries fulfil a condition, counted up to one more than a page may read."""
    some = select(_C.position).where(_on(condition, _C), within).limit(SCANNED_MAX + 1).subquery()
    return connection.scalar(select(func.count()).select_from(some)) or 0


def _read(connection: Connection, found: Sequence[int]) -> Iterator[Row]:
    """Yield the rows at positions, in this order, until the page is full."""
    size, done, rows_at_once = 0, 0, ROWS_AT_FIRST
    while done < len(found):
        part = found[done : done + rows_at_once]
        rows = {row.position: row for row in connection.execute(select(AUDIT_LOG).where(_C.position.in_(part)))}
        for position in part:
            row = rows[position]
            size += len(row.before or "") + len(row.after or "")
            if size > PAGE_BYTES_MAX and done:
                return
            done += 1
            yield row._asdict()
        rows_at_once = max(1, min(ROWS_MAX, (PAGE_BYTES_MAX - size) * done // max(1, size)))


# --- Queries over the audit log: who changed what, when, from where, with both states ---

ENTRIES_PER_READ = 500
"""The number of entries read at once, with the states before and after, each of which may have 256 kB."""


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of audit entries; None matches all."""

    since: str | None = None
    """RFC 3339, included."""
    until: str | None = None
    """RFC 3339, not included."""
    actor: str | None = None
    realm: str | None = None
    """The realm of the actor."""
    resource: str | None = None
    """A natural key such as an event type's name, or `<kind>:<key>`."""


def entries(begin: Begin, wanted: AuditFilter, *, after: int = 0) -> Iterator[dict[str, Any]]:
    """Yield the entries after a log position that match, in order, `before` and `after` as JSON text.

    The address of the client, its user agent, and the realm of its subject are `client`, `user_agent`, `realm`.

    Args:
        begin: begins a transaction that reads. There are many short ones, so that slow consumers of the entries don't
            keep a transaction open.
        wanted: a filter of the entries.
        after: the position.
    """
    with begin() as connection:
        first, last = recorded_within(connection, wanted.since, wanted.until)
    after = max(after, first - 1)
    while page := _page(begin, wanted, after, last):
        yield from page
        after = page[-1]["position"]


def resources(connection: Connection) -> list[tuple[str, str]]:
    """The kinds and the keys of all resources with entries."""
    columns = AUDIT_LOG.c
    rows = connection.execute(select(columns.resource_type, columns.resource).distinct())
    return [(row.resource_type, row.resource) for row in rows]


def _page(begin: Begin, wanted: AuditFilter, after: int, last: int | None) -> list[dict[str, Any]]:
    columns = AUDIT_LOG.c
    query = select(AUDIT_LOG).where(columns.position > after).order_by(columns.position).limit(ENTRIES_PER_READ)
    if last is not None:
        query = query.where(columns.position <= last)
    if wanted.actor is not None:
        query = query.where(columns.actor == wanted.actor)
    if wanted.realm is not None:
        query = query.where(of_realm(columns.client, wanted.realm))
    if wanted.resource is not None:
        kind, colon, key = wanted.resource.partition(":")
        matches = (columns.resource == key) & (columns.resource_type == kind)
        query = query.where(matches | (columns.resource == wanted.resource) if colon else columns.resource == kind)
    with begin() as connection:
        return [with_client_parts(dict(row)) for row in connection.execute(query).mappings()]


def with_client_parts(row: Mapping[str, Any]) -> dict[str, Any]:
    """An entry whose client is three members: its address `client`, `user_agent`, and `realm`, empty if unknown."""
    client, user_agent = client_parts(row["client"])
    return {**row, "client": client, "user_agent": user_agent, "realm": realm_of(row["client"])}
