"""Queries over the event types."""

import msgspec
from sqlalchemy import Connection, select

from rioni.domain.authorization import Attribute
from rioni.domain.errors import EventTypeNotFound
from rioni.domain.event_type import EventType
from rioni.projections.tables import EVENT_TYPES


def body_of(connection: Connection, name: str) -> str:
    """The JSON of an event type.

    Raises:
        EventTypeNotFound: there is none of this name.
    """
    body = connection.scalar(select(EVENT_TYPES.c.body).where(EVENT_TYPES.c.name == name))
    if body is None:
        raise EventTypeNotFound(name)
    return str(body)


def bodies(connection: Connection, owning_application: str | None, writer: Attribute | None) -> list[str]:
    """The JSON of all event types by name.

    Args:
        connection: to the read models.
        owning_application: only those of this application.
        writer: only those whose writers list exactly this attribute; wildcards do not count.
    """
    query = select(EVENT_TYPES.c.body).order_by(EVENT_TYPES.c.name)
    if owning_application is not None:
        query = query.where(EVENT_TYPES.c.owning_application == owning_application)
    found = list(connection.scalars(query))
    return found if writer is None else [body for body in found if _lists_writer(body, writer)]


def _lists_writer(body: str, writer: Attribute) -> bool:
    authorization = msgspec.json.decode(body, type=EventType).authorization
    return authorization is not None and writer in authorization.writers
