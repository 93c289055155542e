"""Commands that add versions to an event type's schema (reference schemas#evolution)."""

from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, Self

import msgspec

from rioni.commands.unit_of_work import Outside, UnitOfWork
from rioni.domain.errors import Invalid, InvalidFields
from rioni.domain.event_types.event_type import EventType, Schema, SchemaAdded, SubmittedSchema
from rioni.domain.event_types.rules import schema_violations
from rioni.domain.schema_changes import evolved_schema


@dataclass(frozen=True, slots=True, kw_only=True)
class AddSchema:
    """Validate events against a new version of the schema from now on."""

    name: str
    schema: SubmittedSchema
    evolved: "EvolvedSchema | None" = None
    """Set by the command itself."""


class EvolvedSchema(NamedTuple):
    """The version that a submitted schema becomes, computed without a lock; valid while the event type is unchanged."""

    current: EventType
    """The event type that the schema was compared with."""
    wanted: EventType
    """The requested event type, except for its schema."""
    added: Schema | None
    """The new version, None if the schema is unchanged."""

    @classmethod
    def of(cls, current: EventType, submitted: SubmittedSchema, wanted: EventType, *, now: str) -> Self:
        """Check and compare; slow for large schemas; raises as `evolved_schema` does."""
        return cls(current, wanted, evolved_schema(current, submitted, wanted, now=now))

    def is_of(self, current: EventType, wanted: EventType) -> bool:
        """Whether this result is valid for the current state of an event type."""
        return self.current == current and self.wanted == wanted


def add_schema(command: AddSchema, unit_of_work: UnitOfWork) -> tuple[Schema, bool] | Outside:
    """Add a version, unless the schema is unchanged.

    Returns:
        The current schema, and whether it is new.

    Raises:
        InvalidFields: type or schema is missing.
        Invalid: the schema is not valid, or the compatibility mode forbids the change.
    """
    InvalidFields.check(schema_violations(command.schema))
    current = unit_of_work.event_type(command.name)
    evolved = command.evolved
    if evolved is None or not evolved.is_of(current, current):
        return Outside(partial(_evolved, command, current, unit_of_work))
    if evolved.added is None:
        return current.schema, False
    unit_of_work.record(SchemaAdded(name=current.name, schema=evolved.added))
    return evolved.added, True


def _evolved(command: AddSchema, current: EventType, unit_of_work: UnitOfWork) -> AddSchema:
    evolve = partial(EvolvedSchema.of, current, command.schema, current, now=unit_of_work.context.now)
    return replace(command, evolved=unit_of_work.compute(evolve))


def why_incompatible(event_type: EventType, known: Schema, submitted: SubmittedSchema) -> str | None:
    """Why a schema could not follow a version of an event type's schema; None if it could."""
    try:
        evolved_schema(msgspec.structs.replace(event_type, schema=known), submitted, event_type, now=known.created_at)
    except Invalid as ex:
        return str(ex)
    return None
