"""The ports to the state of the registry: in memory for commands and streams, and in the transaction of a command."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from rioni.domain.event_types.event_type import EventType
from rioni.domain.ports.event_log import LogEntry
from rioni.domain.subscriptions.subscription import Subscription
from rioni.domain.system.settings import Settings
from rioni.domain.system.storages import StorageEntry
from rioni.domain.timelines.timeline import Timeline, Timelines
from rioni.domain.timelines.topics import AbandonedTopic, TopicCreation


if TYPE_CHECKING:
    from rioni.domain.publishing.rules import PublishRules


# --- The port to the current state of the registry, for commands and streams ---


class Registry(Protocol):
    """In-memory state of all aggregates, for publishing and consuming."""

    @property
    def position(self) -> int:
        """The last position of the log whose changes are visible."""

    def changed_since(self, position: int) -> Collection[tuple[str, str]] | None:
        """Kinds and keys of resources changed after a position of the log; None if the position is too old to know."""

    def refresh(self) -> None:
        """Catch up with the log: all changes acknowledged before are visible then. May block on the database."""

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
        """The storage, or None."""

    def storages(self) -> Sequence[StorageEntry]:
        """All storages."""

    def abandoned_topics(self) -> Sequence[AbandonedTopic]:
        """All topics pending deletion."""

    def topic_creations(self) -> Sequence[TopicCreation]:
        """All topics that are being created for new event types."""

    def publish_rules(self, name: str) -> "PublishRules":
        """The publishing rules of an event type, compiled once per version of it."""


# --- The port to the read models, which are written in the transaction that appends to the log ---


class ReadModels(Protocol):
    """Read models as seen by a command, inside its own transaction."""

    def state(self, connection: Any, kind: str, key: str) -> tuple[Any, int]:
        """The state of an aggregate, None if it does not exist, and the version of its stream."""

    def subscriptions_of(self, connection: Any, event_type: str) -> Sequence[Subscription]:
        """All subscriptions to an event type."""

    def storages(self, connection: Any) -> Sequence[StorageEntry]:
        """All storages by id."""

    def timelines_in(self, connection: Any, storage_id: str) -> Sequence[Timeline]:
        """All timelines in a storage, of all event types."""

    def apply(self, connection: Any, entries: Sequence[LogEntry]) -> None:
        """Fold entries, which directly follow the last applied ones, into the read models."""
