"""States of the past: the state of each resource at a position of the log, from the audit trail; lists in pieces."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import ge, gt, le, lt
from typing import Any, NamedTuple, TypeVar

import msgspec
from sqlalchemy import ColumnElement, Connection, ScalarSelect, Select, Table, bindparam, exists, select

from rioni.domain.system.settings import SETTINGS, Settings
from rioni.projections.tables import AUDIT_LOG, STATES


KEYS_PER_READ = 250
ROWS_AT_ONCE = 16
"""How many rows are in memory at once: each has a state, which may have 600 kB; most have 1 kB."""

_C = AUDIT_LOG.c


class Moment(NamedTuple):
    """A position of the log, and whether to show resources that were deleted later."""

    position: int
    """The last entry that counts."""
    deleted: bool = True
    """Whether to show resources that no longer exist today; one created later under the same name is another one."""


def _state_of(kind: Any, key: Any) -> ScalarSelect[Any]:
    """The state after the last entry of a resource up to a position."""
    return (
        select(_C.after)
        .where(_C.resource_type == kind, _C.resource == key, _C.position <= bindparam("at"))
        .order_by(_C.position.desc())
        .limit(1)
        .scalar_subquery()
    )


# PERF: SQLAlchemy takes 0.2 ms to put a statement together, and 0.06 ms to execute one that it knows.
_STATE = select(_state_of(bindparam("kind"), bindparam("key")))
_CREATED = AUDIT_LOG.alias("created")
CREATIONS = ("event-type.created", "subscription.created", "storage.created")
"""Topics of entries with which resources begin whose names may be used again."""


def _created_later(kind: Any, key: Any) -> ColumnElement[bool]:
    """Whether today's resource with this key was created after a position: then an earlier one was another."""
    created = _CREATED.c
    return exists().where(
        created.resource_type == kind,
        created.resource == key,
        created.position > bindparam("at"),
        created.topic.in_(CREATIONS),
    )


_EXISTS = select(STATES.c.key).where(
    STATES.c.kind == bindparam("kind"),
    STATES.c.key == bindparam("key"),
    STATES.c.state.is_not(None),
    ~_created_later(STATES.c.kind, STATES.c.key),
)
_SUBSCRIPTIONS = (
    select(_CREATED.c.position, _CREATED.c.resource, _state_of("subscription", _CREATED.c.resource).label("body"))
    .where(_CREATED.c.topic == "subscription.created", _CREATED.c.position < bindparam("before"))
    .order_by(_CREATED.c.position.desc())
    .limit(KEYS_PER_READ)
)


def state(connection: Connection, kind: str, key: str, at: Moment) -> str | None:
    """The state of a resource as JSON; None if it did not exist, or must not be shown.

    Args:
        connection: to the read models.
        kind: the kind of the resource.
        key: the key of the resource.
        at: when.
    """
    if not at.deleted and not _exists(connection, kind, key, at):
        return None
    return connection.scalar(_STATE, {"kind": kind, "key": key, "at": at.position})


def states(
    connection: Connection,
    kind: str,
    at: Moment,
    *,
    start: str | None = None,
    inclusive: bool = True,
    descending: bool = False,
) -> Iterator[str]:
    """Yield the states of all resources of a kind as JSON, by their keys.

    Args:
        connection: to the read models.
        kind: the kind of the resources.
        at: when.
        start: the first key; None for all.
        inclusive: whether the first key itself counts.
        descending: whether to go from later keys to earlier ones.
    """
    found = _keys_and(connection, kind, at, lambda body: body, start=start, inclusive=inclusive, descending=descending)
    return (str(body) for _, body in found)


def keys(connection: Connection, kind: str, at: Moment) -> Iterator[str]:
    """Yield the keys of all resources of a kind that there were, in order; reads no state."""
    for key, existed in _keys_and(connection, kind, at, lambda body: body.is_not(None)):
        if existed:
            yield key


def _keys_and(
    connection: Connection,
    kind: str,
    at: Moment,
    column: Callable[[ScalarSelect[Any]], ColumnElement[Any]],
    *,
    start: str | None = None,
    inclusive: bool = True,
    descending: bool = False,
) -> Iterator[tuple[str, Any]]:
    """Yield the keys of a kind with the values of a column made of their states, except keys without a value."""
    key = STATES.c.key
    while True:
        query: Select[Any] = select(key, column(_state_of(STATES.c.kind, key)).label("body")).where(
            STATES.c.kind == kind
        )
        if start is not None:
            compare = (le if inclusive else lt) if descending else (ge if inclusive else gt)
            query = query.where(compare(key, start))
        if not at.deleted:
            query = query.where(STATES.c.state.is_not(None), ~_created_later(STATES.c.kind, key))
        query = query.order_by(key.desc() if descending else key).limit(KEYS_PER_READ)
        count = 0
        # Not all at once: some of them may be large.
        for row in connection.execute(query.execution_options(yield_per=ROWS_AT_ONCE), {"at": at.position}):
            count, start, inclusive = count + 1, row.key, False
            if row.body is not None:
                yield row.key, row.body
        if count < KEYS_PER_READ:
            return


def newest_subscriptions(connection: Connection, at: Moment) -> Iterator[str]:
    """Yield the states of all subscriptions as JSON, in the reverse order of their creation."""
    before = at.position + 1
    query = _SUBSCRIPTIONS.execution_options(yield_per=ROWS_AT_ONCE)
    while True:
        count = 0
        for row in connection.execute(query, {"at": at.position, "before": before}):
            count, before = count + 1, row.position
            if row.body is not None and (at.deleted or _exists(connection, "subscription", row.resource, at)):
                yield row.body
        if not count:
            return


_SCHEMA_TOPICS = ("event-type.schema-added", "event-type.created", "event-type.deleted")
_SCHEMAS = (
    select(_C.position, _C.topic)
    .where(
        _C.resource_type == "event-type",
        _C.resource == bindparam("name"),
        _C.position <= bindparam("at"),
        _C.topic.in_(_SCHEMA_TOPICS),
    )
    .order_by(_C.position.desc())
)
_STATE_BEHIND = select(_C.after).where(_C.position == bindparam("position"))


def schema_positions(connection: Connection, event_type: str, at: Moment) -> Iterator[int]:
    """Yield the positions at which the versions of an event type's schema came, newest first.

    Those of an event type of the same name that was deleted before do not count.
    """
    result = connection.execute(_SCHEMAS, {"name": event_type, "at": at.position})
    for row in result:
        if row.topic == "event-type.deleted":
            return
        yield row.position
        if row.topic == "event-type.created":
            return


def state_behind(connection: Connection, position: int) -> str:
    """The state, as JSON, that the entry at a position has led to; it must have led to one."""
    return str(connection.scalar(_STATE_BEHIND, {"position": position}))


def changed_between(connection: Connection, first: int, last: int) -> list[tuple[str, str]]:
    """The kinds and keys of all resources with entries after the first position, up to the last."""
    changed = select(_C.resource_type, _C.resource).where(_C.position > first, _C.position <= last).distinct()
    return sorted((kind, key) for kind, key in connection.execute(changed))


def _exists(connection: Connection, kind: str, key: str, at: Moment) -> bool:
    """Whether the resource that had this key at a moment exists today."""
    return connection.scalar(_EXISTS, {"kind": kind, "key": key, "at": at.position}) is not None


# --- The present and the past in one query ---


def body_of(connection: Connection, table: Table, kind: str, key: str, at: Moment | None) -> str | None:
    """The JSON of a resource, now from its table or at a moment of the past; None if there is none."""
    if at is not None:
        return state(connection, kind, key, at)
    (column,) = table.primary_key.columns
    return connection.scalar(select(table.c.body).where(column == key))


def bodies_of(
    connection: Connection, table: Table, kind: str, keys: Sequence[str], at: Moment | None
) -> dict[str, str]:
    """The JSON of some resources by their keys, as `body_of`; those that there are not are left out."""
    if at is not None:
        return {key: body for key in keys if (body := state(connection, kind, key, at)) is not None}
    (column,) = table.primary_key.columns
    rows = connection.execute(select(column, table.c.body).where(column.in_(keys)))
    return dict(rows.all())


PIECE_BYTES = 262_144
"""The size at which a piece is full; its last body may have 600 kB."""
ROWS_AT_FIRST = 4
"""The number of rows read first; their size decides how many are read next."""
ROWS_MAX = 64
"""The maximum number of rows read at once; rows that don't fit into the piece are read again for the next one."""

K = TypeVar("K")
B = TypeVar("B", str, bytes)


def piece(read: Callable[[Sequence[K]], Mapping[K, B]], keys: Sequence[K]) -> tuple[list[B], int]:
    """The bodies of the first keys, until there are `PIECE_BYTES`, and how many keys that were.

    Args:
        read: reads the bodies of some keys; those that have none any more are left out.
        keys: in the order of the list.
    """
    found: list[B] = []
    size, done, rows_at_once = 0, 0, ROWS_AT_FIRST
    while done < len(keys) and size < PIECE_BYTES:
        part = keys[done : done + rows_at_once]
        bodies = read(part)
        for key in part:
            if size >= PIECE_BYTES:
                break
            done += 1
            if (body := bodies.get(key)) is not None:
                found.append(body)
                size += len(body)
        rows_at_once = max(1, min(ROWS_MAX, (PIECE_BYTES - size) * done // max(1, size)))
    return found, done


# --- Queries over the broker's settings of the past; those of now are in the registry ---


def settings_at(connection: Connection, at: Moment) -> Settings:
    """The settings at a moment; those of a new broker until one was changed."""
    body = state(connection, "settings", SETTINGS, at)
    return Settings() if body is None else msgspec.json.decode(body, type=Settings)
