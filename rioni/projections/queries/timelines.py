"""Queries over the timelines of the past; those of now are in the registry."""

import msgspec
from sqlalchemy import Connection

from rioni.domain.event_types.event_type import EventType
from rioni.domain.timelines.timeline import Timelines
from rioni.projections.queries import event_types, past
from rioni.projections.queries.past import Moment


def timelines_at(connection: Connection, name: str, at: Moment) -> tuple[Timelines, EventType]:
    """The timelines of an event type at a moment, and the event type itself.

    There are none between the entries of the event type's creation.

    Raises:
        EventTypeNotFound: there was none of this name.
    """
    event_type = msgspec.json.decode(event_types.body_of(connection, name, at), type=EventType)
    body = past.state(connection, "timeline", name, at)
    if body is None:
        return Timelines(event_type=name, timelines=()), event_type
    return msgspec.json.decode(body, type=Timelines), event_type
