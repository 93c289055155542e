"""The table of all aggregates: for each kind its state, its fold and its events."""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from rioni.domain.event_types import event_type
from rioni.domain.events import DomainEvent
from rioni.domain.subscriptions import subscription
from rioni.domain.system import event_chains, log_keys, settings, storages
from rioni.domain.timelines import timeline, topic_creation, topic_deletion


class Aggregate(NamedTuple):
    """One kind of aggregate."""

    state: type[msgspec.Struct]
    evolve: Callable[[Any, DomainEvent], Any]
    events: tuple[type[DomainEvent], ...]


AGGREGATES: dict[str, Aggregate] = {
    "event-type": Aggregate(
        event_type.EventType,
        event_type.evolve,
        (
            event_type.EventTypeCreated,
            event_type.EventTypeChanged,
            event_type.SchemaAdded,
            event_type.EventTypeDeleted,
        ),
    ),
    "timeline": Aggregate(
        timeline.Timelines,
        timeline.evolve,
        (
            timeline.TimelineOpened,
            timeline.TimelineSwitchStarted,
            timeline.TimelineCloseStarted,
            timeline.TimelineSwitched,
            timeline.TimelineSwitchAborted,
            timeline.TimelineCleanedUp,
            timeline.TimelineDigested,
            timeline.TimelinesRepartitioned,
            timeline.TimelinesDeleted,
        ),
    ),
    "topic": Aggregate(
        topic_deletion.AbandonedTopic,
        topic_deletion.evolve,
        (topic_deletion.TopicAbandoned, topic_deletion.TopicDeleted),
    ),
    "topic-creation": Aggregate(
        topic_creation.TopicCreation,
        topic_creation.evolve,
        (topic_creation.TopicCreationStarted, topic_creation.TopicCreationEnded),
    ),
    "subscription": Aggregate(
        subscription.Subscription,
        subscription.evolve,
        (
            subscription.SubscriptionCreated,
            subscription.SubscriptionChanged,
            subscription.CursorsReset,
            subscription.DeadLettersRedriven,
            subscription.SubscriptionDeleted,
        ),
    ),
    "subscription-key": Aggregate(
        subscription.SubscriptionKey,
        subscription.evolve_claim,
        (subscription.SubscriptionKeyClaimed, subscription.SubscriptionKeyReleased),
    ),
    "storage": Aggregate(
        storages.StorageEntry,
        storages.evolve,
        (
            storages.StorageCreated,
            storages.DefaultStorageChanged,
            storages.StorageMoved,
            storages.StorageDeleted,
        ),
    ),
    "settings": Aggregate(
        settings.Settings,
        settings.evolve,
        (
            settings.AdminsChanged,
            settings.BlacklistEntryAdded,
            settings.BlacklistEntryRemoved,
            settings.FeatureSwitched,
            settings.LossAccepted,
        ),
    ),
    "log-keys": Aggregate(log_keys.LogKeys, log_keys.evolve, (log_keys.LogKeyAdded,)),
    "event-chains": Aggregate(event_chains.EventChains, event_chains.evolve, (event_chains.EventChainsAnchored,)),
}

TOPICS: dict[str, type[DomainEvent]] = {
    event.TOPIC: event for aggregate in AGGREGATES.values() for event in aggregate.events
}
"""Every topic that may stand in the log; a topic is never renamed and never removed."""
