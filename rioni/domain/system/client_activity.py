"""Client activity on event types and subscriptions, the port that stores it, and event types that no client uses."""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, Protocol

import msgspec

from rioni.domain.event_types.event_type import EventType
from rioni.domain.subscriptions.subscription import Subscription
from rioni.domain.system.system_events import NAMES


PUBLISH, READ, STREAM, COMMIT = "publish", "read", "stream", "commit"
"""The first two are done with event types (`read` on the low-level API), the others with subscriptions."""
END = "end:"
"""Followed by the label of a reason: the end of a stream of a subscription, with the amount 1."""

DAY_MS = 24 * 3_600_000
RETENTION_DAYS = 90
RETENTION_MS = RETENTION_DAYS * DAY_MS
"""Retention time of activity records, in milliseconds."""


class ActivityKey(NamedTuple):
    """Key of an activity record: action, resource and client."""

    action: str
    """One of those above, `END` with a reason."""
    resource: str
    """The event type or subscription."""
    client: str
    """The key of the subject; before release 0.1.1 its name."""


class LastActivity(msgspec.Struct, frozen=True):
    """First and last time, and amount, of an action of a client."""

    first_ms: int
    last_ms: int
    amount: int
    """The number of events, cursors or ended streams, from the first time on."""


class Activity(Protocol):
    """Stores activity records, shared by all processes. Calls block on the disk.

    Records survive crashes of processes; a crash of the machine may lose the last seconds. All raise Unavailable if
    nothing can be stored or read.
    """

    def add(self, records: Mapping[ActivityKey, LastActivity]) -> None:
        """Merge records: amounts are added, time spans are widened."""

    def of_any(self, actions: Collection[str], resource: str) -> Mapping[ActivityKey, LastActivity]:
        """Activity on a resource by any of these actions, in the order of the clients."""

    def active_since(self, since_ms: int) -> Collection[str]:
        """The resources on which there was any activity since a time."""

    def delete_before(self, before_ms: int) -> None:
        """Delete records without activity since this time."""

    def close(self) -> None:
        """Close all files."""


def resource_of(event_type: EventType) -> str:
    """The resource key of an event type; a recreated one of the same name has another key."""
    return f"{event_type.name} {event_type.created_at}"


def merge(one: LastActivity, other: LastActivity) -> LastActivity:
    """Merge two records."""
    return LastActivity(
        min(one.first_ms, other.first_ms),
        max(one.last_ms, other.last_ms),
        one.amount + other.amount,
    )


# --- Finds event types that no client uses (reference event-types#unused) ---


def unused(
    event_types: Iterable[EventType],
    subscriptions: Iterable[Subscription],
    active: Collection[str],
    created_before: str,
) -> list[EventType]:
    """The event types that no client uses: those that nobody publishes to or reads, with or without a subscription.

    Event types that the broker itself publishes to are used.

    Args:
        event_types: any.
        subscriptions: all.
        active: the resources that clients used lately: ids of subscriptions, and `resource_of` event types.
        created_before: a time as `rfc3339` writes it; younger event types are not counted as unused.
    """
    consumed = {name for each in subscriptions if each.id in active for name in each.event_types} | NAMES
    return [
        each
        for each in event_types
        if each.created_at < created_before and each.name not in consumed and resource_of(each) not in active
    ]
