"""The port to the current state of the registry, for commands and streams."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from rioni.domain.event_types.event_type import EventType
from rioni.domain.subscriptions.subscription import Subscription
from rioni.domain.system.settings import Settings
from rioni.domain.system.storages import StorageEntry
from rioni.domain.timelines.timeline import Timelines
from rioni.domain.timelines.topic_creation import TopicCreation
from rioni.domain.timelines.topic_deletion import AbandonedTopic


if TYPE_CHECKING:
    from rioni.domain.publishing.rules import PublishRules


class Registry(Protocol):
    """The state of everything, in memory, for the paths that publish and consume."""

    def refresh(self) -> None:
        """Catch up with the log: everything that was answered before is visible then. May block on the database."""

    @property
    def settings(self) -> Settings:
        """The broker's settings."""

    def subscriptions(self) -> Sequence[Subscription]:
        """All subscriptions."""

    def event_types(self) -> Sequence[EventType]:
        """All event types."""

    def event_type(self, name: str) -> EventType:
        """The event type, or EventTypeNotFound."""

    def timelines(self, name: str) -> Timelines:
        """The timelines of an event type, or EventTypeNotFound."""

    def subscription(self, subscription_id: str) -> Subscription:
        """The subscription, or SubscriptionNotFound."""

    def storage(self, storage_id: str) -> StorageEntry | None:
        """The storage, if there is one."""

    def storages(self) -> Sequence[StorageEntry]:
        """All storages."""

    def abandoned_topics(self) -> Sequence[AbandonedTopic]:
        """All topics that are to be deleted."""

    def topic_creations(self) -> Sequence[TopicCreation]:
        """All topics that are being created for new event types."""

    def publish_rules(self, name: str) -> "PublishRules":
        """What publishing to an event type needs, compiled once per version of it."""
