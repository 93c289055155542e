"""The event type: submitted definition, domain events, and state.

Source: reference event-types#definition.
"""

from collections.abc import Mapping
from hashlib import sha256

import msgspec
from msgspec import UNSET, UnsetType

from rioni.domain.access.authorization import EventTypeAuthorization
from rioni.domain.events import DomainEvent


ENTITY_TAG_CHARACTERS = 32


class SubmittedSchema(msgspec.Struct, frozen=True, kw_only=True):
    """A schema as a client sends it."""

    type: str | None = None
    schema: str | None = None


class Schema(msgspec.Struct, frozen=True, kw_only=True):
    """One version of an event type's schema."""

    type: str
    schema: str
    """The text exactly as it was submitted."""
    version: str
    """`major.minor.patch`."""
    created_at: str


class Statistic(msgspec.Struct, frozen=True, kw_only=True):
    """The expected load, which determines the initial number of partitions."""

    messages_per_minute: int
    message_size: int
    read_parallelism: int
    write_parallelism: int


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Retention options."""

    retention_time: int | None = None
    """Milliseconds."""


class EventOwnerSelector(msgspec.Struct, frozen=True, kw_only=True):
    """Selects the owner of an event."""

    type: str
    name: str
    value: str


class EventTypeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """An event type as submitted, to create or to update one; None means null or absent."""

    name: str | None = None
    owning_application: str | None = None
    category: str | None = None
    enrichment_strategies: tuple[str, ...] | None = None
    partition_strategy: str | UnsetType | None = UNSET
    partition_key_fields: tuple[str, ...] | None = None
    cleanup_policy: str | None = None
    ordering_key_fields: tuple[str, ...] | None = None
    ordering_instance_ids: tuple[str, ...] | None = None
    schema: SubmittedSchema | None = None
    default_statistic: Statistic | None = None
    options: Options | None = None
    authorization: EventTypeAuthorization | None = None
    annotations: Mapping[str, str] | None = None
    labels: Mapping[str, str] | None = None
    compatibility_mode: str | None = None
    audience: str | None = None
    event_owner_selector: EventOwnerSelector | None = None


class EventType(msgspec.Struct, frozen=True, kw_only=True):
    """The state of an event type. Its JSON is the API's representation, members in the order that clients know."""

    name: str
    owning_application: str
    category: str
    enrichment_strategies: tuple[str, ...]
    partition_strategy: str
    partition_key_fields: tuple[str, ...]
    cleanup_policy: str
    ordering_key_fields: tuple[str, ...]
    ordering_instance_ids: tuple[str, ...]
    schema: Schema
    json_schema: Schema | UnsetType = UNSET
    """The last JSON schema if `schema` is Avro by now: JSON events are still validated against it."""
    default_statistic: Statistic | None
    options: Options
    authorization: EventTypeAuthorization | None
    annotations: Mapping[str, str]
    labels: Mapping[str, str]
    compatibility_mode: str
    audience: str | UnsetType = UNSET
    event_owner_selector: EventOwnerSelector | UnsetType = UNSET
    updated_at: str
    created_at: str

    @property
    def resource(self) -> str:
        """The name of this event type as a resource, in errors."""
        return f"event-type:{self.name}"

    @property
    def schema_of_json(self) -> Schema | None:
        """The schema that JSON events are validated against; None if the event type never had a JSON schema."""
        if self.schema.type == "json_schema":
            return self.schema
        return self.json_schema if isinstance(self.json_schema, Schema) else None

    @property
    def retention_ms(self) -> int | None:
        """Retention time in milliseconds; None for unlimited."""
        return None if self.cleanup_policy == "compact" else self.options.retention_time

    @property
    def entity_tag(self) -> str:
        """The entity tag of this state, different for every state of the event type."""
        return entity_tag(msgspec.json.encode(self))


def entity_tag(body: bytes) -> str:
    """The entity tag of the state that has this JSON."""
    return sha256(body).hexdigest()[:ENTITY_TAG_CHARACTERS]


class EventTypeCreated(DomainEvent, frozen=True, kw_only=True):
    """An event type was created."""

    TOPIC = "event-type.created"
    KEY = "name"

    name: str
    event_type: EventType


class EventTypeChanged(DomainEvent, frozen=True, kw_only=True):
    """Something other than the schema was changed; the event holds the whole new state."""

    TOPIC = "event-type.changed"
    KEY = "name"

    name: str
    event_type: EventType


class SchemaAdded(DomainEvent, frozen=True, kw_only=True):
    """A new version of the schema was added; events are validated against it from now on."""

    TOPIC = "event-type.schema-added"
    KEY = "name"

    name: str
    schema: Schema


class EventTypeDeleted(DomainEvent, frozen=True, kw_only=True):
    """The event type was deleted, with its schemas."""

    TOPIC = "event-type.deleted"
    KEY = "name"

    name: str


def evolve(state: EventType | None, event: DomainEvent) -> EventType | None:
    """The state after an event; total: an event of another kind changes nothing."""
    match event:
        case EventTypeCreated(event_type=event_type) | EventTypeChanged(event_type=event_type):
            return event_type
        case SchemaAdded(schema=schema) if state is not None:
            json_schema = UNSET if schema.type == "json_schema" else state.schema_of_json or UNSET
            return msgspec.structs.replace(state, schema=schema, json_schema=json_schema, updated_at=schema.created_at)
        case EventTypeDeleted():
            return None
        case _:
            return state
