"""Queries over the event types."""

from itertools import islice

import msgspec
from sqlalchemy import Connection, select

from rioni.domain.errors import EventTypeNotFound
from rioni.domain.event_types.event_type import EventType
from rioni.domain.event_types.filters import EVERYTHING, EventTypeFilter, matcher
from rioni.projections.queries import past
from rioni.projections.queries.past import Moment
from rioni.projections.tables import EVENT_TYPES


EVENT_TYPE = "event-type"


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


def page(connection: Connection, offset: int = 0, limit: int | None = None) -> tuple[list[bytes], bool]:
    """The JSON of all event types of the present, by name, and whether there are more after the page.

    PERF: 1 ms for a page, however many there are; with filters `rioni.domain.event_types.filters` is faster.
    """
    query = select(EVENT_TYPES.c.body).order_by(EVENT_TYPES.c.name).offset(offset)
    bodies = connection.scalars(query if limit is None else query.limit(limit + 1))
    return _cut([body.encode() for body in bodies], limit)


def past_page(
    connection: Connection, at: Moment, wanted: EventTypeFilter = EVERYTHING, offset: int = 0, limit: int | None = None
) -> tuple[list[bytes], bool]:
    """The JSON of the event types that matched at a moment of the past, by name, and whether there were more.

    It takes time in proportion to the event types before the end of the page.
    """
    end = None if limit is None else offset + limit + 1
    bodies = past.states(connection, EVENT_TYPE, at)
    if wanted != EVERYTHING:
        matches = matcher(wanted)
        bodies = (body for body in bodies if matches(_decoded(body)))
    return _cut([body.encode() for body in islice(bodies, offset, end)], limit)


def past_event_types(connection: Connection, at: Moment) -> list[EventType]:
    """All event types at a moment of the past."""
    return [*map(_decoded, past.states(connection, EVENT_TYPE, at))]


def _cut(bodies: list[bytes], limit: int | None) -> tuple[list[bytes], bool]:
    """A page of bodies, of which there may be one more, and whether there is."""
    return bodies[:limit], limit is not None and len(bodies) > limit


def _decoded(body: str) -> EventType:
    return msgspec.json.decode(body, type=EventType)
