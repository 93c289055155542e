"""Event types, their schemas, partitions and timelines, and their users."""

from datetime import datetime
from typing import Annotated, Any, ClassVar

import msgspec

from rioni.wire.access import EventTypeAuthorization
from rioni.wire.administration import Realm
from rioni.wire.base import Model, note


# --- Event types and their schemas ---


class Schema(Model):
    """A version of an event type's schema."""

    COMPONENT: ClassVar[str] = "EventTypeSchema"
    NOT_SENT: ClassVar[frozenset[str]] = frozenset(("version", "created_at"))

    schema: Annotated[str, note("The schema as text; it is kept exactly as it was submitted.")]
    type: Annotated[str, note("The language of the schema.", literal="SchemaType")] = "json_schema"
    version: Annotated[str | None, note("`major.minor.patch`, given by the broker.", required=True)] = None
    created_at: Annotated[datetime | None, note(required=True)] = None

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

    messages_per_minute: Annotated[int, note("Events in a minute.", minimum=0)]
    message_size: Annotated[int, note("Bytes of an event.", minimum=1)]
    read_parallelism: Annotated[int, note("The number of consumers that read at once.", minimum=1)]
    write_parallelism: Annotated[int, note("The number of producers that publish at once.", minimum=1)]


class Options(Model):
    """Options of an event type."""

    retention_time: Annotated[
        int | None, note("Milliseconds for which events stay readable.", nullable=True, required=False)
    ] = None


class EventOwnerSelector(Model):
    """The place of the owner in an event."""

    type: Annotated[
        str, note("Whether `value` is a path in the event or the owner itself.", literal="OwnerSelectorType")
    ]
    name: Annotated[str, note("The kind of owner.")]
    value: Annotated[str, note("A path, or the owner.")]


class EventType(Model):
    """An event type. Defaults are those of the API, with `business` as category."""

    NOT_SENT: ClassVar[frozenset[str]] = frozenset(("created_at", "updated_at", "etag"))

    name: Annotated[str, note("Words separated by dots; unique, and never changed.", maxLength=255)]
    owning_application: Annotated[str, note("The application that owns the event type.")]
    schema: Annotated[Schema, note("The form of the events.")]
    category: Annotated[
        str,
        note(
            "`business` events carry `metadata`, `data` events describe changes to an entity, `undefined` ones are "
            "free.",
            literal="Category",
        ),
    ] = "business"
    enrichment_strategies: Annotated[list[str], note("`metadata_enrichment` for every category but `undefined`.")] = (
        msgspec.field(default_factory=lambda: ["metadata_enrichment"])
    )
    partition_strategy: Annotated[
        str,
        note(
            "The choice of an event's partition: `random`, by a `hash` of `partition_key_fields`, or `user_defined` by "
            "the producer.",
            literal="PartitionStrategy",
            default="random",
        ),
    ] = "random"
    partition_key_fields: Annotated[
        list[str], note("Paths of the fields whose values are hashed; the strategy `hash` needs them.")
    ] = []
    ordering_key_fields: Annotated[
        list[str], note("Paths of the fields by which consumers can put events in order.")
    ] = []
    ordering_instance_ids: Annotated[list[str], note("Paths of the fields within whose values that order holds.")] = []
    cleanup_policy: Annotated[
        str,
        note(
            "Whether events are deleted when their retention time has elapsed, or when a newer one with the same key "
            "exists.",
            literal="CleanupPolicy",
            default="delete",
        ),
    ] = "delete"
    compatibility_mode: Annotated[
        str,
        note(
            "The changes of the schema that are accepted: additions only, additions that old consumers can read, or "
            "all.",
            literal="CompatibilityMode",
            default="forward",
        ),
    ] = "forward"
    default_statistic: Annotated[
        Statistic | None,
        note("The expected load; it decides the number of partitions at creation.", nullable=True),
    ] = None
    options: Annotated[Options, note("The retention time of events.")] = msgspec.field(default_factory=Options)
    authorization: Annotated[
        EventTypeAuthorization | None,
        note("The clients that may use it; without it every authenticated client may do everything.", nullable=True),
    ] = None
    annotations: Annotated[
        dict[str, str],
        note(
            "Free-form notes, not searchable; `rioni.io/idempotent-publishing` with the value `on` makes the event "
            "type store an `eid` once."
        ),
    ] = {}
    labels: Annotated[dict[str, str], note("Short searchable values.")] = {}
    audience: Annotated[str | None, note("The readers that the events are meant for.", literal="Audience")] = None
    event_owner_selector: Annotated[
        EventOwnerSelector | None, note("The place in an event where its owner is found.")
    ] = None
    created_at: Annotated[datetime | None, note(required=True)] = None
    updated_at: Annotated[datetime | None, note(required=True)] = None
    etag: Annotated[
        str | None,
        note(
            "The state that was read, from the header `ETag`; `update` changes nothing if the event type was changed "
            "since.",
            in_body=False,
        ),
    ] = None

    def members(self) -> dict[str, Any]:
        """The members that are sent, without those of the schema that the broker sets."""
        return super().members() | {"schema": self.schema.members()}


class ShownEventType(EventType):
    """An event type as the broker shows it."""

    COMPONENT: ClassVar[str] = "EventType"

    json_schema: Annotated[
        Schema | None, note("The schema that events in JSON are validated against, if `schema` is Avro.")
    ] = None


class Compatibility(Model):
    """Whether a schema may follow another one."""

    compatible: bool
    compatibility_mode: Annotated[str, note(literal="CompatibilityMode")]
    validated_against_version: str
    error: str | None = None


class AvroSchema(Model):
    """A version of the Avro schema of batches."""

    COMPONENT: ClassVar[str] = "BatchAvroSchema"

    avro_schema: dict[str, Any]
    version: str


# --- Producers and consumers ---

Since = Annotated[datetime, note("The time when the client was first seen.")]
EventCount = Annotated[int, note("The number of events since then.")]


class ProducingClient(Model):
    """A client that published to an event type."""

    COMPONENT: ClassVar[str] = "Producer"

    client: str
    last_published_at: datetime
    since: Since
    events: EventCount
    realm: Realm = None


class PartitionLag(Model):
    """The number of unconsumed events of a partition, and the age of the first; None if that is unknown.

    For a subscription that was never streamed they are counted from where it would begin; the age is included only if
    `show_time_lag` is set.
    """

    COMPONENT: ClassVar[str] = "ConsumedPartition"

    partition: str
    unconsumed_events: int | None = None
    consumer_lag_seconds: int | None = None


class ConsumingClient(Model):
    """A client that streamed a subscription."""

    COMPONENT: ClassVar[str] = "ConsumerClient"

    client: str
    last_streamed_at: datetime | None = None
    last_committed_at: datetime | None = None
    realm: Realm = None


class ConsumingSubscription(Model):
    """A subscription to an event type."""

    COMPONENT: ClassVar[str] = "Consumer"

    id: Annotated[str, note("The id of the subscription.")]
    owning_application: str
    consumer_group: str
    streams: Annotated[int, note("The number of open streams.")]
    partitions: list[PartitionLag] = []
    clients: list[ConsumingClient] = []
    unconsumed_events: Annotated[
        int | None, note("The sum over all partitions; before the first stream, counted from where it would begin.")
    ] = None
    consumer_lag_seconds: Annotated[
        int | None, note("The age of the oldest unconsumed event, if it was asked for and is known.")
    ] = None


class ReadingClient(Model):
    """A client that reads an event type without a subscription."""

    COMPONENT: ClassVar[str] = "Reader"

    client: str
    last_read_at: datetime
    since: Since
    events: EventCount
    realm: Realm = None


class Consumers(Model):
    """All clients that read an event type."""

    subscriptions: list[ConsumingSubscription]
    low_level: list[ReadingClient]


# --- The numbers of event types ---


class FacetValue(Model):
    """The number of event types that have a value."""

    value: str
    count: int


class Facet(Model):
    """The values of a member of event types."""

    values: Annotated[list[FacetValue], note("The most frequent values first.")]
    distinct: Annotated[int, note("The number of values; more than are listed if this is larger.")]


class Unused(Model):
    """The number of event types that nobody used for some days."""

    COMPONENT: ClassVar[str] = "UnusedEventTypes"

    days: int
    count: int


class EventTypeFacets(Model):
    """The number of event types, in all and by their values."""

    total: int
    owning_application: Facet
    category: Facet
    cleanup_policy: Facet
    label: Annotated[Facet, note("Values are `key:value`.")]
    unused: Annotated[Unused | None, note("The number that was not used for some days; absent for the past.")] = None


# --- Partitions and timelines ---

Offset = Annotated[str, note(examples=["001-0001-000000000000000542"])]


class Partition(Model):
    """A partition of an event type."""

    partition: str
    oldest_available_offset: Offset
    newest_available_offset: Offset
    unconsumed_events: Annotated[
        int | None, note("The number of events after the cursor that was asked about, if one was.")
    ] = None


class LaggingPartition(Partition):
    """A partition and the number of events after a cursor."""

    COMPONENT: ClassVar[str] = "PartitionLag"

    unconsumed_events: Annotated[int, note("The number of events after the cursor.")]


class PartitionCount(Model):
    """The new number of partitions of an event type."""

    partition_count: Annotated[int, note("The number of partitions afterwards.")]


class LatestPosition(Model):
    """The last positions of a closed timeline, by partition."""

    offsets: list[int]


class Timeline(Model):
    """A timeline of an event type."""

    id: str
    event_type: str
    order: Annotated[int, note("A part of every offset.")]
    storage_id: Annotated[str, note("The storage that holds the events.")]
    topic: Annotated[str, note("The topic in the storage.")]
    created_at: datetime
    switched_at: Annotated[datetime | None, note(required=True)] = None
    cleaned_up_at: Annotated[
        datetime | None, note("The time when the events are deleted; null for the active timeline.", nullable=True)
    ] = None
    latest_position: Annotated[
        LatestPosition | None,
        note("The last position of each partition, -1 for none; null for the active timeline.", nullable=True),
    ] = None


class SubmittedTimeline(Model):
    """The storage of a new timeline."""

    storage_id: Annotated[str, note("The storage that holds the events from now on.")]
