"""Queries over the event types."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

import msgspec
from sqlalchemy import Connection, select

from rioni.domain.access.authorization import Attribute
from rioni.domain.errors import EventTypeNotFound
from rioni.domain.event_types.event_type import EventType
from rioni.projections.queries import past
from rioni.projections.queries.past import Moment
from rioni.projections.tables import EVENT_TYPES


EVENT_TYPE = "event-type"


class EventTypeFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which event types are asked for: those for which all of this holds."""

    name: str | None = None
    """`*` matches any text."""
    owning_application: str | None = None
    category: str | None = None
    attributes: tuple[tuple[str, Attribute], ...] = ()
    """Pairs of `admins`, `readers` or `writers` and what that list must name explicitly; wildcards do not count."""
    annotations: tuple[tuple[str, str | None], ...] = ()
    """Keys and their values; None for any value."""
    labels: tuple[tuple[str, str | None], ...] = ()


def body_of(connection: Connection, name: str, at: Moment | None = None) -> str:
    """The JSON of an event type, now or at a moment of the past.

    Raises:
        EventTypeNotFound: there is none of this name.
    """
    if at is None:
        body = connection.scalar(select(EVENT_TYPES.c.body).where(EVENT_TYPES.c.name == name))
    else:
        body = past.state(connection, EVENT_TYPE, name, at)
    if body is None:
        raise EventTypeNotFound(name)
    return str(body)


def page(
    connection: Connection,
    wanted: EventTypeFilter,
    offset: int = 0,
    limit: int | None = None,
    at: Moment | None = None,
) -> tuple[list[str], bool]:
    """The JSON of the event types that are asked for, by name, and whether there are more behind them.

    A moment of the past takes time in proportion to the event types before the end of the page.
    """
    one_more = None if limit is None else limit + 1
    end = None if one_more is None else offset + one_more
    if at is not None:
        found = list(islice(_fitting(past.states(connection, EVENT_TYPE, at), wanted), offset, end))
        return found[:limit], len(found) == one_more
    query = select(EVENT_TYPES.c.body).order_by(EVENT_TYPES.c.name)
    if wanted.owning_application is not None:
        query = query.where(EVENT_TYPES.c.owning_application == wanted.owning_application)
    others = msgspec.structs.replace(wanted, owning_application=None)
    if others == EventTypeFilter():
        found = list(connection.scalars(query.offset(offset).limit(one_more)))
    else:
        found = list(islice(_fitting(connection.scalars(query), others), offset, end))
    return found[:limit], len(found) == one_more


def _fitting(bodies: Iterable[str], wanted: EventTypeFilter) -> Iterable[str]:
    if wanted == EventTypeFilter():
        return bodies
    return (body for body in bodies if _is_wanted(msgspec.json.decode(body, type=EventType), wanted))


def _is_wanted(event_type: EventType, wanted: EventTypeFilter) -> bool:
    return (
        (wanted.name is None or _matches(event_type.name, wanted.name.split("*")))
        and wanted.owning_application in (None, event_type.owning_application)
        and wanted.category in (None, event_type.category)
        and all(_lists(event_type, list_, attribute) for list_, attribute in wanted.attributes)
        and all(_has(event_type.annotations, key, value) for key, value in wanted.annotations)
        and all(_has(event_type.labels, key, value) for key, value in wanted.labels)
    )


def _matches(name: str, pieces: Sequence[str]) -> bool:
    """Whether a name consists of these pieces, with any text between them.

    Each piece is looked for once, at the first place that it has: no pattern takes more than linear time.
    """
    if len(pieces) == 1:
        return name == pieces[0]
    first, *middle, last = pieces
    if not name.startswith(first) or not name.endswith(last) or len(name) < len(first) + len(last):
        return False
    at, end = len(first), len(name) - len(last)
    for piece in middle:
        at = name.find(piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return True


def _lists(event_type: EventType, list_: str, attribute: Attribute) -> bool:
    return event_type.authorization is not None and attribute in getattr(event_type.authorization, list_)


def _has(texts: Mapping[str, str], key: str, value: str | None) -> bool:
    return key in texts and value in (None, texts[key])
