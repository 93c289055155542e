"""The internal log: the port `EventLog` on the recorder."""

import contextlib
import sqlite3
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any
from urllib.parse import quote
from uuid import UUID

from sqlalchemy import Connection, Engine, Select, func, select

from rioni.domain.errors import ConcurrentChange
from rioni.domain.events import DomainEvent, Origin
from rioni.domain.ports import LogEntry, LogHead
from rioni.storage.log_tables import HEAD, LOG
from rioni.storage.mapper import LogMapper
from rioni.storage.recorder import append, lock_head, stored_entry
from rioni.storage.sql import reading, translated, writing


ENTRIES_PER_READ = 1_000

_HEAD = select(HEAD.c.position, HEAD.c.hash)


class SqlEventLog:
    """Implements the port `EventLog`. A forked process must make its own, with an engine of its own.

    Args:
        engine: from `rioni.storage.sql.create_engine`, migrated.
        topics: for each topic that may stand in the log its class.
    """

    def __init__(self, engine: Engine, topics: Mapping[str, type[DomainEvent]]) -> None:
        self.engine = engine
        self._mapper = LogMapper(topics)
        self._head = _SqliteHead(engine) if engine.dialect.name == "sqlite" else _PostgresqlHead(engine)

    def head(self) -> LogHead:
        """The end of the log.

        Raises:
            Unavailable: the database can't be reached.
        """
        return self._head.read()

    def entries(self, after: int, limit: int) -> Sequence[LogEntry]:
        """At most `limit` entries behind a position, in order.

        Raises:
            UnreadableEntry: names the position of an entry that can't be read.
            Unavailable: the database can't be reached.
        """
        with reading(self.engine) as connection:
            return _entries(connection, _behind(after).limit(limit), self._mapper)

    def stream_entries(self, stream: UUID, after_version: int = 0) -> Sequence[LogEntry]:
        """The entries of one stream behind a version, in order; raises as `entries`."""
        query = select(LOG).where(LOG.c.stream == str(stream), LOG.c.version > after_version).order_by(LOG.c.version)
        with reading(self.engine) as connection:
            return _entries(connection, query, self._mapper)

    @contextlib.contextmanager
    def transaction(self) -> Iterator["SqlLogTransaction"]:
        """Lock the head, commit at the end of the block, roll back if it raises.

        Raises:
            Unavailable: the database can't be reached, is full or stays locked beyond the deadline.
        """
        with writing(self.engine) as connection:
            yield SqlLogTransaction(connection, self._mapper)

    def close(self) -> None:
        """Close the connections; nobody may be using one."""
        self._head.close()
        self.engine.dispose()


class SqlLogTransaction:
    """Implements the port `LogTransaction`."""

    def __init__(self, connection: Connection, mapper: LogMapper) -> None:
        self.connection = connection
        self.head = lock_head(connection)
        self._mapper = mapper

    def append(self, stream: UUID, version: int, events: Sequence[DomainEvent], origin: Origin) -> Sequence[LogEntry]:
        """Append to a stream.

        Raises:
            ConcurrentChange: the stream's version is another one.
        """
        query = select(func.coalesce(func.max(LOG.c.version), 0)).where(LOG.c.stream == str(stream))
        found = self.connection.scalar(query)
        if found != version:
            raise ConcurrentChange(f"The stream {stream} has version {found}, not {version}. Try again.")
        entries = [
            LogEntry(
                position=self.head.position + number,
                stream=stream,
                version=version + number,
                event=event,
                origin=origin,
            )
            for number, event in enumerate(events, 1)
        ]
        stored = [self._mapper.to_stored_event(entry) for entry in entries]
        self.head = append(self.connection, self.head, stored, origin)
        return entries

    def entries(self, after: int) -> Iterator[LogEntry]:
        """The entries behind a position, in order, as this transaction sees them; read as they are asked for."""

        def pages() -> Iterator[Sequence[LogEntry]]:
            position = after
            while page := _entries(self.connection, _behind(position).limit(ENTRIES_PER_READ), self._mapper):
                yield page
                position = page[-1].position

        return chain.from_iterable(pages())


def _behind(position: int) -> Select[Any]:
    return select(LOG).where(LOG.c.position > position).order_by(LOG.c.position)


def _entries(connection: Connection, query: Select[Any], mapper: LogMapper) -> list[LogEntry]:
    return [mapper.to_domain_event(stored_entry(row)) for row in connection.execute(query)]


class _SqliteHead:
    """Reads the head past SQLAlchemy.

    PERF: every request asks, on the hub; 6 µs instead of 120.
    """

    def __init__(self, engine: Engine) -> None:
        self._path = engine.url.database or ""
        # As many as there are threads that ask at once: in a shared one, a thread would see the state of the database
        # that another one has begun to read.
        self._free: deque[sqlite3.Connection] = deque()

    def read(self) -> LogHead:
        with translated():
            try:
                connection = self._free.pop()
            except IndexError:
                connection = self._open()
            try:
                position, last = connection.execute("SELECT position, hash FROM head").fetchone()
            except sqlite3.Error:
                connection.close()
                raise
        self._free.append(connection)
        return LogHead(position, last)

    def close(self) -> None:
        while self._free:
            self._free.pop().close()

    def _open(self) -> sqlite3.Connection:
        uri = f"file:{quote(self._path)}?mode=rw"
        return sqlite3.connect(uri, uri=True, check_same_thread=False, isolation_level=None)


class _PostgresqlHead:
    """Reads the head in a statement of its own: no round trip to begin and none to end a transaction."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")

    def read(self) -> LogHead:
        with translated(), self._engine.connect() as connection:
            position, last = connection.execute(_HEAD).one()
        return LogHead(position, last)

    def close(self) -> None:
        """Nothing is held: the connections are the engine's."""
