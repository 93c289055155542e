"""Locks of a database: it belongs to one broker or the nodes of one cluster, and has one rebuild at a time."""

import contextlib
import hashlib
import threading  # threads: a greenlet with its own connection
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, Self

import structlog
from sqlalchemy import Connection, Engine, Row, exc, func, select, text

from rioni.domain.errors import Conflict, RioniError, Unavailable
from rioni.files.locks import open_lock, try_lock
from rioni.files.plain import file_errors
from rioni.storage.sql.engines import translate_errors


# --- Limits a PostgreSQL database to one broker, or the nodes of one cluster, by an advisory lock ---
#
# Each process holds a session-level advisory lock on the number of its cluster identity. No process takes one while
# another number is locked, so members of a cluster share the database and exclude all others. The server releases the
# lock when the connection ends: with the process, or when its host has been silent for as long as `engines.SILENCE`
# says.

CHECK_S = 1.0
"""Interval of checking the connection; a lost lock is reacquired within this time."""
PAUSE_S = 0.2
"""Interval of checking whether other brokers have released the database."""
CLOSE_WAIT_S = 5.0
"""How long to wait for a server that hangs."""

_CLASS = 0x52696F6E
"""First half of our lock numbers; an arbitrary constant."""
_ARRIVING = 0
"""Second half of the number of the lock held while checking for others and acquiring."""

_OTHERS = text("""
    SELECT application_name, host(client_addr) AS host
    FROM pg_locks LEFT JOIN pg_stat_activity USING (pid)
    WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND classid = :class AND objsubid = 2 AND objid NOT IN (0, :number)
    LIMIT 1
""")

_log = structlog.get_logger("rioni.storage")


class ClusterIdentity(NamedTuple):
    """Identity of brokers that may use a database together."""

    key: str
    """The key, which is the same for all members, and different for all others."""
    name: str
    """How other brokers' errors describe the holder of the lock."""

    @property
    def number(self) -> int:
        """Number of the key in locks; never that of arriving."""
        digest = hashlib.sha256(self.key.encode()).digest()
        return int.from_bytes(digest[:4]) >> 1 or 1


class DatabaseLease:
    """Database lock of one process; a forked process must take its own. No-op on SQLite, whose files have locks.

    When its connection fails, the lock is reacquired by a thread (under gevent a greenlet: the driver waits without
    blocking others). If others acquire the database first, that is logged, and `refusal` reports it until they have
    released it.
    """

    def __init__(self, engine: Engine, party: ClusterIdentity) -> None:
        """Create the lease without taking it.

        Args:
            engine: creates the connection, which is not one of the pool.
            party: the cluster identity of this process.
        """
        self._engine, self._party = engine, party
        self._connection: Connection | None = None
        self._held = False
        self._refusal = ""
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="rioni-database-lease", daemon=True)

    @property
    def refusal(self) -> str:
        """Why this process must not use the database, and what to do; empty unless others are known to use it."""
        return self._refusal

    def acquire(self, wait_s: float) -> Self:
        """Take the lock, and keep it until `close`; blocks while others hold theirs.

        Args:
            wait_s: timeout; a previous holder may be about to stop.

        Raises:
            Unavailable: others hold the database, or it can't be reached.
        """
        if self._engine.dialect.name != "postgresql":
            return self
        deadline = time.monotonic() + wait_s
        try:
            while not self._try():
                if time.monotonic() >= deadline:
                    raise Unavailable(self._refusal)
                time.sleep(PAUSE_S)
        except RioniError:
            self._drop()
            raise
        self._thread.start()
        return self

    def check(self) -> None:
        """Verify that the lease is still held; blocks on the database.

        Raises:
            Unavailable: the lock was lost.
        """
        if self._refusal or (self._thread.ident is not None and not self._held):
            raise Unavailable(self._refusal or "The database lease was lost with its connection. Try again.")

    def close(self) -> None:
        """Release the lock, so that others can acquire it at once."""
        self._closed.set()
        if self._thread.ident is not None:
            self._thread.join(CLOSE_WAIT_S)
        self._drop()

    def _try(self) -> bool:
        """Take the lock unless others hold theirs; return whether it was taken."""
        with translate_errors():
            connection = self._connection = self._connection or self._opened()
            with connection.begin():
                connection.execute(select(func.pg_advisory_xact_lock(_CLASS, _ARRIVING)))
                other = connection.execute(_OTHERS, {"class": _CLASS, "number": self._party.number}).first()
                if other is None:
                    connection.execute(select(func.pg_advisory_lock_shared(_CLASS, self._party.number)))
        refusal = "" if other is None else _refusal(other)
        if refusal and not self._refusal:
            _log.warning("the database is in use by others", reason=refusal)
        self._held, self._refusal = other is None, refusal
        return self._held

    def _opened(self) -> Connection:
        connection = self._engine.connect()
        # A pool would keep the session, and with it the lock, open after the connection is closed.
        connection.detach()
        with connection.begin():
            connection.execute(select(func.set_config("application_name", self._party.name, False)))
        return connection

    def _watch(self) -> None:
        while not self._closed.wait(CHECK_S):
            try:
                if self._held:
                    self._query()
                elif self._try():
                    _log.info("the database lease was reacquired")
            except (RioniError, exc.SQLAlchemyError) as ex:
                if self._held:
                    _log.warning(
                        "the database lease was lost with its connection; trying to reacquire it", error=str(ex)
                    )
                self._held = False
                self._drop()

    def _query(self) -> None:
        """Check that the session is alive."""
        assert self._connection is not None, "it holds the lock"
        with translate_errors(), self._connection.begin():
            self._connection.execute(select(1))

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(exc.SQLAlchemyError):
                connection.close()


def _refusal(other: Row[tuple[str | None, str | None]]) -> str:
    # The names of other roles' sessions are hidden.
    who = other.application_name or "another broker"
    where = f" (from {other.host})" if other.host else ""
    return (
        f"The database is in use by {who}{where}. Brokers that do not form a cluster must not share a database. Stop "
        "the other broker or use another database. Only nodes of one cluster share a database: all of them set "
        "zookeeper, with the same path."
    )


# --- Locks a database for one rebuild at a time, on any machine ---

_NUMBER = 0x52696F6E6A
"""Number of the advisory lock; arbitrary, but different from that of migrations, also a single number."""
_TAKEN = "Another rebuild of this database is running: {}. Wait until it has ended."


@contextlib.contextmanager
def rebuild_lock(engine: Engine) -> Iterator[Callable[[], None]]:
    """Hold the rebuild lock until the end of the block; it is also released when the process ends.

    Yields:
        A function that raises Unavailable if the lock was lost meanwhile; it may block on the database.

    Raises:
        Conflict: another rebuild holds it.
        Unavailable: the database can't be reached.
    """
    if engine.dialect.name == "sqlite":
        with _file_lock(Path(f"{engine.url.database}-rebuild")):
            yield lambda: None
        return
    # Autocommit: the server would end a session that is idle in a transaction.
    with translate_errors(), engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        # A pool would keep the session open, and with it the lock.
        connection.detach()
        if not connection.scalar(select(func.pg_try_advisory_lock(_NUMBER))):
            raise Conflict(_TAKEN.format("it holds an advisory lock"))
        try:
            yield lambda: _check(connection)
        finally:
            # The server learns a moment later that the session has ended; until then the next rebuild would be refused.
            with contextlib.suppress(exc.SQLAlchemyError):
                connection.execute(select(func.pg_advisory_unlock(_NUMBER)))


def _check(connection: Connection) -> None:
    """Check that the session holding the lock is alive."""
    try:
        with translate_errors():
            connection.execute(select(1))
    except Unavailable as ex:
        raise Unavailable(
            f"The lock of the rebuild was lost with its connection: {ex} Start the rebuild again."
        ) from ex


@contextlib.contextmanager
def _file_lock(path: Path) -> Iterator[None]:
    with file_errors(f"{path} can't be written"):
        file = open_lock(path)
    with file:
        if not try_lock(file.fileno()):
            raise Conflict(_TAKEN.format(f"it holds the lock on {path}"))
        yield
