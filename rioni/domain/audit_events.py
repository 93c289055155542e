"""The audit trail: entries of the internal log as events of `nakadi.audit.log`, and records of refused requests."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol
from uuid import UUID

import msgspec

from rioni.domain.event_types.event_type import EventTypeChanged, EventTypeCreated, EventTypeDeleted, SchemaAdded
from rioni.domain.events import DomainEvent
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
from rioni.domain.system.anchors import EventChainsAnchored
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
    previous: str | None
    """JSON; None if it was created."""
    new: str | None
    """JSON; None if it was deleted."""
    operation: str
    """C, U or D."""


def audit_events(changes: Sequence[RecordedChange], salt: str) -> list[SystemEvent]:
    """The events that report on a command, in the order of its entries.

    Args:
        changes: all entries of the command.
        salt: for the hashes of names.
    """
    reported: dict[tuple[str, str, str], tuple[RecordedChange, Audited]] = {}
    for change in changes:
        if (audited := _audited(change)) is not None:
            # An update of an event type and its schema has two entries, but is one event.
            key = audited.resource_type, audited.resource_id, audited.operation
            first, earlier = reported.get(key, (change, audited))
            reported[key] = first, earlier._replace(new=audited.new)
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


def _audited(change: RecordedChange) -> Audited | None:
    event = change.entry.event
    if (reported := AUDITED[type(event)]) is None:
        return None
    resource_type, operation = reported
    return Audited(resource_type, *_states(change, event), operation)


def _states(  # noqa: PLR0911 - one for each kind
    change: RecordedChange, event: DomainEvent
) -> tuple[str, str | None, str | None]:
    """The id of the changed resource, and its states before and after, as JSON."""
    match event:
        case TimelineOpened(timeline=timeline) | TimelineSwitched(timeline=timeline):
            return timeline.id, None, _json(timeline)
        case CursorsReset(previous=previous, cursors=cursors):
            return event.id, _json({"items": previous}) if previous else None, _json({"items": cursors})
        case DeadLettersRedriven(wanted=wanted, forced=forced, redriven=redriven):
            return event.id, None, _json({"filter": wanted, "forced": forced, "redriven": redriven})
        case StorageCreated() | StorageMoved() | StorageDeleted():
            # The API shows them in this way: older logs may hold more.
            before, after = (
                None if text is None else _json(shown(msgspec.json.decode(text, type=StorageEntry)))
                for text in (change.before, change.after)
            )
            return event.key, before, after
        case FeatureSwitched(feature=feature, enabled=enabled):
            was, now = (_json({"feature": feature, "enabled": on}) for on in (not enabled, enabled))
            return feature, was, now
        case AdminsChanged(admins=admins):
            known = msgspec.json.decode(change.before, type=Settings) if change.before else Settings()
            return "-", _json(known.admins), _json(admins)
        case BlacklistEntryAdded(type=kind, name=name) | BlacklistEntryRemoved(type=kind, name=name):
            entry = _json({"type": kind, "name": name})
            is_new = isinstance(event, BlacklistEntryAdded)
            return f"{kind}:{name}", *((None, entry) if is_new else (entry, None))
        case LossAccepted(findings=findings, reason=reason):
            return "-", None, _json({"findings": findings, "reason": reason})
        case _:
            return event.key, change.before, change.after


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


_UNREPORTED = (
    *(TimelineSwitchStarted, TimelineCloseStarted, TimelineSwitchAborted, TimelineCleanedUp, TimelineDigested),
    *(TimelinesRepartitioned, TimelinesDeleted, TopicAbandoned, TopicDeleted, TopicCreationStarted, TopicCreationEnded),
    *(SubscriptionKeyClaimed, SubscriptionKeyReleased, DefaultStorageChanged, EventChainsAnchored, LogKeyAdded),
)
"""The contract has no event for these, or another entry of the command has one."""

AUDITED: Mapping[type[DomainEvent], tuple[str, str] | None] = {
    EventTypeCreated: ("event_type", CREATED),
    EventTypeChanged: ("event_type", UPDATED),
    SchemaAdded: ("event_type", UPDATED),
    EventTypeDeleted: ("event_type", DELETED),
    TimelineOpened: ("timeline", CREATED),
    TimelineSwitched: ("timeline", CREATED),
    SubscriptionCreated: ("subscription", CREATED),
    SubscriptionChanged: ("subscription", UPDATED),
    SubscriptionDeleted: ("subscription", DELETED),
    CursorsReset: ("cursors", UPDATED),
    DeadLettersRedriven: ("dead_letters", UPDATED),
    StorageCreated: ("storage", CREATED),
    StorageMoved: ("storage", UPDATED),
    StorageDeleted: ("storage", DELETED),
    FeatureSwitched: ("feature", UPDATED),
    AdminsChanged: ("admins", UPDATED),
    BlacklistEntryAdded: ("blacklist_entry", CREATED),
    BlacklistEntryRemoved: ("blacklist_entry", DELETED),
    LossAccepted: ("installation", UPDATED),
    **dict.fromkeys(_UNREPORTED),
}
"""The resource type and the operation that each domain event is reported with; None if it is not reported."""


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


# --- Refused requests: their records, and the port that stores them ---
#
# They are no part of the internal log: anyone can cause any number of them.

KEPT_MAX = 10_000
"""Records of clients that are not known that are kept, the newest ones."""
KEPT_OF_KNOWN_MAX = 100_000
"""How many records of known subjects are kept; unknown clients can't push these out. They take at most 150 MB, since
each text of a record has a bound in bytes."""


class Denial(msgspec.Struct, frozen=True, kw_only=True):
    """Requests that were refused alike within some seconds: 401 or 403."""

    first_at: str
    """RFC 3339 in UTC with milliseconds and `Z`."""
    last_at: str
    status: int
    method: str
    path: str
    """The path without the query; empty if requests to several paths are counted together."""
    actor: str
    """The name of the client's subject; empty if the client is not known."""
    realm: str = ""
    """The realm in which the actor's name is unique; empty if there is none."""
    address: str
    """The client's address; empty if requests from several addresses are counted together."""
    user_agent: str
    """The user agent of the first of these requests."""
    flow_id: str
    """The flow id of the first of these requests."""
    count: int


class DenialStore(Protocol):
    """Keeps the newest records of all processes, those of known subjects apart from the others.

    Calls block on the database; all raise Unavailable.
    """

    def add(self, denials: Sequence[Denial]) -> None:
        """Add records, and forget the oldest beyond `KEPT_MAX` and `KEPT_OF_KNOWN_MAX`."""

    def newest(self, before: int | None, limit: int) -> Sequence[tuple[int, Denial]]:
        """Records with their numbers, newest first, from before a number on."""
