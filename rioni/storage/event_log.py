"""The internal log: the port `EventLog` on the recorder."""

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec
from eventsourcing.persistence import StoredEvent
from sqlalchemy import Connection, Engine, Row, Select, func, select

from rioni.domain.errors import ConcurrentChange, RioniError
from rioni.domain.events import DomainEvent, Origin
from rioni.domain.ports import LogEntry, LogHead
from rioni.storage.log_tables import HEAD, LOG
from rioni.storage.recorder import SqlRecorder, lock_head
from rioni.storage.sql import reading, translated, writing


class UnreadableEntry(RioniError):
    """An entry of the log is not one that this version of the broker can read."""


class SqlEventLog:
    """Implements the port `EventLog`."""

    def __init__(self, engine: Engine, topics: Mapping[str, type[DomainEvent]]) -> None:
        self.engine = engine
        self._topics = topics
        self._recorder = SqlRecorder(engine)
        self._sqlite: sqlite3.Connection | None = None

    def head(self) -> LogHead:
        """The end of the log."""
        if self.engine.dialect.name == "sqlite":
            return self._sqlite_head()
        with reading(self.engine) as connection:
            row = connection.execute(select(HEAD.c.position, HEAD.c.hash)).one()
            return LogHead(row.position, bytes(row.hash))

    def _sqlite_head(self) -> LogHead:
        # PERF: every request asks; a connection of its own and no SQLAlchemy make it 8 µs instead of 300.
        if self._sqlite is None:
            self._sqlite = sqlite3.connect(
                self.engine.url.database or "", check_same_thread=False, isolation_level=None
            )
        position, last = self._sqlite.execute("SELECT position, hash FROM head").fetchone()
        return LogHead(position, last)

    def entries(self, after: int, limit: int) -> Sequence[LogEntry]:
        """At most `limit` entries behind a position, in order.

        Raises:
            UnreadableEntry: names the position of an entry that can't be read.
        """
        with reading(self.engine) as connection:
            return list(self._entries(connection, _behind(after).limit(limit)))

    @contextlib.contextmanager
    def transaction(self) -> Iterator["SqlLogTransaction"]:
        """Lock the head, commit at the end of the block, roll back if it raises."""
        with writing(self.engine) as connection:
            yield SqlLogTransaction(self, self._recorder, connection)

    def close(self) -> None:
        """Close the connections."""
        if self._sqlite is not None:
            self._sqlite.close()
        self.engine.dispose()

    def _entries(self, connection: Connection, query: Select[Any]) -> Iterator[LogEntry]:
        with translated():
            for row in connection.execute(query):
                yield self._entry(row)

    def _entry(self, row: Row[Any]) -> LogEntry:
        try:
            event = self._topics[row.topic].decode(bytes(row.data))
        except (KeyError, msgspec.MsgspecError) as ex:
            raise UnreadableEntry(
                f"The entry at position {row.position}, topic {row.topic}, can't be read: {ex!r}. It was written by a "
                "newer version of the broker, or was damaged: `rioni verify` tells."
            ) from ex
        origin = Origin(
            actor=row.actor,
            client=row.client,
            flow_id=row.flow_id,
            command_id=row.command_id,
            recorded_at=row.recorded_at,
        )
        return LogEntry(position=row.position, stream=UUID(row.stream), version=row.version, event=event, origin=origin)


class SqlLogTransaction:
    """Implements the port `LogTransaction`."""

    def __init__(self, log: SqlEventLog, recorder: SqlRecorder, connection: Connection) -> None:
        self.connection = connection
        self._log = log
        self._recorder = recorder
        lock_head(connection)

    @property
    def head(self) -> LogHead:
        """The end of the log as this transaction sees it."""
        return lock_head(self.connection)

    def append(self, stream: UUID, version: int, events: Sequence[DomainEvent], origin: Origin) -> Sequence[LogEntry]:
        """Append to a stream; raises ConcurrentChange if it has another version."""
        query = select(func.coalesce(func.max(LOG.c.version), 0)).where(LOG.c.stream == str(stream))
        found = self.connection.scalar(query)
        if found != version:
            raise ConcurrentChange(f"The stream {stream} has version {found}, not {version}. Try again.")
        stored = [
            StoredEvent(originator_id=stream, originator_version=number, topic=event.TOPIC, state=event.encode())
            for number, event in enumerate(events, version + 1)
        ]
        positions = self._recorder.append(self.connection, stored, origin)
        return [
            LogEntry(position=position, stream=stream, version=number, event=event, origin=origin)
            for position, (number, event) in zip(positions, enumerate(events, version + 1), strict=True)
        ]

    def entries(self, after: int) -> Iterator[LogEntry]:
        """The entries behind a position, in order, as this transaction sees them."""
        return self._log._entries(self.connection, _behind(after))  # noqa: SLF001 - the other half of this module


def _behind(position: int) -> Select[Any]:
    return select(LOG).where(LOG.c.position > position).order_by(LOG.c.position)
