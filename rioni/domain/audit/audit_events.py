"""The audit trail: entries of the internal log as events of `nakadi.audit.log`, and states as auditors see them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from rioni.domain.event_types.event_type import EventTypeChanged, EventTypeCreated, EventTypeDeleted, SchemaAdded
from rioni.domain.ports.event_log import RecordedChange
from rioni.domain.subscriptions.subscription import (
    CursorsReset,
    DeadLettersRedriven,
    SubscriptionChanged,
    SubscriptionCreated,
    SubscriptionDeleted,
    SubscriptionKeyClaimed,
    SubscriptionKeyReleased,
)
from rioni.domain.system.event_chains import EventChainsAnchored
from rioni.domain.system.settings import (
    AdminsChanged,
    BlacklistEntryAdded,
    BlacklistEntryRemoved,
    FeatureSwitched,
    LossAccepted,
    Settings,
)
from rioni.domain.system.storages import (
    DefaultStorageChanged,
    StorageCreated,
    StorageDeleted,
    StorageEntry,
    StorageMoved,
    kept_configuration,
    shown,
)
from rioni.domain.system.system_events import SystemEvent, derived_eid, pseudonymize
from rioni.domain.timelines.timeline import (
    TimelineCleanedUp,
    TimelineCloseStarted,
    TimelineDigested,
    TimelineOpened,
    TimelinesDeleted,
    TimelinesRepartitioned,
    TimelineSwitchAborted,
    TimelineSwitched,
    TimelineSwitchStarted,
)
from rioni.domain.timelines.topics import TopicAbandoned, TopicCreationEnded, TopicCreationStarted, TopicDeleted
from rioni.domain.transparency.log_keys import LogKeyAdded


# --- Converts entries of the internal log to events of `nakadi.audit.log`: who did what to which resource ---
#
# Source: reference system-event-types#audit-event.

CREATED, UPDATED, DELETED = "C", "U", "D"


class Audited(NamedTuple):
    """A change of a resource, in the terms of the audit log."""

    resource_type: str
    resource_id: str
    operation: str
    """C, U or D."""
    previous: str | None
    """JSON; None if it was created."""
    new: str | None
    """JSON; None if it was deleted."""


def audit_events(changes: Sequence[RecordedChange], salt: str) -> list[SystemEvent]:
    """The events that report on a command, in the order of its entries.

    Args:
        changes: all entries of the command.
        salt: for the hashes of names.
    """
    reported: dict[tuple[str, str, str], tuple[RecordedChange, Audited]] = {}
    for change in changes:
        if (audited := AUDITED[type(change.entry.event)](change)) is not None:
            # An update of an event type and its schema has two entries, but is one event.
            first, earlier = reported.get(audited[:3], (change, audited))
            reported[audited[:3]] = first, earlier._replace(new=audited.new)
    return [_event(change, audited, salt) for change, audited in reported.values()]


def _event(change: RecordedChange, audited: Audited, salt: str) -> SystemEvent:
    origin = change.entry.origin
    data: dict[str, Any] = {}
    for name, text in (("previous", audited.previous), ("new", audited.new)):
        if text is not None:
            data |= {f"{name}_object": msgspec.Raw(text.encode()), f"{name}_text": text}
    data |= {
        "resource_type": audited.resource_type,
        "resource_id": audited.resource_id,
        "user": origin.actor,
        "user_hash": pseudonymize(salt, origin.actor),
    }
    return SystemEvent(
        eid=derived_eid(UUID(origin.command_id), f"audit:{change.entry.position}"),
        occurred_at=origin.recorded_at,
        flow_id=origin.flow_id,
        members={"data_type": audited.resource_type, "data_op": audited.operation, "data": data},
    )


# --- Conversion by kind of entry ---


def _unreported(_change: RecordedChange) -> None:
    """No event: the contract has none for it, and another entry of the command has one."""


def _whole(resource_type: str, operation: str) -> Callable[[RecordedChange], Audited]:
    """Describe a change of an aggregate, with the states of the log."""

    def audited(change: RecordedChange) -> Audited:
        return Audited(resource_type, change.entry.event.key, operation, change.before, change.after)

    return audited


def _storage(operation: str) -> Callable[[RecordedChange], Audited]:
    """Describe a change of a storage, with states as the API shows them: older logs may hold more."""

    def audited(change: RecordedChange) -> Audited:
        previous, new = (
            None if text is None else _json(shown(msgspec.json.decode(text, type=StorageEntry)))
            for text in (change.before, change.after)
        )
        return Audited("storage", change.entry.event.key, operation, previous, new)

    return audited


def _timeline_opened(change: RecordedChange) -> Audited:
    event = change.entry.event
    assert isinstance(event, TimelineOpened | TimelineSwitched)
    return Audited("timeline", event.timeline.id, CREATED, None, _json(event.timeline))


def _cursors_reset(change: RecordedChange) -> Audited:
    event = change.entry.event
    assert isinstance(event, CursorsReset)
    previous = _json({"items": event.previous}) if event.previous else None
    return Audited("cursors", event.id, UPDATED, previous, _json({"items": event.cursors}))


def _dead_letters_redriven(change: RecordedChange) -> Audited:
    event = change.entry.event
    assert isinstance(event, DeadLettersRedriven)
    new = {"filter": event.wanted, "forced": event.forced, "redriven": event.redriven}
    return Audited("dead_letters", event.id, UPDATED, None, _json(new))


def _feature_switched(change: RecordedChange) -> Audited:
    event = change.entry.event
    assert isinstance(event, FeatureSwitched)
    previous, new = ({"feature": event.feature, "enabled": on} for on in (not event.enabled, event.enabled))
    return Audited("feature", event.feature, UPDATED, _json(previous), _json(new))


def _admins_changed(change: RecordedChange) -> Audited:
    event = change.entry.event
    assert isinstance(event, AdminsChanged)
    before = msgspec.json.decode(change.before, type=Settings) if change.before else Settings()
    return Audited("admins", "-", UPDATED, _json(before.admins), _json(event.admins))


def _blacklist_entry_added(change: RecordedChange) -> Audited:
    event = change.entry.event
    assert isinstance(event, BlacklistEntryAdded)
    new = _json({"type": event.type, "name": event.name})
    return Audited("blacklist_entry", f"{event.type}:{event.name}", CREATED, None, new)


def _blacklist_entry_removed(change: RecordedChange) -> Audited:
    event = change.entry.event
    assert isinstance(event, BlacklistEntryRemoved)
    previous = _json({"type": event.type, "name": event.name})
    return Audited("blacklist_entry", f"{event.type}:{event.name}", DELETED, previous, None)


def _loss_accepted(change: RecordedChange) -> Audited:
    event = change.entry.event
    assert isinstance(event, LossAccepted)
    new = _json({"findings": event.findings, "reason": event.reason})
    return Audited("installation", "-", UPDATED, None, new)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


AUDITED: Mapping[type, Callable[[RecordedChange], Audited | None]] = {
    EventTypeCreated: _whole("event_type", CREATED),
    EventTypeChanged: _whole("event_type", UPDATED),
    SchemaAdded: _whole("event_type", UPDATED),
    EventTypeDeleted: _whole("event_type", DELETED),
    TimelineOpened: _timeline_opened,
    TimelineSwitchStarted: _unreported,
    TimelineCloseStarted: _unreported,
    TimelineSwitched: _timeline_opened,
    TimelineSwitchAborted: _unreported,
    TimelineCleanedUp: _unreported,
    TimelineDigested: _unreported,
    TimelinesRepartitioned: _unreported,
    TimelinesDeleted: _unreported,
    TopicAbandoned: _unreported,
    TopicDeleted: _unreported,
    TopicCreationStarted: _unreported,
    TopicCreationEnded: _unreported,
    SubscriptionCreated: _whole("subscription", CREATED),
    SubscriptionChanged: _whole("subscription", UPDATED),
    SubscriptionDeleted: _whole("subscription", DELETED),
    SubscriptionKeyClaimed: _unreported,
    SubscriptionKeyReleased: _unreported,
    CursorsReset: _cursors_reset,
    DeadLettersRedriven: _dead_letters_redriven,
    StorageCreated: _storage(CREATED),
    DefaultStorageChanged: _unreported,
    StorageMoved: _storage(UPDATED),
    StorageDeleted: _storage(DELETED),
    FeatureSwitched: _feature_switched,
    AdminsChanged: _admins_changed,
    BlacklistEntryAdded: _blacklist_entry_added,
    BlacklistEntryRemoved: _blacklist_entry_removed,
    LossAccepted: _loss_accepted,
    EventChainsAnchored: _unreported,
    LogKeyAdded: _unreported,
}
"""The conversion of every domain event."""


# --- States of the log as auditors see them ---

STORAGE = "storage"


def shown_state(kind: str, body: str | None) -> Any:
    """Return a state without the members that the broker's other responses omit too.

    Args:
        kind: the kind of the resource.
        body: the state as JSON; None if there is none.
    """
    if body is None:
        return None
    state = msgspec.json.decode(body)
    if kind == STORAGE and "configuration" in state:
        state["configuration"] = kept_configuration(state["configuration"] or {})
    return state
