"""Commands that add versions to an event type's schema (reference schemas#evolution)."""

from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, Self

import msgspec

from rioni.commands.context import Outside
from rioni.commands.unit_of_work import UnitOfWork
from rioni.domain.avro.evolution import evolve_avro_schema
from rioni.domain.avro.parsing import parse_event_schema
from rioni.domain.errors import Invalid, InvalidFields
from rioni.domain.event_types.event_type import EventOwnerSelector, EventType, Schema, SchemaAdded, SubmittedSchema
from rioni.domain.event_types.rules import schema_violations
from rioni.domain.publishing.owner import OwnerSelector
from rioni.domain.schemas.change import Level
from rioni.domain.schemas.checks import check_paths, check_schema
from rioni.domain.schemas.evolution import evolve_schema, next_schema_version
from rioni.domain.schemas.field_path import DeclaredPaths


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
    violations = list(schema_violations(command.schema))
    if violations:
        raise InvalidFields(violations)
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


def check_submitted_schema(event_type: EventType) -> None:
    """Check a schema by itself; a JSON schema also for the paths into it that the event type names.

    Args:
        event_type: the event type as requested; its schema may have any version.

    Raises:
        Invalid: a rule of reference schemas#schema-checks, event-types#fields is broken.
    """
    if event_type.schema.type == "avro_schema":
        parse_event_schema(event_type.schema.schema)
        return
    effective = check_schema(
        event_type.schema.schema,
        name=event_type.name,
        category=event_type.category,
        compatibility_mode=event_type.compatibility_mode,
        cleanup_policy=event_type.cleanup_policy,
    )
    declared = DeclaredPaths(effective.document)
    check_paths(declared, "ordering_key_fields", event_type.ordering_key_fields)
    check_paths(declared, "ordering_instance_ids", event_type.ordering_instance_ids)
    selector = event_type.event_owner_selector
    if isinstance(selector, EventOwnerSelector) and not _finds_owner_by_itself(selector, event_type):
        check_paths(declared, "event_owner_selector.value", [selector.value])
    if event_type.partition_strategy == "hash":
        within = "data" if event_type.category == "data" else ""
        check_paths(declared, "partition_key_fields", event_type.partition_key_fields, within=within)


def _finds_owner_by_itself(selector: EventOwnerSelector, event_type: EventType) -> bool:
    """Whether an owner selector is independent of the schema: the owner is static, or written by the broker."""
    finder = OwnerSelector.of(selector, enriches=bool(event_type.enrichment_strategies))
    return finder.path is None or finder.enriched


def evolved_schema(current: EventType, submitted: SubmittedSchema, wanted: EventType, *, now: str) -> Schema | None:
    """The version that a submitted schema becomes, or None if the schema is unchanged.

    Args:
        current: the event type as it is.
        submitted: has both members.
        wanted: the requested event type, except for its schema.
        now: the time of the change.

    Raises:
        Invalid: the schema is not valid, or the compatibility mode forbids the change.
    """
    assert submitted.type is not None
    assert submitted.schema is not None
    schema = Schema(type=submitted.type, schema=submitted.schema, version=current.schema.version, created_at=now)
    check_submitted_schema(msgspec.structs.replace(wanted, schema=schema))
    version = _next_version(current, schema, wanted.compatibility_mode)
    return None if version is None else msgspec.structs.replace(schema, version=version)


def _next_version(current: EventType, submitted: Schema, submitted_mode: str) -> str | None:
    """Apply the evolution rules of the schema's type to a change.

    Source: reference schemas#change-levels, schemas#avro-evolution.
    """
    match current.schema.type, submitted.type:
        case "avro_schema", "json_schema":
            raise Invalid("Cannot change from avro_schema to json_schema!")
        case "json_schema", "avro_schema":
            # Nothing to compare: JSON events are still validated against the last JSON schema.
            return next_schema_version(current.schema.version, Level.MAJOR)
        case "avro_schema", _:
            evolve = evolve_avro_schema
        case _:
            evolve = evolve_schema
    return evolve(
        original=current.schema.schema,
        submitted=submitted.schema,
        original_mode=current.compatibility_mode,
        submitted_mode=submitted_mode,
        version=current.schema.version,
    )


def why_incompatible(event_type: EventType, known: Schema, submitted: SubmittedSchema) -> str | None:
    """Why a schema could not follow a version of an event type's schema; None if it could."""
    try:
        evolved_schema(msgspec.structs.replace(event_type, schema=known), submitted, event_type, now=known.created_at)
    except Invalid as ex:
        return str(ex)
    return None
