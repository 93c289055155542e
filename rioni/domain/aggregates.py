"""The table of all aggregates, for each kind its state, fold and events, and the formats in which logs hold them."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from rioni.domain.event_types import event_type
from rioni.domain.events import DomainEvent
from rioni.domain.subscriptions import subscription
from rioni.domain.system import anchors, settings, storages
from rioni.domain.timelines import timeline, topics
from rioni.domain.transparency import log_keys


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
        topics.AbandonedTopic,
        topics.evolve_abandoned,
        (topics.TopicAbandoned, topics.TopicDeleted),
    ),
    "topic-creation": Aggregate(
        topics.TopicCreation,
        topics.evolve_creation,
        (topics.TopicCreationStarted, topics.TopicCreationEnded),
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
    "event-chains": Aggregate(anchors.EventChains, anchors.evolve, (anchors.EventChainsAnchored,)),
}

TOPICS: dict[str, type[DomainEvent]] = {
    event.TOPIC: event for aggregate in AGGREGATES.values() for event in aggregate.events
}
"""Every topic that may occur in the log; a topic is never renamed and never removed."""


# --- The formats of the log: the class versions of domain events that each release reads and writes ---
#
# A release that adds a topic, or raises the class version of one, adds a format here. A log states the format in which
# it is written. That is raised only when every live node can read the next one, so nodes of two releases can share a
# log.


class Format(NamedTuple):
    """Additions of one format to the previous one."""

    release: str
    """The first release that reads and writes it."""
    versions: Mapping[str, int]
    """Class versions by topic, written from this format on; 1 for a topic that is new in it."""


Formats = Mapping[int, Format]
"""Formats by number, from 1 without gaps."""

FORMATS: Formats = MappingProxyType(
    {
        1: Format("0.1.0", {}),
        2: Format("0.1.1", {"event-chains.anchored": 1, "log-keys.added": 1, "timeline.digested": 1}),
    }
)
"""Format 1 has every topic that no later format lists, at class version 1."""


def newest(formats: Formats) -> int:
    """The newest format that this release reads, and writes unless another node needs an older one."""
    return max(formats)


def version_in(topic: str, number: int, formats: Formats) -> int:
    """The class version of a topic in a format; 0 if the format does not have the topic.

    Args:
        topic: the topic of a domain event.
        number: the number of the format; may be newer than all known ones.
        formats: all known ones.
    """
    changes = {known: each.versions[topic] for known, each in formats.items() if topic in each.versions}
    if not changes:
        return 1
    before = 0 if changes[min(changes)] == 1 else 1
    return max((version for known, version in changes.items() if known <= number), default=before)
