"""Pages of the audit trail: filtered by index, bounded in entries looked at and in bytes."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import ColumnElement, Connection, Select, and_, func, select

from rioni.domain.access.authentication import normalize_realm
from rioni.domain.events import REALM_MARK
from rioni.projections.queries import positions
from rioni.projections.tables import AUDIT_LOG


SCANNED_MAX = 5_000
"""Entries of one index that a page may look at. PERF: with other filters beside it each takes 2 to 5 µs."""
PAGE_BYTES_MAX = 2_000_000
"""States of the entries of a page, before and after together; the first entry has its place whatever its size."""
ROWS_AT_FIRST = 8
"""Each state may have 256 kB and more: the size of the first rows decides how many are read at a time."""

ROWS_MAX = 250

Row = dict[str, Any]
Condition = tuple[tuple[str, str], ...]
"""Columns and their values."""
_C = AUDIT_LOG.c


class AuditQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries are asked for; None asks for all."""

    resource: tuple[str, str] | None = None
    """Kind and key."""
    kind: str | None = None
    """The kind of resource."""
    topic: str | None = None
    """The topic of the domain event."""
    actor: str | None = None
    realm: str | None = None
    """Of the actor, who must be named, too."""
    flow_id: str | None = None
    since: str | None = None
    """As `rioni.domain.timestamps.rfc3339` writes it; included."""
    until: str | None = None
    """Likewise; not included."""


class Place(NamedTuple):
    """Where a page is: behind a position or, turned back, before it, in one of the two orders."""

    ascending: bool = False
    after: int | None = None
    """Positions behind this one, in the order of the page; None for all."""
    before: int | None = None
    """Positions before this one, in the order of the page: those next to it. Used if `after` is None."""


class AuditPage(NamedTuple):
    """A page, complete in what lies between its links."""

    rows: Sequence[Row]
    """Columns of the audit log; `before` and `after` as JSON text."""
    next: int | None
    """The next page comes `after` this position; None at the end of the order."""
    prev: int | None
    """The page before ends `before` this position; None at the beginning."""
    head: int
    """The position of the log that this answer is about."""


def page(connection: Connection, wanted: AuditQuery, place: Place, limit: int) -> AuditPage:
    """The entries that match, next to a place; fewer than there could be where a bound is reached.

    Args:
        connection: to the read models.
        wanted: the filters.
        place: where, and in which order.
        limit: how many entries at most.
    """
    head = positions.head(connection)
    first, end_of_period = positions.recorded_within(connection, wanted.since, wanted.until)
    last = head if end_of_period is None else end_of_period
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
        return AuditPage(rows, end, back, head)
    return AuditPage(rows[::-1], back, end, head)


def _matching(
    connection: Connection, wanted: AuditQuery, among: range, limit: int, *, descending: bool
) -> tuple[Sequence[int], int | None]:
    """The positions of the next entries that match, and the last one that was looked at if there may be more."""
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
    """Whether clients are of a realm, with or without its slash; of none where it is empty."""
    if not (realm := normalize_realm(realm)):
        return ~client.contains(REALM_MARK)
    end = f"{REALM_MARK}{realm}"
    return func.substr(client, func.length(client) - (len(end) - 1)) == end


def _count(connection: Connection, condition: Condition, within: ColumnElement[bool]) -> int:
    """How many entries fulfil a condition, counted no further than one beyond what a page looks at."""
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
