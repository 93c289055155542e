"""Reads the head position of the log, and notifies of changes, for each database; listens on PostgreSQL."""

import contextlib
import mmap
import os
import sqlite3
import threading  # threads: a greenlet with its own connection
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import quote

import structlog
from sqlalchemy import Connection, Engine, exc, func, select, text

from rioni.config.logs import FailureLog
from rioni.domain.errors import Unavailable
from rioni.domain.hash_chain import LogHead
from rioni.sql.log_tables import HEAD
from rioni.storage.sql.engines import translate_errors, unpooled_connection


CHANNEL = "rioni_log"
"""Channel of `NOTIFY`; the payload is the position."""
NAME = "rioni at"
"""Prefix of the listeners' application names; their position and the newest log format that they read follow it.

`pg_stat_activity` shows them all.
"""

TRUST_S = 2.0
"""How long a listener trusts a connection without an answer; no node serves older state than this."""
HEARTBEAT_S = 0.5
"""Seconds without notifications after which it queries."""
RETRY_S = 0.5
CLOSE_WAIT_S = 5.0
"""How long closing waits for a server that hangs."""

_log = structlog.get_logger("rioni.storage")

_LOST = "LISTEN connection lost; polling instead"


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
        # There are as many connections as concurrent threads: with a shared one, a thread would see the state of the
        # database that another one has begun to read.
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
    """The monotonic time at which to query again, even with an unchanged mark."""


class PostgresqlHead:
    """Knows the head position from notifications while it follows them; queries the database otherwise.

    A separate thread listens (under gevent a greenlet: the driver waits without blocking others), on a connection that
    is not one of the pool. It announces its position in the application name of its session, so that a committing
    process can wait for all listeners.
    """

    def __init__(self, engine: Engine, newest_format: int) -> None:
        self._newest_format = newest_format
        # Autocommit: no round trips to begin and end a transaction.
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        # The driver is an extra, and can't be imported here.
        self._errors: tuple[type[Exception], ...] = (engine.dialect.loaded_dbapi.Error, exc.SQLAlchemyError, OSError)
        self._notified: int | None = None
        """The last position that was notified, or queried by the listener."""
        self._trusted_until_s = 0.0
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def read(self) -> LogHead:
        """Query the database."""
        with translate_errors(self._engine), self._engine.connect() as connection:
            position, last = connection.execute(_HEAD).one()
        return LogHead(position, last)

    def position(self) -> int:
        """Return the last position. PERF: 0.3 µs, or some 0.3 ms if it has to query."""
        return self.read().position if (position := self.trusted_position()) is None else position

    def trusted_position(self) -> int | None:
        """Return the last position; None if it has to be queried."""
        return self._notified if time.monotonic() < self._trusted_until_s else None

    def last_notified_position(self) -> int:
        """Return the last notified position, however old; queries only before the first one."""
        return self.read().position if self._notified is None else self._notified

    def follow(self, on_news: Callable[[], object]) -> None:
        """Start the listener, which reconnects while the process lives; never raises."""
        assert self._thread is None
        self._thread = threading.Thread(target=self._run, args=(on_news,), name="rioni-follower", daemon=True)
        self._thread.start()

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
        self._closed.set()
        self._trusted_until_s = 0.0
        if self._thread is not None:
            self._thread.join(CLOSE_WAIT_S)

    def _run(self, on_news: Callable[[], object]) -> None:
        failures = FailureLog(_log)
        while not self._closed.is_set():
            try:
                with contextlib.closing(unpooled_connection(self._engine)) as connection:
                    self._listen(connection, on_news, lambda: failures.succeeded(_LOST))
            except self._errors as ex:
                lost = Unavailable("PostgreSQL has closed the connection, or accepts none.")
                lost.add_note(str(ex))
                failures.failed(_LOST, lost)
            finally:
                self._trusted_until_s = 0.0
            self._closed.wait(RETRY_S)

    def _listen(self, connection: Any, on_news: Callable[[], object], connected: Callable[[], object]) -> None:
        connection.autocommit = True
        # Later commits wait for this listener; earlier ones are found by the query below.
        self._announce(connection, 0)
        connection.execute(f"LISTEN {CHANNEL}")
        announced = 0
        while not self._closed.is_set():
            asked_s = time.monotonic()
            (self._notified,) = connection.execute("SELECT position FROM head").fetchone()
            self._trusted_until_s = asked_s + TRUST_S
            connected()
            if self._notified != announced:
                announced = self._notified
                self._announce(connection, announced)
                on_news()
            for _ in connection.notifies(timeout=HEARTBEAT_S, stop_after=1):
                pass

    def _announce(self, connection: Any, position: int) -> None:
        name = f"{NAME} {position} format {self._newest_format}"
        connection.execute("SELECT set_config('application_name', %s, false)", (name,))
