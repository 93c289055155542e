"""Pools database connections for greenlets and native threads."""

import contextlib
from collections import deque
from typing import Any

from sqlalchemy import exc
from sqlalchemy.pool import ConnectionPoolEntry, Pool

from rioni.storage.threads.greenlet_semaphore import ThreadSafeSemaphore


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
