"""The ports to the internal log: entries, its head, transactions that append, and readers with stored checkpoints."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol
from uuid import UUID

import msgspec

from rioni.domain.events import DomainEvent, Origin
from rioni.domain.hash_chain import LogHead


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
