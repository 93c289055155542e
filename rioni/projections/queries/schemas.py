"""Queries over the versions of schemas."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec
from sqlalchemy import Connection, select

from rioni.domain.avro.nodes import canonical_form
from rioni.domain.avro.parsing import parse_event_schema
from rioni.domain.errors import NotFound
from rioni.domain.event_types.event_type import EventType, Schema, SubmittedSchema
from rioni.projections.queries import past
from rioni.projections.queries.event_types import body_of as event_type_body
from rioni.projections.queries.past import Moment
from rioni.projections.tables import SCHEMAS


LATEST = "latest"


def page(
    connection: Connection, event_type: str, offset: int, limit: int, at: Moment | None = None
) -> tuple[list[int], bool]:
    """A page of an event type's schemas, now or at a moment of the past, newest first, and whether more follow.

    The schemas are known by the positions at which they came.

    Raises:
        EventTypeNotFound: there is no such event type.
    """
    event_type_body(connection, event_type, at)
    if at is not None:
        came = list(islice(past.schema_positions(connection, event_type, at), offset, offset + limit + 1))
    else:
        query = select(SCHEMAS.c.position).where(SCHEMAS.c.event_type == event_type)
        came = [*connection.scalars(query.order_by(SCHEMAS.c.position.desc()).offset(offset).limit(limit + 1))]
    return came[:limit], len(came) > limit


def piece(
    connection: Connection, event_type: str, came: Sequence[int], at: Moment | None = None
) -> tuple[list[bytes], int]:
    """The JSON of the first of those schemas of an event type that came at some positions, and how many that were."""

    def read(some: Sequence[int]) -> Mapping[int, bytes]:
        if at is not None:
            return {position: _past_body(connection, position).encode() for position in some}
        here = SCHEMAS.c.event_type == event_type, SCHEMAS.c.position.in_(some)
        rows = connection.execute(select(SCHEMAS.c.position, SCHEMAS.c.body).where(*here))
        return {position: body.encode() for position, body in rows}

    return past.piece(read, came)


def body_like(connection: Connection, event_type: str, submitted: SubmittedSchema) -> str:
    """The newest version that means the same as a submitted schema.

    JSON schemas do if they are the same JSON, whatever the order of their members; Avro schemas if they have the same
    Parsing Canonical Form, and so the same fingerprint.

    Raises:
        EventTypeNotFound: there is no such event type.
        NotFound: it has no such version.
        Invalid: the submitted schema is declared as Avro, and is not.
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


def _past_body(connection: Connection, position: int) -> str:
    event_type = msgspec.json.decode(past.state_behind(connection, position), type=EventType)
    return msgspec.json.encode(event_type.schema).decode()


def body_of(connection: Connection, event_type: str, version: str, at: Moment | None = None) -> str:
    """One version of an event type's schema, now or at a moment of the past; `latest` is the current one.

    Raises:
        EventTypeNotFound: there is no such event type.
        NotFound: it has no such version.
    """
    event_type_body(connection, event_type, at)
    if at is not None:
        came = past.schema_positions(connection, event_type, at)
        bodies = (_past_body(connection, position) for position in list(came))
        body = next(
            (each for each in bodies if version in (LATEST, msgspec.json.decode(each, type=Schema).version)), None
        )
    else:
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
