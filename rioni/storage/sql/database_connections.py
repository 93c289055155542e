"""Database connections: pooled for greenlets and native threads, and those of PostgreSQL with deadlines."""

import contextlib
from collections import deque
from collections.abc import Sequence
from typing import Any

from sqlalchemy import exc
from sqlalchemy.pool import ConnectionPoolEntry

from rioni.patches.sqlalchemy import HookedPool
from rioni.storage.threads import ThreadSafeSemaphore


# --- Pools database connections for greenlets and native threads ---

OPENING_WAIT_S = 30.0
"""Timeout while others open the first connection of a pool."""


class GeventConnectionPool(HookedPool):
    """Keeps all idle connections, up to the peak of concurrent use, and opens another if none is idle.

    SQLAlchemy's own pools don't fit: `QueuePool` waits on locks of `threading`, which under gevent belong to the hub
    while SQL runs in native threads; `SingletonThreadPool` counts greenlets as threads; `NullPool` opens the file
    each time, and whenever the last connection closes SQLite checkpoints its whole write-ahead log. With SQLite no
    caller ever waits: the number of threads bounds the number of connections. PostgreSQL's are limited.
    Until one connection has been opened, SQLAlchemy lets those that open others wait on such a lock too: so they open
    their connections one after the other.
    PERF: a query costs 0.12 ms, with NullPool 0.3 ms.
    """

    _free: deque[ConnectionPoolEntry]

    def __init__(self, creator: Any, pool_size: int = 0, timeout: float = 0, **options: Any) -> None:
        super().__init__(creator, **options)
        self._free = deque()
        self._arguments = {"creator": creator, "pool_size": pool_size, "timeout": timeout, **options}
        self._acquire_s = timeout
        self._semaphore = ThreadSafeSemaphore(pool_size) if pool_size else None
        self._opening, self._opened = ThreadSafeSemaphore(), False

    def take(self) -> ConnectionPoolEntry:
        """Take an idle connection, or open one; blocks.

        Raises:
            TimeoutError: of SQLAlchemy: all connections are in use.
        """
        if self._semaphore and not self._semaphore.acquire(self._acquire_s):
            raise exc.TimeoutError("all connections are in use")
        try:
            with contextlib.suppress(IndexError):
                return self._free.pop()
            return self._open()
        except BaseException:
            self._release()
            raise

    def _open(self) -> ConnectionPoolEntry:
        if self._opened:
            return self.open_connection()
        if not self._opening.acquire(OPENING_WAIT_S):
            raise exc.TimeoutError("other connections are being opened")
        try:
            record = self.open_connection()
        finally:
            self._opening.release()
        self._opened = True
        return record

    def put_back(self, record: ConnectionPoolEntry) -> None:
        """Make a connection idle."""
        self._free.append(record)
        self._release()

    def _release(self) -> None:
        if self._semaphore:
            self._semaphore.release()

    def recreate(self) -> "GeventConnectionPool":
        """Create an empty pool with the same settings."""
        return GeventConnectionPool(**self._arguments | self.recreated_options())

    def dispose(self) -> None:
        """Close the idle connections."""
        while self._free:
            self._free.pop().close()

    def status(self) -> str:
        """The number of idle connections, as text."""
        return f"{len(self._free)} free connections"


# --- Opens PostgreSQL connections with deadlines against unresponsive servers ---
#
# The server ends statements that take too long, but only while it runs. When the server is paused, or its disk hangs,
# its kernel keeps acknowledging what it receives, so neither keepalives nor TCP timeouts detect it.

GRACE_S = 10
"""How much longer the client's deadline is than the server's, whose error is more specific."""

FIRST_S = 20
"""Deadline of the first query of a connection."""

_STATEMENT_MS = "SELECT setting::integer FROM pg_settings WHERE name = 'statement_timeout'"


def connect(arguments: Sequence[Any], parameters: dict[str, Any]) -> Any:
    """Open a driver connection whose every wait for an answer ends `GRACE_S` after the statement timeout.

    After that the connection is closed, and OperationalError raised.

    Args:
        arguments: the arguments of `psycopg.connect`.
        parameters: the parameters of `psycopg.connect`.
    """
    from rioni.patches.psycopg import DeadlineConnection  # noqa: PLC0415 - an extra

    connection = DeadlineConnection.connect(*arguments, **parameters)
    # The timeout may come from the URL, or from the settings of the role or the database.
    connection.deadline_s = FIRST_S
    connection.autocommit = True
    ((statement_ms,),) = connection.execute(_STATEMENT_MS).fetchall()
    connection.autocommit = False
    connection.deadline_s = statement_ms / 1_000 + GRACE_S if statement_ms else None
    return connection
