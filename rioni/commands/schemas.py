"""Commands that add versions to an event type's schema (registry contract 5)."""

from dataclasses import dataclass

from rioni.commands.repository import Repository
from rioni.domain.errors import Invalid, InvalidFields
from rioni.domain.event_type import EventType, Schema, SchemaAdded, SubmittedSchema
from rioni.domain.event_type_rules import schema_violations
from rioni.domain.evolution import evolve_schema


@dataclass(frozen=True, slots=True, kw_only=True)
class AddSchema:
    """Validate events against a new version of the schema from now on."""

    name: str
    schema: SubmittedSchema


def add_schema(command: AddSchema, repository: Repository) -> tuple[Schema, bool]:
    """Add a version, unless the schema is the one that the event type has.

    Returns:
        The schema that now holds, and whether it is new.

    Raises:
        InvalidFields: type or schema is missing.
        Invalid: the schema is not valid, or the compatibility mode forbids the change.
    """
    violations = list(schema_violations(command.schema))
    if violations:
        raise InvalidFields(violations)
    current = repository.event_type(command.name)
    added = evolved_schema(current, command.schema, current, now=repository.context.now)
    if added is None:
        return current.schema, False
    repository.record(SchemaAdded(name=current.name, schema=added))
    return added, True
