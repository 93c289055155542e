"""The port to the internal log: entries, its head, and transactions that append."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol
from uuid import UUID

import msgspec

from rioni.domain.events import DomainEvent, Origin


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
        """The end of the log."""

    def position(self) -> int:
        """The last position. Cheap: every request asks.

        Commands whose transaction has not ended yet may be missing; where a process can't be told of them, because the
        connection to it is dead and nobody has noticed, those of the last seconds as well.
        """

    def heard(self) -> int:
        """The last position of which this process was notified: as `position`, but never waits for the server."""

    def entries(self, after: int, limit: int) -> Sequence[LogEntry]:
        """At most `limit` entries behind a position, in order."""

    def transaction(self) -> AbstractContextManager[LogTransaction]:
        """Lock the head, commit at the end of the block, roll back if it raises.

        Raises:
            TransactionConflict: it got in the way of another one.
            CommitOutcomeUnknown: it may or may not have been committed; see `recorded`.
            Unavailable: the database can't be reached, is full or stays locked beyond the deadline.
        """

    def recorded(self, command_id: str, after: int) -> bool:
        """Whether a command whose commit was not answered has been recorded behind a position, for good.

        Raises:
            CommitOutcomeUnknown: that can't be found out.
        """
