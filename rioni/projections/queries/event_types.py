"""Queries over the event types, and over their timelines of the past; those of now are in the registry."""

from collections.abc import Mapping, Sequence
from itertools import islice

import msgspec
from sqlalchemy import Connection, select

from rioni.domain.errors import EventTypeNotFound
from rioni.domain.event_types.event_type import EventType
from rioni.domain.event_types.selection import EVERYTHING, EventTypeFilter, matcher
from rioni.domain.timelines.timeline import Timelines
from rioni.projections.queries import past
from rioni.projections.queries.past import Moment
from rioni.projections.tables import EVENT_TYPES


EVENT_TYPE = "event-type"


def body_of(connection: Connection, name: str, at: Moment | None = None) -> str:
    """The JSON of an event type, now or at a moment of the past.

    Raises:
        EventTypeNotFound: there is no event type of this name.
    """
    body = past.body_of(connection, EVENT_TYPES, EVENT_TYPE, name, at)
    if body is None:
        raise EventTypeNotFound(name)
    return body


def page(connection: Connection, offset: int = 0, limit: int | None = None) -> tuple[list[str], bool]:
    """The names of all event types of the present, in order, and whether there are more after the page.

    PERF: 1 ms for a page, however many there are; with filters `rioni.domain.event_types.selection` is faster.
    """
    query = select(EVENT_TYPES.c.name).order_by(EVENT_TYPES.c.name).offset(offset)
    return _cut([*connection.scalars(query if limit is None else query.limit(limit + 1))], limit)


def piece(connection: Connection, names: Sequence[str], at: Moment | None = None) -> tuple[list[bytes], int]:
    """The JSON of the first of some event types, now or at a moment of the past, and how many names that were."""

    def read(some: Sequence[str]) -> Mapping[str, bytes]:
        bodies = past.bodies_of(connection, EVENT_TYPES, EVENT_TYPE, some, at)
        return {name: body.encode() for name, body in bodies.items()}

    return past.piece(read, names)


def past_page(
    connection: Connection, at: Moment, wanted: EventTypeFilter = EVERYTHING, offset: int = 0, limit: int | None = None
) -> tuple[list[str], bool]:
    """The names of the event types that matched at a moment of the past, in order, and whether there were more.

    It takes time in proportion to the event types before the end of the page.
    """
    end = None if limit is None else offset + limit + 1
    if wanted == EVERYTHING:
        names = past.keys(connection, EVENT_TYPE, at)
    else:
        event_types = map(_decoded, past.states(connection, EVENT_TYPE, at))
        names = (each.name for each in filter(matcher(wanted), event_types))
    return _cut([*islice(names, offset, end)], limit)


def past_event_types(connection: Connection, at: Moment) -> list[EventType]:
    """All event types at a moment of the past."""
    return [*map(_decoded, past.states(connection, EVENT_TYPE, at))]


def _cut(names: list[str], limit: int | None) -> tuple[list[str], bool]:
    """Cut a page of names that may have one too many; return it, and whether it had."""
    return names[:limit], limit is not None and len(names) > limit


def _decoded(body: str) -> EventType:
    return msgspec.json.decode(body, type=EventType)


# --- Queries over the timelines of the past; those of now are in the registry ---


def timelines_at(connection: Connection, name: str, at: Moment) -> tuple[Timelines, EventType]:
    """The timelines of an event type at a moment, and the event type itself.

    The event type has no timelines between the entries of its creation.

    Raises:
        EventTypeNotFound: there was no event type of this name.
    """
    event_type = _decoded(body_of(connection, name, at))
    body = past.state(connection, "timeline", name, at)
    if body is None:
        return Timelines(event_type=name, timelines=()), event_type
    return msgspec.json.decode(body, type=Timelines), event_type
