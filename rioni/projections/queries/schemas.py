"""Queries over the versions of schemas."""

from typing import Any

import msgspec
from sqlalchemy import Connection, select

from rioni.domain.avro.nodes import canonical_form
from rioni.domain.avro.parsing import parse_event_schema
from rioni.domain.errors import NotFound
from rioni.domain.event_types.event_type import Schema, SubmittedSchema
from rioni.projections.queries.event_types import body_of as event_type_body
from rioni.projections.tables import SCHEMAS


LATEST = "latest"


def page(connection: Connection, event_type: str, offset: int, limit: int) -> tuple[list[str], bool]:
    """A page of an event type's schemas, newest first, and whether more follow.

    Raises:
        EventTypeNotFound: there is no such event type.
    """
    event_type_body(connection, event_type)
    query = (
        select(SCHEMAS.c.body)
        .where(SCHEMAS.c.event_type == event_type)
        .order_by(SCHEMAS.c.position.desc())
        .offset(offset)
        .limit(limit + 1)
    )
    bodies = list(connection.scalars(query))
    return bodies[:limit], len(bodies) > limit


def body_like(connection: Connection, event_type: str, submitted: SubmittedSchema) -> str:
    """The newest version that means the same as a submitted schema.

    JSON schemas do if they are the same JSON, whatever the order of their members; Avro schemas if they have the same
    Parsing Canonical Form, and so the same fingerprint.

    Raises:
        EventTypeNotFound: there is no such event type.
        NotFound: it has no such version.
        Invalid: the submitted schema is said to be Avro, and is not.
    """
    event_type_body(connection, event_type)
    wanted = _meaning(submitted.type, submitted.schema or "")
    query = select(SCHEMAS.c.body).where(SCHEMAS.c.event_type == event_type).order_by(SCHEMAS.c.position.desc())
    for body in connection.scalars(query):
        schema = msgspec.json.decode(body, type=Schema)
        if schema.type == submitted.type and _meaning(schema.type, schema.schema) == wanted:
            return str(body)
    raise NotFound(f"schema is not found for {event_type}")


def _meaning(type_: str | None, schema: str) -> Any:
    if type_ == "avro_schema":
        return canonical_form(parse_event_schema(schema))
    try:
        return msgspec.json.decode(schema)
    except (msgspec.DecodeError, RecursionError):
        return schema


def body_of(connection: Connection, event_type: str, version: str) -> str:
    """One version of an event type's schema; `latest` is the current one.

    Raises:
        EventTypeNotFound: there is no such event type.
        NotFound: it has no such version.
    """
    event_type_body(connection, event_type)
    query = select(SCHEMAS.c.body).where(SCHEMAS.c.event_type == event_type).order_by(SCHEMAS.c.position.desc())
    if version != LATEST:
        query = query.where(SCHEMAS.c.version == version)
    body = connection.scalar(query.limit(1))
    if body is None:
        raise NotFound(f'EventType "{event_type}" has no schema with version "{version}"')
    return str(body)


def find(connection: Connection, event_type: str, version: str) -> Schema | None:
    """One version of an event type's schema, if it has it."""
    query = select(SCHEMAS.c.body).where(SCHEMAS.c.event_type == event_type, SCHEMAS.c.version == version)
    body = connection.scalar(query)
    return None if body is None else msgspec.json.decode(body, type=Schema)
