"""System events: the definitions of their types, their ids, and pseudonyms of clients."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple
from uuid import UUID, uuid5

import msgspec

from rioni.domain.access.authorization import Attribute, EventTypeAuthorization
from rioni.domain.event_types.event_type import EventTypeSpec, Options, Statistic, SubmittedSchema
from rioni.domain.limits import Limits
from rioni.domain.subscriptions.dead_letters import policy_of
from rioni.domain.subscriptions.subscription import Subscription


# --- System events: their ids, which make repeated publishing idempotent, and pseudonyms of clients ---


class SystemEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a system event type, to be published."""

    eid: str
    occurred_at: str
    """RFC 3339."""
    flow_id: str
    """The flow id of the request that caused it; empty if there was none."""
    members: Mapping[str, Any]
    """The event's content without `metadata`; values may be `msgspec.Raw`."""

    def json(self) -> bytes:
        """The event as JSON, with the members of the metadata that a publisher gives."""
        metadata = {"occurred_at": self.occurred_at, "eid": self.eid}
        if self.flow_id:
            metadata["flow_id"] = self.flow_id
        return msgspec.json.encode({"metadata": metadata, **self.members})


def derived_eid(source: UUID, part: str) -> str:
    """The eid of an event, deterministic, so that a retry after a crash yields the same one.

    Args:
        source: the event to report on.
        part: names it among the events that report on the same.
    """
    return str(uuid5(source, part))


def pseudonymize(salt: str, name: str) -> str:
    """The hexadecimal SHA-256 of salt and name.

    Source: reference system-event-types#audit-log, system-event-types#kpi-event-types.
    """
    return sha256((salt + name).encode()).hexdigest()


# --- Definitions of the system event types ---
#
# Source: reference system-event-types#audit-log, system-event-types#kpi-event-types.

AUDIT_LOG = "nakadi.audit.log"
AUDIT_FEATURE = "audit_log_collection"
KPI_FEATURE = "kpi_collection"
ACCESS_FEATURE = "access_log_enabled"
"""The feature that reports every request, if `KPI_FEATURE` is on as well."""
DEAD_LETTER_QUEUE = "nakadi.dead.letter.queue"

RETENTION_MS = 345_600_000
DEAD_LETTER_RETENTION_MS = 86_400_000


class Ownership(msgspec.Struct, frozen=True, kw_only=True):
    """Ownership and authorization of system event types."""

    application: str = "stups_nakadi"
    readers: Attribute
    """The readers of system event types."""
    admins: Attribute
    """The administrator and writer of system event types besides the broker; readers have to trust it."""


class SystemEventType(NamedTuple):
    """Definition of a system event type."""

    name: str
    spec: EventTypeSpec
    feature: str | None = None
    """The feature that creates it; None: created on request."""


_TEXT, _OBJECT = {"type": "string"}, {"type": "object", "additionalProperties": True}


def audit_log(ownership: Ownership, limits: Limits) -> SystemEventType:
    """The event type of administrative changes."""
    required = ("resource_type", "resource_id", "user", "user_hash")
    members = {"previous_object": _OBJECT, "previous_text": _TEXT, "new_object": _OBJECT, "new_text": _TEXT}
    spec = _spec(
        AUDIT_LOG,
        "data",
        _json_schema(members | dict.fromkeys(required, _TEXT), required=required),
        ownership,
        limits,
        partition_strategy="hash",
        partition_key_fields=("resource_id",),
        default_statistic=_statistic(10),
        compatibility_mode="forward",
    )
    return SystemEventType(AUDIT_LOG, spec, AUDIT_FEATURE)


def dead_letter_queue(ownership: Ownership, limits: Limits) -> SystemEventType:
    """The event type of events that a subscription could not process."""
    members = {
        **dict.fromkeys(("subscription_id", "event_type", "partition", "offset"), _TEXT),
        "error": {"type": "object", "properties": {"message": _TEXT}, "additionalProperties": True},
        "event": _OBJECT,
    }
    spec = _spec(
        DEAD_LETTER_QUEUE,
        "business",
        _json_schema(members, required=tuple(members)),
        ownership,
        limits,
        partition_strategy="random",
        default_statistic=_statistic(1),
        compatibility_mode="forward",
        retention_ms=DEAD_LETTER_RETENTION_MS,
    )
    return SystemEventType(DEAD_LETTER_QUEUE, spec)


_INT, _LONG = "int", "long"
_PUBLISHER = {"app": "string", "app_hashed": "string", "token_realm": "string"}
_KPI: Mapping[str, tuple[Mapping[str, Any], int, str]] = {
    "nakadi.access.log": (
        {
            **dict.fromkeys(("method", "path", "query", "user_agent", "app", "app_hashed"), "string"),
            "status_code": _INT,
            "response_time_ms": _LONG,
            **dict.fromkeys(("accept_encoding", "content_encoding"), "string"),
            **dict.fromkeys(("request_length", "response_length"), _LONG),
        },
        8,
        "forward",
    ),
    "nakadi.event.type.log": (
        dict.fromkeys(("event_type", "status", "category", "authz", "compatibility_mode"), "string"),
        1,
        "forward",
    ),
    "nakadi.subscription.log": (dict.fromkeys(("subscription_id", "status"), "string"), 1, "compatible"),
    "nakadi.batch.published": (
        {"event_type": "string", **_PUBLISHER, "number_of_events": _INT, "ms_spent": _LONG, "batch_size": _LONG},
        10,
        "compatible",
    ),
    "nakadi.data.streamed": (
        {
            "api": "string",
            "subscription": ["null", "string"],
            "event_type": "string",
            **_PUBLISHER,
            "number_of_events": _LONG,
            "bytes_streamed": _LONG,
            "batches_streamed": _INT,
        },
        8,
        "compatible",
    ),
}
"""The fields of each event type with their Avro types, the expected parallelism, the compatibility mode."""

_KPI_AUDIENCES = dict.fromkeys(
    ("nakadi.event.type.log", "nakadi.batch.published", "nakadi.data.streamed"), "component-internal"
)
"""The audiences of KPI event types, as in Nakadi; the others have none."""

NAMES = frozenset((AUDIT_LOG, DEAD_LETTER_QUEUE, *_KPI))
"""The names of all system event types, whether they exist or not."""


def kpis(ownership: Ownership, limits: Limits) -> list[SystemEventType]:
    """The event types for KPIs, and for changes of event types and subscriptions."""
    return [
        SystemEventType(
            name,
            _spec(
                name,
                "business",
                _avro_schema(name, fields),
                ownership,
                limits,
                partition_strategy="random",
                default_statistic=_statistic(parallelism),
                compatibility_mode=compatibility_mode,
                audience=_KPI_AUDIENCES.get(name),
            ),
            KPI_FEATURE,
        )
        for name, (fields, parallelism, compatibility_mode) in _KPI.items()
    ]


def _spec(
    name: str,
    category: str,
    schema: SubmittedSchema,
    ownership: Ownership,
    limits: Limits,
    *,
    retention_ms: int = RETENTION_MS,
    audience: str | None = "company-internal",
    **members: Any,
) -> EventTypeSpec:
    readers, admins = (ownership.readers,), (ownership.admins,)
    # An installation with narrower bounds has these event types too.
    retention_ms = max(min(retention_ms, limits.retention_max_ms), limits.retention_min_ms)
    return EventTypeSpec(
        name=name,
        owning_application=ownership.application,
        category=category,
        enrichment_strategies=("metadata_enrichment",),
        cleanup_policy="delete",
        schema=schema,
        options=Options(retention_time=retention_ms),
        authorization=EventTypeAuthorization(admins=admins, readers=readers, writers=admins),
        audience=audience,
        **members,
    )


def _json_schema(members: Mapping[str, Any], *, required: tuple[str, ...]) -> SubmittedSchema:
    schema = {"type": "object", "properties": members, "required": required}
    return SubmittedSchema(type="json_schema", schema=msgspec.json.encode(schema).decode())


def _avro_schema(name: str, fields: Mapping[str, Any]) -> SubmittedSchema:
    schema = {
        "type": "record",
        "name": "".join(part.capitalize() for part in name.split(".")[1:]),
        "namespace": "nakadi.kpi",
        "fields": [{"name": field, "type": kind} for field, kind in fields.items()],
    }
    return SubmittedSchema(type="avro_schema", schema=msgspec.json.encode(schema).decode())


def _statistic(parallelism: int) -> Statistic:
    return Statistic(
        messages_per_minute=100, message_size=100, read_parallelism=parallelism, write_parallelism=parallelism
    )


def wants_dead_letters(subscription: Subscription) -> bool:
    """Whether events that a subscription can't process shall go to the dead letter queue."""
    policy = policy_of(subscription.annotations)
    return policy is not None and policy.keeps
