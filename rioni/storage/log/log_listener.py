"""Follows the log head via LISTEN/NOTIFY, on a connection of its own."""

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import structlog
from sqlalchemy import Engine, exc

from rioni.config.failures import FailureLog
from rioni.domain.errors import Unavailable
from rioni.storage.sql.engines import unpooled_connection


CHANNEL = "rioni_log"
"""Channel of `NOTIFY`; the payload is the position."""
NAME = "rioni at"
"""Prefix of the listeners' application names; their position and the newest log format that they read follow it.

`pg_stat_activity` shows them all.
"""

TRUST_S = 2.0
"""How long a listener trusts a connection without an answer; no node serves older state than this."""
HEARTBEAT_S = 0.5
"""Without notifications it queries after this time."""
RETRY_S = 0.5
CLOSE_WAIT_S = 5.0
"""How long closing waits for a server that hangs."""

_log = structlog.get_logger("rioni.storage")

_LOST = "LISTEN connection lost; polling instead"


class PostgresLogListener:
    """Knows the last position of the log while its connection is alive.

    A separate thread listens (under gevent a greenlet: the driver waits without blocking others). It announces its
    position in the application name of its session, so that a committing process can wait for all listeners.
    """

    def __init__(self, engine: Engine, on_news: Callable[[], object], newest_format: int) -> None:
        """Create the listener without connecting.

        Args:
            engine: creates the connection, which is not one of the pool.
            on_news: called after each change.
            newest_format: of the log, readable by this process.
        """
        self._engine, self._on_news, self._newest_format = engine, on_news, newest_format
        # The driver is an extra, and can't be imported here.
        self._errors: tuple[type[Exception], ...] = (engine.dialect.loaded_dbapi.Error, exc.SQLAlchemyError, OSError)
        self._position: int | None = None
        self._trusted_until_s = 0.0
        self._connected = False
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rioni-follower", daemon=True)

    def start(self) -> None:
        """Connect, and reconnect while the process lives; never raises."""
        self._thread.start()

    def position(self) -> int | None:
        """Return the last position; None if it has to be queried."""
        return self._position if time.monotonic() < self._trusted_until_s else None

    def last_notified_position(self) -> int | None:
        """Return the last notified position, however old; None before the first one."""
        return self._position

    def close(self) -> None:
        """Close the connection."""
        self._closed.set()
        self._trusted_until_s = 0.0
        if self._thread.ident is not None:
            self._thread.join(CLOSE_WAIT_S)

    def _run(self) -> None:
        failures = FailureLog(_log)
        while not self._closed.is_set():
            try:
                with contextlib.closing(unpooled_connection(self._engine)) as connection:
                    self._follow(connection, lambda: failures.succeeded(_LOST))
            except self._errors as ex:
                lost = Unavailable("PostgreSQL has closed the connection, or accepts none.")
                lost.add_note(str(ex))
                failures.failed(_LOST, lost)
            finally:
                self._connected, self._trusted_until_s = False, 0.0
            self._closed.wait(RETRY_S)

    def _follow(self, connection: Any, connected: Callable[[], object]) -> None:
        connection.autocommit = True
        # Later commits wait for this listener; earlier ones are found by the query below.
        self._notify(connection, 0)
        connection.execute(f"LISTEN {CHANNEL}")
        notified = 0
        while not self._closed.is_set():
            asked_s = time.monotonic()
            (self._position,) = connection.execute("SELECT position FROM head").fetchone()
            self._connected, self._trusted_until_s = True, asked_s + TRUST_S
            connected()
            if self._position != notified:
                notified = self._position
                self._notify(connection, notified)
                self._on_news()
            for _ in connection.notifies(timeout=HEARTBEAT_S, stop_after=1):
                pass

    def _notify(self, connection: Any, position: int) -> None:
        name = f"{NAME} {position} format {self._newest_format}"
        connection.execute("SELECT set_config('application_name', %s, false)", (name,))
