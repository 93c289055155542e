"""Rules for the schema of an event type that is created or changed, of whatever type the schema is."""

import msgspec

from rioni.domain.avro.evolution import evolve_avro_schema
from rioni.domain.avro.parsing import parse_event_schema
from rioni.domain.errors import Invalid
from rioni.domain.event_types.event_type import EventOwnerSelector, EventType, Schema, SubmittedSchema
from rioni.domain.publishing.owner import OwnerSelector
from rioni.domain.schemas.change import Level
from rioni.domain.schemas.checks import check_paths, check_schema
from rioni.domain.schemas.evolution import evolve_schema, next_schema_version
from rioni.domain.schemas.field_path import DeclaredPaths


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
