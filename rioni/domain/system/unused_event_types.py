"""Finds event types that no client uses (reference event-types#unused)."""

from collections.abc import Collection, Iterable

from rioni.domain.event_types.event_type import EventType
from rioni.domain.subscriptions.activity import resource_of
from rioni.domain.subscriptions.subscription import Subscription
from rioni.domain.system.system_event_types import NAMES


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
        active: what clients used lately: ids of subscriptions, and `resource_of` event types.
        created_before: a time as `rfc3339` writes it; younger event types are not counted as unused.
    """
    consumed = {name for each in subscriptions if each.id in active for name in each.event_types} | NAMES
    return [
        each
        for each in event_types
        if each.created_at < created_before and each.name not in consumed and resource_of(each) not in active
    ]
