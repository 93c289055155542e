"""Values that many tests need, with everything filled in that the test does not care about."""

from typing import Any

import msgspec

from rioni.commands.unit_of_work import CommandContext
from rioni.domain.access.authorization import BROKER, Subject
from rioni.domain.event_types.event_type import EventType, EventTypeSpec, SubmittedSchema
from rioni.domain.event_types.rules import new as new_event_type
from rioni.domain.events import Origin
from rioni.domain.limits import Limits
from rioni.domain.subscriptions.subscription import Subscription, SubscriptionSpec
from rioni.domain.subscriptions.subscription import new as new_subscription
from rioni.domain.timelines.timeline import Timeline, Timelines


NOW = "2026-11-20T10:00:00.000Z"
LATER = "2026-11-20T11:00:00.000Z"
LATER_MS = 4_000_000_000_000
"""A time after every retention time has passed."""
COMMAND_ID = "0d1b6f0e-3c52-4d8c-9b50-0f2b7f6d2a11"
SCHEMA = '{"type":"object","properties":{"order_id":{"type":"string"}},"required":["order_id"]}'


def event_type_spec(**changes: Any) -> EventTypeSpec:
    """A business event type as a client submits it."""
    members: dict[str, Any] = {
        "name": "order.created",
        "owning_application": "shop",
        "category": "business",
        "enrichment_strategies": ("metadata_enrichment",),
        "schema": SubmittedSchema(type="json_schema", schema=SCHEMA),
    }
    return EventTypeSpec(**(members | changes))


def event_type(**changes: Any) -> EventType:
    """The state of a business event type."""
    return new_event_type(event_type_spec(**changes), now=NOW, limits=Limits())


def event_type_body(**changes: Any) -> dict[str, Any]:
    """The JSON of a business event type as a client submits it."""
    members: dict[str, Any] = {
        "name": "order.created",
        "owning_application": "shop",
        "category": "business",
        "enrichment_strategies": ["metadata_enrichment"],
        "schema": {"type": "json_schema", "schema": SCHEMA},
    }
    return members | changes


def subscription_spec(**changes: Any) -> SubscriptionSpec:
    """A subscription as a client submits it."""
    members: dict[str, Any] = {"owning_application": "billing", "event_types": ("order.created",)}
    return SubscriptionSpec(**(members | changes))


def subscription(**changes: Any) -> Subscription:
    """The state of a subscription."""
    return new_subscription(subscription_spec(**changes), subscription_id=COMMAND_ID, now=NOW)


def timeline(order: int, topic: str, *, partitions: int = 1, **changes: Any) -> Timeline:
    """A timeline; the active one, unless `latest_position` is given."""
    members: dict[str, Any] = {
        "id": str(order),
        "event_type": "order.created",
        "order": order,
        "storage_id": "default",
        "topic": topic,
        "partitions": partitions,
        "created_at": NOW,
        "switched_at": NOW,
    }
    return Timeline(**(members | changes))


def timelines_of(*timelines: Timeline) -> Timelines:
    """The timelines of an event type."""
    return Timelines(event_type="order.created", timelines=timelines)


def origin(**changes: Any) -> Origin:
    """The origin of a domain event: who caused it, and when."""
    members = {"actor": "alice", "client": "127.0.0.1", "flow_id": "flow", "command_id": COMMAND_ID, "recorded_at": NOW}
    return Origin(**(members | changes))


def context(subject: Subject = BROKER, **changes: Any) -> CommandContext:
    """The subject, time and id of a command."""
    return CommandContext(subject=subject, origin=origin(**{"actor": subject.name} | changes))


def as_spec(state: EventType) -> EventTypeSpec:
    """The body with which a client updates a resource to the state that it has read."""
    return msgspec.convert(msgspec.to_builtins(state), EventTypeSpec)
