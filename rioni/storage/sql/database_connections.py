"""Database connections: pooled for greenlets and native threads, and those of PostgreSQL with deadlines."""

import contextlib
from collections import deque
from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import exc
from sqlalchemy.pool import ConnectionPoolEntry, Pool

from rioni.storage.threads import ThreadSafeSemaphore


# --- Pools database connections for greenlets and native threads ---

OPENING_WAIT_S = 30.0
"""Timeout while others open the first connection of a pool."""


class GeventConnectionPool(Pool):
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

    def __init__(self, creator: Any, pool_size: int = 0, timeout: float = 0, **kwargs: Any) -> None:
        super().__init__(creator, **kwargs)
        self._free = deque()
        self._size, self._timeout = pool_size, timeout
        self._semaphore = ThreadSafeSemaphore(pool_size) if pool_size else None
        self._opening, self._opened = ThreadSafeSemaphore(), False

    def _do_get(self) -> ConnectionPoolEntry:
        if self._semaphore and not self._semaphore.acquire(self._timeout):
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
            return self._create_connection()
        if not self._opening.acquire(OPENING_WAIT_S):
            raise exc.TimeoutError("other connections are being opened")
        try:
            record = self._create_connection()
        finally:
            self._opening.release()
        self._opened = True
        return record

    def _do_return_conn(self, record: ConnectionPoolEntry) -> None:
        self._free.append(record)
        self._release()

    def _release(self) -> None:
        if self._semaphore:
            self._semaphore.release()

    def recreate(self) -> "GeventConnectionPool":
        """Create an empty pool with the same settings."""
        return GeventConnectionPool(
            self._creator,
            pool_size=self._size,
            timeout=self._timeout,
            recycle=self._recycle,
            echo=self.echo,
            logging_name=self._orig_logging_name,
            reset_on_return=self._reset_on_return,
            pre_ping=self._pre_ping,
            _dispatch=self.dispatch,
            dialect=self._dialect,
        )

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

LOOK_EVERY_S = 0.1
"""How often a waiting driver checks for interruptions; its own default."""


def connect(arguments: Sequence[Any], parameters: dict[str, Any]) -> Any:
    """Open a driver connection whose every wait for an answer ends `GRACE_S` after the statement timeout.

    After that the connection is closed, and OperationalError raised.

    Args:
        arguments: the arguments of `psycopg.connect`.
        parameters: the parameters of `psycopg.connect`.
    """
    connection = _connection_class().connect(*arguments, **parameters)
    # The timeout may come from the URL, or from the settings of the role or the database.
    connection.deadline_s = FIRST_S
    connection.autocommit = True
    ((statement_ms,),) = connection.execute(_STATEMENT_MS).fetchall()
    connection.autocommit = False
    connection.deadline_s = statement_ms / 1_000 + GRACE_S if statement_ms else None
    return connection


@cache
def _connection_class() -> Any:
    import psycopg  # noqa: PLC0415 - an extra

    class Connection(psycopg.Connection[Any]):
        deadline_s: float | None = None

        def wait(self, gen: Any, interval: float = LOOK_EVERY_S, timeout: float | None = None) -> Any:
            if timeout is not None or self.deadline_s is None:
                return super().wait(gen, interval, timeout)
            try:
                return super().wait(gen, interval, self.deadline_s)
            except psycopg.errors._WaitTimeout as ex:  # noqa: SLF001 - what `wait` is documented to raise
                # The answer may still arrive, and must not be mistaken for that of another query.
                self.pgconn.finish()
                raise psycopg.OperationalError(f"no answer within {self.deadline_s:g} s") from ex

    return Connection
