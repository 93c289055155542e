"""The event type: submitted definition, domain events, and state; its annotations and labels."""

import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from itertools import islice

import msgspec
from msgspec import UNSET, UnsetType

from rioni.domain.access.authorization import EventTypeAuthorization
from rioni.domain.errors import InvalidFields
from rioni.domain.events import DomainEvent
from rioni.domain.limits import LABELS_MAX, size_violations


# Source: reference event-types#definition.

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


# --- Annotations and labels: the syntax of their keys and values (reference event-types#annotations-and-labels) ---

_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")

PREFIX_CHARACTERS_MAX = 253
NAME_CHARACTERS_MAX = 63
ANNOTATION_BYTES_MAX = 1000
LABEL_CHARACTERS_MAX = 63


def annotation_violations(annotations: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield `(path, message)` for every invalid key or value of annotations."""
    yield from size_violations("annotations", annotations, LABELS_MAX)
    for key, value in islice(annotations.items(), LABELS_MAX):
        path = f"annotations[{key}]"
        yield from ((path, message) for message in _key_problems(key))
        if len(value.encode()) > ANNOTATION_BYTES_MAX:
            yield path, f"size must be between 0 and {ANNOTATION_BYTES_MAX}"


def label_violations(labels: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield `(path, message)` for every invalid key or value of labels."""
    yield from size_violations("labels", labels, LABELS_MAX)
    for key, value in islice(labels.items(), LABELS_MAX):
        path = f"labels[{key}]"
        yield from ((path, message) for message in _key_problems(key))
        if len(value) > LABEL_CHARACTERS_MAX:
            yield path, f"size must be between 0 and {LABEL_CHARACTERS_MAX}"
        elif not _LABEL_VALUE.fullmatch(value):
            yield path, "Should contain only allowed symbols"


def _key_problems(key: str) -> Iterator[str]:
    if not key:
        yield "Key cannot be empty"
    prefix, slash, name = key.rpartition("/")
    if slash and (not _PREFIX.fullmatch(prefix)):
        yield "Key name should be an optional lowercase domain name with path"
    if len(prefix) > PREFIX_CHARACTERS_MAX:
        yield f"Key prefix cannot be more than {PREFIX_CHARACTERS_MAX} characters."
    if len(name) > NAME_CHARACTERS_MAX:
        yield f"Key name cannot be more than {NAME_CHARACTERS_MAX} characters."
    if not _NAME.fullmatch(name):
        yield "Key name should start and end with a letter or a digit"


IDEMPOTENT_PUBLISHING = "rioni.io/idempotent-publishing"
"""The annotation that enables deduplication by eid for an event type."""
SWITCH = ("on", "off")


def switch_violations(annotations: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield `(path, message)` if the annotation is neither on nor off."""
    if annotations.get(IDEMPOTENT_PUBLISHING, "off") not in SWITCH:
        yield f"annotations[{IDEMPOTENT_PUBLISHING}]", f"must be one of {', '.join(SWITCH)}"


def stores_eids_once(event_type: EventType) -> bool:
    """Whether events are deduplicated by eid."""
    return event_type.annotations.get(IDEMPOTENT_PUBLISHING) == "on"


# --- Validates the annotations that decide whether, and for how long, events are kept in the data lake ---
#
# Source: reference event-types#annotations-and-labels.

MATERIALIZE = "datalake.zalando.org/materialize-events"
PERIOD = "datalake.zalando.org/retention-period"
REASON = "datalake.zalando.org/retention-period-reason"

PERIODS = "must be 'unlimited' or a number of days (7-3650), weeks (1-521), months (1-120) or years (1-10)"
_PERIOD = re.compile(r"([1-9][0-9]{0,3}) ?(d|days?|w|weeks?|m|months?|y|years?)")
_BOUNDS = {"d": (7, 3_650), "w": (1, 521), "m": (1, 120), "y": (1, 10)}


def check_data_lake(annotations: Mapping[str, str], *, mandatory: bool) -> None:
    """Check the annotations for the data lake.

    Args:
        annotations: all annotations of an event type.
        mandatory: whether the annotations are required.

    Raises:
        InvalidFields: names the annotations that are missing or wrong.
    """
    violations = _violations(annotations, mandatory=mandatory)
    InvalidFields.check((f"annotations[{key}]", message) for key, message in violations)


def _violations(annotations: Mapping[str, str], *, mandatory: bool) -> Iterator[tuple[str, str]]:
    materialize, period = annotations.get(MATERIALIZE), annotations.get(PERIOD)
    if materialize is None and mandatory:
        yield MATERIALIZE, "must not be null"
    if materialize not in (None, "on", "off"):
        yield MATERIALIZE, "must be 'on' or 'off'"
    if materialize == "on" and period is None:
        yield PERIOD, f"must not be null when {MATERIALIZE} is 'on'"
    if period is None:
        return
    if not annotations.get(REASON):
        yield REASON, f"must not be empty when {PERIOD} is given"
    if not is_period(period):
        yield PERIOD, PERIODS


def is_period(text: str) -> bool:
    """Whether the annotation may have this value."""
    if text == "unlimited":
        return True
    if (match := _PERIOD.fullmatch(text)) is None:
        return False
    least, most = _BOUNDS[match[2][0]]
    return least <= int(match[1]) <= most
