"""Event types, their schemas, partitions and timelines, and their users."""

from datetime import datetime
from typing import Any, ClassVar

import msgspec

from rioni.wire.access import EventTypeAuthorization
from rioni.wire.base import Model


class Schema(Model):
    """A version of an event type's schema."""

    NOT_SENT: ClassVar[frozenset[str]] = frozenset(("version", "created_at"))

    schema: str
    """The schema as JSON, in a string."""
    type: str = "json_schema"
    """`json_schema` or `avro_schema`."""
    version: str | None = None
    created_at: datetime | None = None

    @classmethod
    def json(cls, schema: dict[str, Any]) -> "Schema":
        """A JSON schema given as an object."""
        return cls(schema=msgspec.json.encode(schema).decode())

    def parsed(self) -> Any:
        """The schema as an object.

        Raises:
            msgspec.DecodeError: it is not JSON.
        """
        return msgspec.json.decode(self.schema)


class Statistic(Model):
    """The load that is expected; the greater parallelism is the number of partitions at creation."""

    messages_per_minute: int
    message_size: int
    read_parallelism: int
    write_parallelism: int


class Options(Model):
    """Options of an event type."""

    retention_time: int | None = None
    """Milliseconds."""


class EventOwnerSelector(Model):
    """The place of the owner in an event."""

    type: str
    name: str
    value: str


class EventType(Model):
    """An event type. Defaults are those of the API, with `business` as category."""

    NOT_SENT: ClassVar[frozenset[str]] = frozenset(("created_at", "updated_at", "etag"))

    name: str
    owning_application: str
    schema: Schema
    category: str = "business"
    """`business`, `data` or `undefined`."""
    enrichment_strategies: list[str] = msgspec.field(default_factory=lambda: ["metadata_enrichment"])
    """The strategies; empty for the category `undefined`."""
    partition_strategy: str = "random"
    """`random`, `hash` or `user_defined`."""
    partition_key_fields: list[str] = []
    ordering_key_fields: list[str] = []
    ordering_instance_ids: list[str] = []
    cleanup_policy: str = "delete"
    """`delete`, `compact` or `compact_and_delete`."""
    compatibility_mode: str = "forward"
    """`compatible`, `forward` or `none`."""
    default_statistic: Statistic | None = None
    options: Options = msgspec.field(default_factory=Options)
    authorization: EventTypeAuthorization | None = None
    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}
    audience: str | None = None
    event_owner_selector: EventOwnerSelector | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    etag: str | None = None
    """Names the state that was read; `update` changes nothing if the event type was changed since."""

    def members(self) -> dict[str, Any]:
        """The members that are sent, without those of the schema that the broker sets."""
        return super().members() | {"schema": self.schema.members()}


class ProducingClient(Model):
    """A client that published to an event type."""

    client: str
    last_published_at: datetime
    since: datetime
    events: int
    realm: str | None = None
    """The realm in which the name is unique; None if it has no realm."""


class PartitionLag(Model):
    """The number of unconsumed events of a partition, and the age of the first; None if that is unknown.

    For a subscription that was never streamed they are counted from where it would begin; the age is included only if
    `show_time_lag` is set.
    """

    partition: str
    unconsumed_events: int | None = None
    consumer_lag_seconds: int | None = None


class ConsumingClient(Model):
    """A client that streamed a subscription."""

    client: str
    last_streamed_at: datetime | None = None
    last_committed_at: datetime | None = None
    realm: str | None = None
    """The realm in which the name is unique; None if it has no realm."""


class ConsumingSubscription(Model):
    """A subscription to an event type."""

    id: str
    owning_application: str
    consumer_group: str
    streams: int
    partitions: list[PartitionLag] = []
    clients: list[ConsumingClient] = []
    unconsumed_events: int | None = None
    consumer_lag_seconds: int | None = None


class ReadingClient(Model):
    """A client that reads an event type without a subscription."""

    client: str
    last_read_at: datetime
    since: datetime
    events: int
    realm: str | None = None
    """The realm in which the name is unique; None if it has no realm."""


class Consumers(Model):
    """All clients that read an event type."""

    subscriptions: list[ConsumingSubscription]
    low_level: list[ReadingClient]


class FacetValue(Model):
    """The number of event types that have a value."""

    value: str
    count: int


class Facet(Model):
    """The values of a member of event types, the most frequent ones first."""

    values: list[FacetValue]
    distinct: int
    """The number of values; more than are listed if this is larger."""


class Unused(Model):
    """The number of event types that nobody used for some days."""

    days: int
    count: int


class EventTypeFacets(Model):
    """The number of event types, in all and by their values."""

    total: int
    owning_application: Facet
    category: Facet
    cleanup_policy: Facet
    label: Facet
    """Values are `key:value`."""
    unused: Unused | None = None
    """None for the past."""


class Compatibility(Model):
    """Whether a schema may follow another one."""

    compatible: bool
    compatibility_mode: str
    validated_against_version: str
    error: str | None = None


class AvroSchema(Model):
    """A version of the Avro schema of batches."""

    avro_schema: dict[str, Any]
    version: str


class Partition(Model):
    """A partition of an event type."""

    partition: str
    oldest_available_offset: str
    newest_available_offset: str
    unconsumed_events: int | None = None
    """The number of events after the cursor that was asked about, if one was."""


class LatestPosition(Model):
    """The last positions of a closed timeline, by partition."""

    offsets: list[int]


class Timeline(Model):
    """A timeline of an event type."""

    id: str
    event_type: str
    order: int
    storage_id: str
    topic: str
    created_at: datetime
    switched_at: datetime | None = None
    cleaned_up_at: datetime | None = None
    latest_position: LatestPosition | None = None
