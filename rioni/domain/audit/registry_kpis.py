"""Converts entries of the internal log to the KPI events on event types and subscriptions.

Source: reference system-event-types#kpi-event-types.
"""

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

import msgspec

from rioni.domain.event_types.event_type import (
    EventType,
    EventTypeChanged,
    EventTypeCreated,
    EventTypeDeleted,
    SchemaAdded,
)
from rioni.domain.ports.checkpointed_log import RecordedChange
from rioni.domain.subscriptions.subscription import SubscriptionCreated, SubscriptionDeleted
from rioni.domain.system.system_events import SystemEvent, derived_eid


EVENT_TYPE_LOG = "nakadi.event.type.log"
SUBSCRIPTION_LOG = "nakadi.subscription.log"

_EVENT_TYPE_STATUS: dict[type, str] = {
    EventTypeCreated: "created",
    EventTypeChanged: "updated",
    SchemaAdded: "updated",
    EventTypeDeleted: "deleted",
}
_SUBSCRIPTION_STATUS: dict[type, str] = {SubscriptionCreated: "created", SubscriptionDeleted: "deleted"}


def event_type_reports(changes: Sequence[RecordedChange]) -> list[SystemEvent]:
    """The events of `nakadi.event.type.log` that report on the entries of a command."""
    reported: dict[str, SystemEvent] = {}
    for change in changes:
        event = change.entry.event
        if (status := _EVENT_TYPE_STATUS.get(type(event))) is not None:
            # Changes of definition and schema by one command are one update.
            reported[event.key] = _report(change, {"event_type": event.key, "status": status, **_shown(change)})
    return list(reported.values())


def _shown(change: RecordedChange) -> dict[str, str]:
    state = msgspec.json.decode(change.after or change.before or "", type=EventType)
    return {
        "category": state.category,
        "authz": "disabled" if state.authorization is None else "enabled",
        "compatibility_mode": state.compatibility_mode.upper(),
    }


def subscription_reports(changes: Iterable[RecordedChange]) -> list[SystemEvent]:
    """The events of `nakadi.subscription.log`."""
    return [
        _report(change, {"subscription_id": change.entry.event.key, "status": status})
        for change in changes
        if (status := _SUBSCRIPTION_STATUS.get(type(change.entry.event))) is not None
    ]


def _report(change: RecordedChange, members: dict[str, Any]) -> SystemEvent:
    origin = change.entry.origin
    return SystemEvent(
        eid=derived_eid(UUID(origin.command_id), f"kpi:{change.entry.position}"),
        occurred_at=origin.recorded_at,
        flow_id=origin.flow_id,
        members=members,
    )
