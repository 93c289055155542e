"""Knows which subscriptions depend on which topics, and the topics and subscriptions of each change flag."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress

from rioni.domain.errors import EventTypeNotFound, SubscriptionNotFound
from rioni.domain.ports.event_log import Registry
from rioni.domain.ports.host import ChangeFlags


class FollowedSubscriptions:
    """The subscriptions, their event types and topics, and the flags of all."""

    def __init__(self, registry: Registry, flags: ChangeFlags) -> None:
        self._registry, self._flags = registry, flags
        self.subscriptions: dict[str, Sequence[str]] = {}
        """The event types of each subscription, by its id."""
        self._subscribers: defaultdict[str, set[str]] = defaultdict(set)
        self._topics: dict[str, str] = {}
        """The event types' current topics, by event type."""
        self._event_types: dict[str, str] = {}
        """The reverse."""
        self._names: defaultdict[int, set[str]] = defaultdict(set)
        """The topics and subscriptions of each flag."""
        self._dropped: list[str] = []
        self._unknown: set[int] = set()
        """Flags without a known topic or subscription: nobody is subscribed, or the subscription is new."""

    def event_types_of(self, subscription_id: str) -> Sequence[str]:
        """The event types of a subscription."""
        return self.subscriptions.get(subscription_id, ())

    def subscribers_of(self, topic: str) -> Collection[str]:
        """The subscriptions to the event type that is stored in a topic now."""
        return self._subscribers.get(self._event_types.get(topic, ""), ())

    def flagged(self, flags: Iterable[int]) -> tuple[list[str], list[str]]:
        """The topics, and the subscriptions, that may have changed; those still unknown are returned later."""
        flags = {*flags}
        names = [name for flag in flags | self._unknown for name in self._names.get(flag, ())]
        self._unknown = {flag for flag in flags if flag not in self._names}
        return [n for n in names if n in self._event_types], [n for n in names if n in self.subscriptions]

    def dropped(self) -> Sequence[str]:
        """The topics that are no longer followed, since the last call."""
        dropped, self._dropped = self._dropped, []
        return dropped

    def follow(self, subscription_id: str) -> bool:
        """Update the event types of a subscription; return whether it exists."""
        before = self.subscriptions.pop(subscription_id, ())
        try:
            now: Sequence[str] = self._registry.subscription(subscription_id).event_types
        except SubscriptionNotFound:
            self._forget(subscription_id)
            now = ()
        else:
            self.subscriptions[subscription_id] = now
            self._names[self._flags.flag_of(subscription_id)].add(subscription_id)
        for name in now:
            self._subscribers[name].add(subscription_id)
            self.switch(name)
        for name in {*before} - {*now}:
            self._subscribers[name].discard(subscription_id)
            if not self._subscribers[name]:
                del self._subscribers[name]
                self.switch(name)
        return subscription_id in self.subscriptions

    def switch(self, event_type: str) -> Collection[str]:
        """Update the current topic of an event type, if anybody is subscribed to it; return its subscriptions."""
        topic = None
        if event_type in self._subscribers:
            with suppress(EventTypeNotFound):
                topic = self._registry.timelines(event_type).active.topic
        before = self._topics.pop(event_type, None)
        if before is not None and before != topic:
            del self._event_types[before]
            self._forget(before)
            self._dropped.append(before)
        if topic is not None:
            self._topics[event_type], self._event_types[topic] = topic, event_type
            self._names[self._flags.flag_of(topic)].add(topic)
        return self._subscribers.get(event_type, ())

    def _forget(self, name: str) -> None:
        flag = self._flags.flag_of(name)
        self._names[flag].discard(name)
        if not self._names[flag]:
            del self._names[flag]
