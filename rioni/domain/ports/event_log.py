"""The ports to the internal log and to the state that follows from it: the registry in memory, and the read models."""

from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from uuid import UUID

import msgspec

from rioni.domain.event_types.event_type import EventType
from rioni.domain.events import DomainEvent, Origin
from rioni.domain.hash_chain import LogHead
from rioni.domain.subscriptions.subscription import Subscription
from rioni.domain.system.settings import Settings
from rioni.domain.system.storages import StorageEntry
from rioni.domain.timelines.timeline import Timeline, Timelines
from rioni.domain.timelines.topics import AbandonedTopic, TopicCreation


if TYPE_CHECKING:
    from rioni.domain.publishing.rules import PublishRules


# --- The port to the internal log: entries, its head, and transactions that append ---


class LogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A domain event as stored in the log."""

    position: int
    """The position in the log: from 1, without gaps, in the order of the commits."""
    stream: UUID
    version: int
    """The version within the stream: from 1, without gaps."""
    event: DomainEvent
    origin: Origin

    @property
    def originator_id(self) -> UUID:
        """The stream's id, under the name that the event-sourcing library uses."""
        return self.stream

    @property
    def originator_version(self) -> int:
        """The version, under the name that the event-sourcing library uses."""
        return self.version


class LogTransaction(Protocol):
    """A transaction that holds the lock on the head of the log: other writers wait until it ends."""

    @property
    def connection(self) -> Any:
        """The database connection; only projections use it, to write in the same transaction."""

    @property
    def head(self) -> LogHead:
        """The head of the log in this transaction, its own appends included."""

    def append(self, stream: UUID, version: int, events: Sequence[DomainEvent], origin: Origin) -> Sequence[LogEntry]:
        """Append to a stream.

        Args:
            stream: the stream's id.
            version: the stream's current version, 0 for a new one.
            events: to append.
            origin: stored with every event.

        Raises:
            ConcurrentChange: the stream has another version.
        """

    def entries(self, after: int) -> Iterable[LogEntry]:
        """The entries after a position, in order, including those of this transaction."""


class EventLog(Protocol):
    """The internal log: every change of the registry, of subscriptions, of timelines. Calls block on the database."""

    def head(self) -> LogHead:
        """The head of the log."""

    def position(self) -> int:
        """The last position. Cheap: called by every request.

        May miss commands whose transactions have not ended yet, and, while a dead notification connection has not been
        detected, those of the last seconds.
        """

    def last_notified_position(self) -> int:
        """The last position that this process was notified of: like `position`, but never waits for the server."""

    def entries(self, after: int, limit: int) -> Sequence[LogEntry]:
        """At most `limit` entries after a position, in order."""

    def transaction(self) -> AbstractContextManager[LogTransaction]:
        """Lock the head, commit at the end of the block, roll back if it raises.

        Raises:
            TransactionConflict: it conflicted with another one.
            CommitOutcomeUnknown: it may or may not have been committed; see `was_committed`.
            Unavailable: the database can't be reached, is full or stays locked beyond the deadline.
        """

    def was_committed(self, command_id: str, after: int) -> bool:
        """Whether a command with unknown commit outcome has been recorded after a position; the answer is final.

        Raises:
            CommitOutcomeUnknown: the outcome can't be determined.
        """


# --- The port to readers of the internal log with stored checkpoints ---


class RecordedChange(NamedTuple):
    """An entry of the log, with the state of its stream before and after it."""

    entry: LogEntry
    before: str | None
    """JSON; None if the aggregate did not exist."""
    after: str | None
    """JSON; None if the aggregate was deleted."""


class CheckpointedLogReader(Protocol):
    """Reads the log in steps, with a durable checkpoint for each follower. Calls block on the database.

    All raise Unavailable if the database can't be reached.
    """

    def head(self) -> int:
        """The last position of the log. Cheap."""

    def changes(self, after: int, limit: int) -> Sequence[RecordedChange]:
        """Return about `limit` entries after a position, in order and without gaps; no transaction is cut."""

    def state(self, kind: str, key: str, position: int) -> str | None:
        """The JSON of an aggregate after the entries up to a position; None if it did not exist then."""

    def checkpoint(self, follower: str) -> int:
        """The checkpoint of a follower: the last position it has processed; 0 at first."""

    def save_checkpoint(self, follower: str, position: int) -> None:
        """Save a follower's checkpoint durably; it never moves backwards."""


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
