"""Reads the head position of the log, and notifies of changes, for each database."""

import contextlib
import mmap
import os
import sqlite3
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import quote

from sqlalchemy import Connection, Engine, func, select, text

from rioni.domain.errors import Unavailable
from rioni.domain.hash_chain import LogHead
from rioni.sql.log_tables import HEAD
from rioni.storage.log.log_listener import CHANNEL, NAME, TRUST_S, PostgresLogListener
from rioni.storage.sql.engines import translate_errors


_HEAD = select(HEAD.c.position, HEAD.c.hash)

# A listener silent for longer than it trusts its position queries the database before it answers.
_BEHIND = text(
    f"""
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database()
      AND substring(application_name FROM '^{NAME} (\\d+)')::bigint < :position
      AND coalesce(state_change > clock_timestamp() - make_interval(secs => {TRUST_S}), true)
    """  # noqa: S608 - constants
)
_FORMAT_OF_ALL = text(
    f"""
    SELECT min(substring(application_name FROM '^{NAME} \\d+ format (\\d+)')::int) FROM pg_stat_activity
    WHERE datname = current_database()
    """  # noqa: S608 - a constant
)
_LOOK_MIN_S = 0.001
_LOOK_MAX_S = 0.02
_QUERY_EVERY_S = 0.02
"""How long the commit of a process that could not replace the change mark, or died before it did, may stay unseen."""
_MARK_BYTES = 8


class SqliteHead:
    """Reads the head bypassing SQLAlchemy, and only after a change.

    PERF: needed for every request, on the hub; a query takes 6 us instead of 120, but lets other threads run, which may
    keep the interpreter for longer. A look into shared memory takes 0.3 us.
    """

    def __init__(self, engine: Engine, newest_format: int) -> None:
        self._path = engine.url.database or ""
        self._newest_format = newest_format
        # As many connections as concurrent threads: with a shared one, a thread would see the database state that
        # another one has begun to read.
        self._free: deque[sqlite3.Connection] = deque()
        self._mark: mmap.mmap | None = None
        """The change mark: a random number in a file that all processes share, replaced after each commit."""
        self._known = _Known(b"", -1, 0.0)

    def read(self) -> LogHead:
        """Query the database."""
        with translate_errors():
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

    def position(self) -> int:
        """Return the last position of which any process has acknowledged or served the state; seldom queries."""
        known = self._known
        now_s = time.monotonic()
        if self._mark is not None and self._mark[:] == known.mark and now_s < known.until_s:
            return known.position
        mark = self._shared_mark()
        # Read before the query: a commit that the query misses replaces it afterwards.
        before = b"" if mark is None else mark[:]
        position = self.read().position
        if position != known.position:
            # Its writer may not have replaced the mark yet, or have died: none may serve an older state than this one.
            self._replace_mark()
        self._known = _Known(before, position, now_s + _QUERY_EVERY_S)
        return position

    def last_notified_position(self) -> int:
        """Return the same as `position`: SQLite has no notifications."""
        return self.position()

    def follow(self, on_news: Callable[[], object]) -> None:
        """No-op: SQLite has no notifications."""

    def format_of_all(self, _connection: Connection) -> int:
        """Return the newest format that every live process reads: all have the same release, on one machine."""
        return self._newest_format

    def notify(self, connection: Connection, position: int) -> None:
        """No-op: the change mark is replaced after the commit."""

    def wait_for_followers(self, _position: int) -> None:
        """Replace the change mark, so that every process queries before it answers the next request."""
        self._replace_mark()

    def close(self) -> None:
        """Close the connections."""
        while self._free:
            self._free.pop().close()

    def _open(self) -> sqlite3.Connection:
        uri = f"file:{quote(self._path)}?mode=rw"
        return sqlite3.connect(uri, uri=True, check_same_thread=False, isolation_level=None)

    def _replace_mark(self) -> None:
        if (mark := self._shared_mark()) is not None:
            mark[:] = os.urandom(_MARK_BYTES)
        else:
            # All processes query without a new mark too, only later.
            time.sleep(_QUERY_EVERY_S)

    def _shared_mark(self) -> mmap.mmap | None:
        """Open the change mark; None if the file can't be opened, as for programs that may only read."""
        if self._mark is None and self._path:
            with contextlib.suppress(OSError):
                fd = os.open(f"{self._path}-changes", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                try:
                    os.ftruncate(fd, _MARK_BYTES)
                    self._mark = mmap.mmap(fd, _MARK_BYTES)
                finally:
                    os.close(fd)
        return self._mark


class _Known(NamedTuple):
    """The head position when it was last queried."""

    mark: bytes
    """The change mark before the query."""
    position: int
    until_s: float
    """On the monotonic clock: when to query again, whatever the mark is."""


class PostgresqlHead:
    """Head position from notifications; queries the database only without them."""

    def __init__(self, engine: Engine, newest_format: int) -> None:
        self._newest_format = newest_format
        # Autocommit: no round trips to begin and end a transaction.
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._listener: PostgresLogListener | None = None

    def read(self) -> LogHead:
        """Query the database."""
        with translate_errors(self._engine), self._engine.connect() as connection:
            position, last = connection.execute(_HEAD).one()
        return LogHead(position, last)

    def position(self) -> int:
        """Return the last position. PERF: 0.3 µs, or some 0.3 ms if it has to query."""
        if self._listener is not None and (position := self._listener.position()) is not None:
            return position
        return self.read().position

    def last_notified_position(self) -> int:
        """Return the last notified position; queries only without a listener."""
        if self._listener is not None and (position := self._listener.last_notified_position()) is not None:
            return position
        return self.read().position

    def follow(self, on_news: Callable[[], object]) -> None:
        """Start the listener."""
        assert self._listener is None
        self._listener = PostgresLogListener(self._engine, on_news, self._newest_format)
        self._listener.start()

    def format_of_all(self, connection: Connection) -> int:
        """Return the newest log format that every live process reads, as their listeners announce.

        A process whose connection has just failed is not counted. It stops at the first entry that it can't read.
        """
        number: int | None = connection.scalar(_FORMAT_OF_ALL)
        return self._newest_format if number is None else number

    def notify(self, connection: Connection, position: int) -> None:
        """Notify all listeners of a position when the transaction commits."""
        connection.execute(select(func.pg_notify(CHANNEL, str(position))))

    def wait_for_followers(self, position: int) -> None:
        """Wait until no process serves the state before this position was committed.

        Each listener announces its position, so this takes some milliseconds; a paused or unreachable one delays it for
        as long as it may trust its position.
        """
        deadline, pause_s = time.monotonic() + TRUST_S, _LOOK_MIN_S
        while self._behind(position) and (left_s := deadline - time.monotonic()) > 0:
            time.sleep(min(left_s, pause_s))
            pause_s = min(2 * pause_s, _LOOK_MAX_S)

    def _behind(self, position: int) -> bool:
        try:
            with translate_errors(self._engine), self._engine.connect() as connection:
                return bool(connection.scalar(_BEHIND, {"position": position}))
        except Unavailable:
            # The change is committed, whatever happened to the database since; other processes may not know it yet.
            return True

    def close(self) -> None:
        """Stop the listener; all other connections belong to the engine."""
        if self._listener is not None:
            self._listener.close()
