"""The rules for publishing a batch: those of its event type, compiled once, and the data of its request.

Source: reference schemas#effective-schema, publishing#partitioning, publishing#event-owners.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from rioni.domain.event_types.event_type import EventOwnerSelector, EventType, stores_eids_once
from rioni.domain.limits import Limits
from rioni.domain.publishing import partitioning
from rioni.domain.publishing.headers import scope_of
from rioni.domain.publishing.owner import CheckOwner, OwnerSelector
from rioni.domain.schemas.effective_schema import EffectiveSchema, effective_schema
from rioni.domain.schemas.field_path import FieldPath, parse_path
from rioni.domain.schemas.validation import EventValidator, NoJsonSchema
from rioni.domain.timestamps import DATE_TIME


COMPILED_BYTES, COMPILED_BYTES_PER_CHARACTER = 5_000, 90
"""PERF: memory of rules, not counting their patterns, by the length of the schema: 73 bytes with formats of time, 3 for
a description, and the meter of costly events once more."""
DATE_TIME_BYTES = 3 * len(DATE_TIME)
"""PERF: for each time in a schema, whose format is checked by this expression."""


class PublishRules(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of one version of an event type."""

    name: str
    category: str
    partitions: int
    choose: partitioning.Choose | None
    """None for random partitions."""
    choose_by_keys: partitioning.Choose | None
    """Chooses partitions for events in Avro, which bring the values of their key fields along; None for random ones."""
    enriches: bool
    compacts: bool
    """Whether the event type is compacted."""
    owner: OwnerSelector | None
    validator: EventValidator | NoJsonSchema
    schema_version: str
    """Version of the schema that JSON events are validated against; empty if there is none."""
    limits: Limits
    scope: str
    """Prefix of the idempotency keys of this event type's batches and events."""
    once: bool
    """Whether events are deduplicated by eid."""
    bytes_: int = COMPILED_BYTES
    """An estimate of the memory that they take."""

    @classmethod
    def of(cls, event_type: EventType, *, partitions: int, limits: Limits | None = None) -> "PublishRules":
        """Build the rules; takes about a millisecond.

        Args:
            event_type: its JSON schema, if any, has passed `check_schema`.
            partitions: how many there are.
            limits: the limits of a batch and of an event.
        """
        schema = event_type.schema_of_json
        enriches = "metadata_enrichment" in event_type.enrichment_strategies
        selector = event_type.event_owner_selector
        validator = _validator(event_type)
        text = schema.schema if schema else ""
        schema_bytes = COMPILED_BYTES_PER_CHARACTER * len(text) + DATE_TIME_BYTES * text.count("date-time")
        return cls(
            name=event_type.name,
            category=event_type.category,
            partitions=partitions,
            choose=(choose := _chooser(event_type, partitions)),
            choose_by_keys=partitioning.by_keys(partitions) if event_type.partition_strategy == "hash" else choose,
            enriches=enriches,
            compacts=event_type.cleanup_policy != "delete",
            owner=OwnerSelector.of(selector, enriches=enriches) if isinstance(selector, EventOwnerSelector) else None,
            validator=validator,
            bytes_=COMPILED_BYTES + schema_bytes + validator.patterns_bytes,
            schema_version=schema.version if schema else "",
            limits=limits or Limits(),
            scope=scope_of(event_type),
            once=stores_eids_once(event_type),
        )

    @property
    def undeletable(self) -> str:
        """Why events of this event type can't be deleted; empty if they can.

        Source: reference publishing#delete-events, publishing#deletable-events.
        """
        if not self.compacts:
            return "It is not allowed to delete events from non compacted event type"
        if self.choose is None and self.partitions > 1:
            return (
                "Events of partition strategy 'random' can't be deleted: the partition of a key is not determined. "
                "Publish to an event type with partition strategy 'hash' or 'user_defined'"
            )
        return ""


class Publication(msgspec.Struct, frozen=True, kw_only=True):
    """Data of a request that apply to all of its events."""

    received_at: str
    """Time of receipt (RFC 3339)."""
    flow_id: str
    publisher: str
    """Name of the publishing subject."""
    span_ctx: Mapping[str, str] | None = None
    """The span context for events that have none."""
    subscription_id: str | None = None
    """The only subscription that gets the events; None for all."""
    check_owner: CheckOwner | None = None
    """Checks whether the publisher may write for an owner; None if owners are not determined."""


def effective_schema_of(event_type: EventType) -> EffectiveSchema | None:
    """The schema that events of an event type are validated against; None if it never had a JSON schema."""
    if (schema := event_type.schema_of_json) is None:
        return None
    return effective_schema(
        schema.schema,
        name=event_type.name,
        category=event_type.category,
        compatibility_mode=event_type.compatibility_mode,
        cleanup_policy=event_type.cleanup_policy,
    )


def _validator(event_type: EventType) -> EventValidator | NoJsonSchema:
    effective = effective_schema_of(event_type)
    return NoJsonSchema(event_type.name) if effective is None else EventValidator(effective)


def key_paths(category: str, fields: Iterable[str]) -> list[FieldPath]:
    """The paths of key fields from the root of the event.

    Source: reference event-types#partition-strategies, publishing#partitioning.
    """
    prefix = ("data",) if category == "data" else ()
    return [FieldPath((*prefix, *parse_path(field).segments)) for field in fields]


def _chooser(event_type: EventType, partitions: int) -> partitioning.Choose | None:
    if event_type.partition_strategy == "hash":
        paths: Sequence[FieldPath] = key_paths(event_type.category, event_type.partition_key_fields)
        return partitioning.by_hash(paths, partitions)
    if event_type.partition_strategy == "user_defined":
        return partitioning.by_publisher(partitions)
    return None
