"""What commands need of the internal log and of the read models: ports, as those of `rioni.domain.ports`."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol
from uuid import UUID

from rioni.domain.events import DomainEvent, Origin
from rioni.domain.ports import LogEntry, LogHead
from rioni.domain.storage_entry import StorageEntry
from rioni.domain.subscription import Subscription
from rioni.domain.timeline import Timeline


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
        """The end of the log."""

    def position(self) -> int:
        """The last position. Cheap: every request asks.

        Commands whose transaction has not ended yet may be missing; where a process can't be told of them, because the
        connection to it is dead and nobody has noticed, those of the last seconds as well.
        """

    def heard(self) -> int:
        """The last position that this process was told of: as `position`, but waits for no silent server."""

    def entries(self, after: int, limit: int) -> Sequence[LogEntry]:
        """At most `limit` entries behind a position, in order."""

    def transaction(self) -> AbstractContextManager[LogTransaction]:
        """Lock the head, commit at the end of the block, roll back if it raises.

        Raises:
            NothingWritten: it got in the way of another one.
            CommitUnknown: nobody knows whether it was committed; see `recorded`.
            Unavailable: the database can't be reached, is full or stays locked beyond the deadline.
        """

    def recorded(self, command_id: str, after: int) -> bool:
        """Whether a command whose commit was not answered has been recorded behind a position, for good.

        Raises:
            CommitUnknown: that can't be found out.
        """


class ReadModels(Protocol):
    """The read models, as a command needs them: inside its own transaction."""

    def state(self, connection: Any, kind: str, key: str) -> tuple[Any, int]:
        """The state of an aggregate, None where it does not exist, and the version of its stream."""

    def subscriptions_of(self, connection: Any, event_type: str) -> Sequence[Subscription]:
        """All subscriptions to an event type."""

    def storages(self, connection: Any) -> Sequence[StorageEntry]:
        """All storages by id."""

    def timelines_in(self, connection: Any, storage_id: str) -> Sequence[Timeline]:
        """All timelines in a storage, of all event types."""

    def apply(self, connection: Any, entries: Sequence[LogEntry]) -> None:
        """Fold entries, which follow the last ones applied, into the read models."""
