"""What the broker needs from the outside: ports, implemented in `rioni.storage` and handed in by bootstrap.

Every port has one contract suite under `tests/contracts`, which runs over each of its adapters.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, Protocol, TypeVar
from uuid import UUID

import msgspec

from rioni.domain.event_type import EventType
from rioni.domain.events import DomainEvent, Origin
from rioni.domain.settings import Settings
from rioni.domain.storage_entry import StorageEntry
from rioni.domain.subscription import Subscription
from rioni.domain.timeline import Timelines


if TYPE_CHECKING:
    from rioni.domain.publishing import PublishRules


P = ParamSpec("P")
T = TypeVar("T")


# --- time and threads ---


class Clock(Protocol):
    """Where time comes from."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch, by the wall clock."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start, never going back."""


class Offload(Protocol):
    """Runs a blocking function where it does not stop others: in a thread pool under gevent, in place elsewhere."""

    def __call__(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what the function returns, raise what it raises; blocks the caller alone."""


# --- the internal log ---


class LogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A domain event as it stands in the log."""

    position: int
    """From 1, without gaps, in the order of the commits."""
    stream: UUID
    version: int
    """From 1 within the stream, without gaps."""
    event: DomainEvent
    origin: Origin

    @property
    def originator_id(self) -> UUID:
        """The stream, by the name that the event-sourcing library gives it."""
        return self.stream

    @property
    def originator_version(self) -> int:
        """The version, by the name that the event-sourcing library gives it."""
        return self.version


class LogHead(NamedTuple):
    """The end of the log: the last position, 0 where nothing was ever written, and its hash."""

    position: int
    hash: bytes


class LogTransaction(Protocol):
    """A transaction that holds the lock on the head of the log: no other writer runs until it ends."""

    @property
    def connection(self) -> Any:
        """The database connection, opaque to all but the projections, which write in the same transaction."""

    @property
    def head(self) -> LogHead:
        """The end of the log as this transaction sees it, its own appends included."""

    def append(self, stream: UUID, version: int, events: Sequence[DomainEvent], origin: Origin) -> Sequence[LogEntry]:
        """Append to a stream.

        Args:
            stream: the stream's id.
            version: the version that the stream has now, 0 for a new one.
            events: what happened.
            origin: who caused it; stored with every event.

        Raises:
            ConcurrentChange: the stream's version is another one.
        """

    def entries(self, after: int) -> Iterable[LogEntry]:
        """The entries behind a position, in order, as this transaction sees them."""


class EventLog(Protocol):
    """The record of every change of the registry, of subscriptions, of timelines. Calls block on the database."""

    def head(self) -> LogHead:
        """The end of the log. Cheap: the question that every follower asks all the time."""

    def entries(self, after: int, limit: int) -> Sequence[LogEntry]:
        """At most `limit` entries behind a position, in order."""

    def transaction(self) -> AbstractContextManager[LogTransaction]:
        """Lock the head, commit at the end of the block, roll back if it raises.

        Raises:
            Unavailable: the database can't be reached, is full or stays locked beyond the deadline.
        """


# --- published events ---


class Bounds(NamedTuple):
    """What a partition of a topic holds."""

    oldest: int
    """The first position that can be read, or would be."""
    newest: int
    """The last position that was written; `oldest - 1` where nothing is left."""


class Chunk(msgspec.Struct, frozen=True):
    """Consecutive events of one partition, as they were stored together."""

    first: int
    """The position of the first event."""
    recorded_at_ms: int
    data: bytes
    """The events' JSON, joined by commas: a part of it can be sent as the inside of a JSON array as it is."""
    ends: Sequence[int]
    """For each event the index in `data` behind its last byte."""

    @property
    def next(self) -> int:
        """The position behind the last event."""
        return self.first + len(self.ends)

    def cut(self, start: int, stop: int) -> bytes:
        """The events at positions `start` to `stop - 1`, joined by commas.

        PERF: one slice, however many events: this is what makes consuming fast.
        """
        begin, end = start - self.first, stop - self.first
        return self.data[self.ends[begin - 1] + 1 if begin else 0 : self.ends[end - 1]]


class EventStore(Protocol):
    """The published events, in topics of numbered partitions. Calls block on the disk, but never other greenlets."""

    def create_topic(self, topic: str, partitions: int) -> None:
        """Create a topic; creating it again with the same number of partitions changes nothing.

        Raises:
            Unavailable: the store can't write.
        """

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with its events; deleting an unknown one changes nothing."""

    def append(self, topic: str, batches: Mapping[int, Sequence[bytes]]) -> Mapping[int, int]:
        """Append events durably: when this returns they survive the death of the process and of the machine.

        Args:
            topic: an existing topic.
            batches: for each partition the events' JSON, each of them non-empty.

        Returns:
            For each partition the position of its first event. All partitions are written, or none.

        Raises:
            NotFound: topic or partition unknown.
            Unavailable: the disk is full or fails; nothing was written.
        """

    def read(self, topic: str, partition: int, first: int, bytes_max: int) -> Sequence[Chunk]:
        """The chunks from position `first` on, which lies in the first of them; empty at the end.

        Where retention has removed `first`, reading goes on at the oldest event: compare `chunks[0].first`.
        At least one chunk if there is one, further ones while they fit into `bytes_max`.
        """

    def bounds(self, topic: str) -> Sequence[Bounds]:
        """The bounds of all partitions, by number.

        Raises:
            NotFound: topic unknown.
        """

    def first_since(self, topic: str, partition: int, recorded_at_ms: int) -> int:
        """The position of the first chunk stored at this time or later; behind the newest where there is none."""

    def expire(self, topic: str, before_ms: int) -> int:
        """Remove the chunks stored before this time; return the number of events. Positions never come back."""

    def close(self) -> None:
        """Let go of all files."""


# --- who reads what, and how far ---


class EventTypePartition(NamedTuple):
    """A partition of an event type, as clients name it."""

    event_type: str
    partition: str


class Assignment(NamedTuple):
    """Who reads a partition of a subscription; the empty string is nobody."""

    session: str = ""
    """The stream that reads the partition, and alone may commit it."""
    next_session: str = ""
    """The stream that gets it as soon as `session` releases it."""

    @property
    def owner(self) -> str:
        """Who has the partition when all that is under way is done."""
        return self.next_session or self.session

    @property
    def state(self) -> str:
        """The word of the API: unassigned, reassigning or assigned."""
        if not self.session:
            return "unassigned"
        return "reassigning" if self.next_session else "assigned"


class Session(NamedTuple):
    """A stream of a subscription."""

    id: str
    requested: frozenset[EventTypePartition] = frozenset()
    """The partitions that it insists on; empty where it takes what it is given."""


class Topology(msgspec.Struct, frozen=True):
    """Who reads which partition of a subscription."""

    epoch: int
    """Grows with every change; 0 where the subscription was never initialised."""
    partitions: Mapping[EventTypePartition, Assignment]
    """All partitions, in an order that never changes."""
    sessions: Mapping[str, Session]
    resetting: bool = False
    """Cursors are being reset: all streams have to end."""


class Coordinator(Protocol):
    """Sessions, assignments and committed cursors of subscriptions, shared by all workers.

    A session lives as long as the process that let it join. Whatever changes wakes the watchers of
    `subscription:<id>`. Offsets are canonical text. Calls block on the disk, but never other greenlets; all raise
    Unavailable where nothing can be stored or read.
    """

    def initialise(self, subscription_id: str, cursors: Mapping[EventTypePartition, str]) -> None:
        """Lay down the partitions and where reading begins, unless that was done before (consumption 7.4)."""

    def join(self, subscription_id: str, stream_id: str, requested: Collection[EventTypePartition] = ()) -> None:
        """Begin a session and rebalance (consumption 8.2, 9.2).

        Args:
            subscription_id: an initialised subscription.
            stream_id: a new UUID.
            requested: the partitions that the stream insists on; empty for as many as others have.

        Raises:
            Conflict: no slot is free, a partition is requested by another stream, or cursors are being reset.
            SubscriptionNotFound: it is not initialised, or was forgotten.
        """

    def leave(self, subscription_id: str, stream_id: str) -> None:
        """End a session at once and rebalance; what it has not committed is delivered again. Unknown ones: nothing."""

    def release(self, subscription_id: str, stream_id: str, partition: EventTypePartition) -> None:
        """Hand a partition over to the stream that waits for it; nothing if none waits or another one owns it."""

    def topology(self, subscription_id: str) -> Topology:
        """Who reads what. Cheap: the same object as before where nothing has changed."""

    def cursors(self, subscription_id: str) -> Mapping[EventTypePartition, str]:
        """The committed offsets, in topology order; empty where the subscription was never initialised.

        Read after `topology` they hold everything that previous owners could commit. Cheap, as `topology`.
        """

    def commit(
        self, subscription_id: str, stream_id: str, cursors: Sequence[tuple[EventTypePartition, str]]
    ) -> Sequence[bool]:
        """Commit offsets durably, in order, all in one transaction (consumption 7.2).

        Returns:
            For each cursor whether it advanced its partition; what is not ahead changes nothing.

        Raises:
            Invalid: the session does not live, or does not own a partition; nothing was written.
        """

    def reset(self, subscription_id: str, cursors: Mapping[EventTypePartition, str], timeout_s: float) -> None:
        """Let all streams end, then set offsets, backwards too (consumption 7.3); without cursors nothing happens.

        Raises:
            Conflict: another reset is under way.
            Unavailable: streams were still there after `timeout_s`; nothing was written.
        """

    def forget(self, subscription_id: str) -> None:
        """Remove sessions, assignments and cursors of a deleted subscription."""

    def reap(self) -> None:
        """Remove the sessions of processes that have died and rebalance. Cheap; call it now and then."""

    def close(self) -> None:
        """End all sessions of this process and let go of all files."""


# --- waking up ---


class Watch(Protocol):
    """Waits for notifications about some keys, from this process or another."""

    def wait(self, timeout_s: float) -> bool:
        """Block this greenlet until a notification has come since the last call, or the time is over; say which."""

    def close(self) -> None:
        """Stop watching."""


class Signals(Protocol):
    """Wakes up whoever waits, in any process of the broker. A notification may be lost, so waits have time-outs."""

    def notify(self, key: str) -> None:
        """Wake everyone who watches the key. Never blocks, never raises."""

    def watch(self, keys: Iterable[str]) -> Watch:
        """Begin to watch; what is notified from now on is not missed."""


# --- what the log says now ---


class ReadModels(Protocol):
    """The read models, as a command needs them: inside its own transaction."""

    def state(self, connection: Any, kind: str, key: str) -> tuple[Any, int]:
        """The state of an aggregate, None where it does not exist, and the version of its stream."""

    def subscriptions_of(self, connection: Any, event_type: str) -> Sequence[Subscription]:
        """All subscriptions to an event type."""

    def storages(self, connection: Any) -> Sequence[StorageEntry]:
        """All storages by id."""

    def apply(self, connection: Any, entries: Sequence[LogEntry]) -> None:
        """Fold entries, which follow the last ones applied, into the read models."""


class Registry(Protocol):
    """The state of everything, in memory, for the paths that publish and consume."""

    def refresh(self) -> None:
        """Catch up with the log: everything that was answered before is visible then. May block on the database."""

    @property
    def settings(self) -> Settings:
        """The broker's settings."""

    def event_types(self) -> Sequence[EventType]:
        """All event types."""

    def event_type(self, name: str) -> EventType:
        """The event type, or EventTypeNotFound."""

    def timelines(self, name: str) -> Timelines:
        """The timelines of an event type, or EventTypeNotFound."""

    def subscription(self, subscription_id: str) -> Subscription:
        """The subscription, or SubscriptionNotFound."""

    def publish_rules(self, name: str) -> "PublishRules":
        """What publishing to an event type needs, compiled once per version of it."""
