"""Descriptions, allowed values and defaults of the members of all resources."""

from collections.abc import Iterable, Mapping
from typing import Any

from rioni.domain.event_types import rules
from rioni.domain.event_types.annotations import IDEMPOTENT_PUBLISHING
from rioni.domain.subscriptions.subscription import READ_FROM
from rioni.domain.system.settings import FEATURES
from rioni.http.openapi.builders import TIMESTAMP, Json


Notes = Mapping[str, Json]


def _note(description: str, **keywords: Any) -> Json:
    return {"description": description, **keywords}


def _one_of(title: str, literals: Iterable[str], description: str, **keywords: Any) -> Json:
    """A note on a member that has one of a few values, which have a name together."""
    return {"title": title, "enum": [*literals], "description": description, **keywords}


SCHEMA: Notes = {
    "type": _one_of("SchemaType", rules.SCHEMA_TYPES, "The language of the schema."),
    "schema": _note("The schema as text; it is kept exactly as it was submitted."),
    "version": _note("`major.minor.patch`, given by the broker."),
    "created_at": TIMESTAMP,
}
AUTHORIZATION: Notes = {
    "admins": _note("Who may change and delete it; each list has at least one attribute."),
    "readers": _note("Who may read its events."),
    "writers": _note("Who may publish to it."),
}
ATTRIBUTE: Notes = {
    "data_type": _note("The kind of subject, such as `service` or `user`; `*` with the value `*` is everybody."),
    "value": _note("The subject's name."),
}
STATISTIC: Notes = {
    "messages_per_minute": _note("Events in a minute.", minimum=0),
    "message_size": _note("Bytes of an event.", minimum=1),
    "read_parallelism": _note("How many consumers read at once.", minimum=1),
    "write_parallelism": _note("How many producers publish at once.", minimum=1),
}
OPTIONS: Notes = {"retention_time": _note("Milliseconds for which events stay readable.")}
OWNER_SELECTOR: Notes = {
    "type": _one_of(
        "OwnerSelectorType", rules.OWNER_SELECTOR_TYPES, "Whether `value` is a path in the event or the owner itself."
    ),
    "name": _note("The kind of owner."),
    "value": _note("A path, or the owner."),
}
EVENT_TYPE: Notes = {
    "name": _note("Words separated by dots; unique, and never changed.", maxLength=rules.NAME_CHARACTERS_MAX),
    "owning_application": _note("The application that owns the event type."),
    "category": _one_of(
        "Category",
        rules.CATEGORIES,
        "`business` events carry `metadata`, `data` events describe changes to an entity, `undefined` ones are free.",
    ),
    "enrichment_strategies": _note("`metadata_enrichment` for every category but `undefined`."),
    "json_schema": _note("Where `schema` is Avro by now: what events in JSON are still validated against."),
    "partition_strategy": _one_of(
        "PartitionStrategy",
        rules.PARTITION_STRATEGIES,
        "How the partition of an event is found: by chance, by a hash of `partition_key_fields`, or by the producer.",
        default="random",
    ),
    "partition_key_fields": _note("Paths of the fields whose values are hashed; the strategy `hash` needs them."),
    "cleanup_policy": _one_of(
        "CleanupPolicy",
        rules.CLEANUP_POLICIES,
        "Whether events go when their retention time has elapsed, or when a newer one with the same key exists.",
        default="delete",
    ),
    "ordering_key_fields": _note("Paths of the fields by which consumers can put events in order."),
    "ordering_instance_ids": _note("Paths of the fields within whose values that order holds."),
    "schema": _note("What the events look like."),
    "default_statistic": _note("The expected load; it decides the number of partitions when the type is created."),
    "options": _note("How long events stay readable: `retention_time` in milliseconds."),
    "authorization": _note("Who may do what; without it every authenticated client may do everything."),
    "annotations": _note(
        f"Free-form notes, not searchable; `{IDEMPOTENT_PUBLISHING}` with the value `on` lets the "
        "event type store an `eid` once."
    ),
    "labels": _note("Short searchable values."),
    "compatibility_mode": _one_of(
        "CompatibilityMode",
        rules.COMPATIBILITY_MODES,
        "Which changes of the schema are accepted: additions only, additions that old consumers can read, or all.",
        default="forward",
    ),
    "audience": _one_of("Audience", rules.AUDIENCES, "For whom the events are meant."),
    "event_owner_selector": _note("Where in an event its owner is found."),
    "created_at": TIMESTAMP,
    "updated_at": TIMESTAMP,
}
SUBSCRIPTION: Notes = {
    "id": _note("A UUID, given by the broker.", format="uuid"),
    "owning_application": _note("The application that consumes."),
    "event_types": _note("The names of the event types to read.", minItems=1),
    "consumer_group": _note("Tells subscriptions of the same application to the same event types apart."),
    "read_from": _one_of(
        "ReadFrom", READ_FROM, "Where to begin: with the oldest event, with new ones, or at `initial_cursors`."
    ),
    "initial_cursors": _note("For `read_from: cursors` where to begin, for every partition."),
    "authorization": _note("Who may administer the subscription and read through it."),
    "annotations": _note("Free-form notes, not searchable."),
    "labels": EVENT_TYPE["labels"],
    "filter": _note(
        "Which events to get, in CEL, over `event` and `metadata`; without it all of them. The others count as "
        "consumed."
    ),
    "created_at": TIMESTAMP,
    "updated_at": TIMESTAMP,
}
CURSOR: Notes = {
    "partition": _note("The id of the partition."),
    "offset": _note("A place in the partition, `BEGIN` for the one before the oldest event, or `END`."),
    "timestamp": _note("In place of an offset: the first event that was stored then or later is next."),
    "event_type": _note("The name of the event type."),
    "cursor_token": _note("Text that the broker sent with the cursor; it must be there and is not compared."),
    "shift": _note("By how many events to move; negative moves back.", default=0),
}
ITEM_RESULT: Notes = {
    "publishing_status": _one_of(
        "PublishingStatus",
        ("submitted", "failed", "aborted"),
        "`aborted` where another event of the batch is the reason.",
    ),
    "detail": _note("Why; empty if the event itself is not the reason."),
    "step": _one_of(
        "PublishingStep", ("none", "validating", "partitioning", "enriching", "publishing"), "How far it got."
    ),
    "eid": _note("The `eid` of the event's metadata; absent if it has none."),
    "partition": _note("The id of its partition, as soon as it is known."),
}
FEATURE: Notes = {
    "feature": _one_of("FeatureName", FEATURES, "The name of the feature."),
    "enabled": _note("Whether it is on."),
}
STORAGE: Notes = {
    "id": _note("Letters, digits, `.`, `_` and `-`, at most 36."),
    "storage_type": _note("The kind of storage."),
    "default": _note("Whether new event types begin there."),
    "kafka_configuration": _note(
        "How a cluster is reached: `bootstrap_servers`, `topic_prefix`, `replication_factor`, `min_insync_replicas`; "
        "where none is given, the brokers of the setting `kafka`. `exhibitor_address`, `exhibitor_port`, `zk_address`, "
        "`zk_path` and `zookeeper_connection` are kept as well; other members, and users in addresses, are not."
    ),
}
TIMELINE: Notes = {
    "order": _note("Part of every offset."),
    "storage_id": _note("The storage in which the events lie."),
    "topic": _note("The topic in the storage."),
    "cleaned_up_at": _note("When the events go, or went; null for the active timeline."),
    "latest_position": _note("The last position of each partition, -1 for none; null for the active timeline."),
}
PARTITION_COUNT: Notes = {"partition_count": _note("How many partitions there shall be.")}
STREAM_TICKET: Notes = {"path": _note("That of the stream.")}
REDRIVE: Notes = {
    "limit": _note("How many to publish at most."),
    "force": _note("Whether to publish also those that were published again before."),
    "after": _note("Where to go on: `after` of the answer before, with the same other members."),
}
WITHIN: Mapping[str, Notes] = {
    "schema": SCHEMA,
    "default_statistic": STATISTIC,
    "options": OPTIONS,
    "event_owner_selector": OWNER_SELECTOR,
    "authorization": AUTHORIZATION,
    **dict.fromkeys(("admins", "readers", "writers"), ATTRIBUTE),
    **dict.fromkeys(("initial_cursors", "items", "initial_cursor", "final_cursor", "after"), CURSOR),
}
"""The notes on the members of members."""


def described(plain: Json, words: Notes) -> Json:
    """A schema with notes on its members, and on the members of the objects in it."""
    if "items" in plain:
        return plain | {"items": described(plain["items"], words)}
    if "properties" not in plain:
        return plain
    members = plain["properties"].items()
    return plain | {"properties": {name: _member(name, member, words.get(name, {})) for name, member in members}}


def _member(name: str, plain: Json, note: Json) -> Json:
    return described(plain, WITHIN.get(name, {})) | note
