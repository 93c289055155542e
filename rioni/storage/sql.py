"""Engines for the two databases, their transactions, and the border at which drivers' errors become the broker's.

NOTE: on SQLite every write transaction, with the checkpoint that may follow its commit, happens under a lock of our own
beside the file. It keeps clear of the defect of SQLite before 3.51.3 by which a checkpoint may damage the file when
another connection commits at the same instant.
"""

import contextlib
import fcntl
import os
import sqlite3
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, Engine, event, exc, make_url
from sqlalchemy import create_engine as sqlalchemy_engine
from sqlalchemy.engine import URL
from sqlalchemy.pool import ConnectionPoolEntry, Pool

from rioni.domain.errors import RioniError, Unavailable


LOCK_WAIT_S = 30.0
"""How long a writer waits for the one before it."""

CONNECT_WAIT_S = 10
IDLE_TRANSACTION_S = 60
"""PostgreSQL ends a transaction whose client is silent for so long: a worker that hangs must not stop the others."""

WRITES = "rioni_writes"
_WAIT = "rioni_lock_wait_s"

_WAL_BYTES_MAX = 64 * 2**20
"""What a long reader, or a rebuild, has let the write-ahead log grow beyond is given back to the disk."""

_UNDEFINED_TABLE = "42P01"
_LOOK = "The database's file can't be used: {}. Look at the disk and the permissions."
_RESTORE = "The database's file is damaged: {}. Stop the broker and restore a backup."
_LOCKED = "The database stays locked by another process. Try again later."
_SQLITE_ADVICE = {
    sqlite3.SQLITE_FULL: "The disk of the database is full; nothing was written. Free space, then try again.",
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_CANTOPEN: _LOOK,
    sqlite3.SQLITE_READONLY: _LOOK,
    sqlite3.SQLITE_PERM: _LOOK,
    sqlite3.SQLITE_IOERR: _LOOK,
    sqlite3.SQLITE_CORRUPT: _RESTORE,
    sqlite3.SQLITE_NOTADB: _RESTORE,
}

_LOCK_RETRY_MIN_S = 0.0005
_LOCK_RETRY_MAX_S = 0.01


class DriverMissing(RioniError):
    """The driver of the database is not installed."""


def create_engine(url: str, *, lock_wait_s: float = LOCK_WAIT_S) -> Engine:
    """Make an engine; nothing is opened yet. A forked process must make its own.

    Args:
        url: `sqlite:///path` or `postgresql://...`.
        lock_wait_s: how long a writer waits for the one before it.

    Raises:
        DriverMissing: PostgreSQL's driver is an extra.
        Unavailable: the URL names no database of these kinds.
    """
    try:
        parsed = make_url(url)
        kind = parsed.get_backend_name()
    except exc.ArgumentError as ex:
        raise Unavailable(
            "The database's URL can't be read. Write sqlite:///path or postgresql://user@host/name."
        ) from ex
    if kind == "sqlite" and parsed.database and parsed.database != ":memory:":
        return _sqlite_engine(parsed, lock_wait_s)
    if kind == "postgresql":
        return _postgresql_engine(parsed, lock_wait_s)
    raise Unavailable(f"The database must be an SQLite file or PostgreSQL, not {parsed.render_as_string()}.")


def _sqlite_engine(url: URL, lock_wait_s: float) -> Engine:
    engine = sqlalchemy_engine(
        url,
        poolclass=_FreeConnections,
        connect_args={"check_same_thread": False},
        execution_options={_WAIT: lock_wait_s},
    )
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _postgresql_engine(url: URL, lock_wait_s: float) -> Engine:
    settings = {
        "lock_timeout": int(lock_wait_s * 1000),
        "idle_in_transaction_session_timeout": IDLE_TRANSACTION_S * 1000,
    }
    options = [*(f"-c {name}={value}" for name, value in settings.items()), *url.normalized_query.get("options", ())]
    try:
        return sqlalchemy_engine(
            url.set(drivername="postgresql+psycopg"),
            pool_pre_ping=True,
            pool_timeout=lock_wait_s,
            connect_args={"connect_timeout": CONNECT_WAIT_S, "options": " ".join(options)},
        )
    except ImportError as ex:
        raise DriverMissing("PostgreSQL needs a driver: pip install 'rioni[cluster]'") from ex


class _FreeConnections(Pool):
    """Keeps the connections that nobody uses, as many as were ever used at once, and makes another where none is free.

    SQLAlchemy's own pools don't fit: `QueuePool` waits on locks of `threading`, which under gevent belong to the hub
    while SQLite runs in native threads; `SingletonThreadPool` counts greenlets as threads; `NullPool` opens the file
    each time, and whenever the last connection goes SQLite copies its whole write-ahead log. Here nobody ever waits:
    `append` and `pop` of a deque are atomic, and the number of threads bounds the number of connections.
    PERF: a query costs 0.12 ms, with NullPool 0.3 ms.
    """

    _free: deque[ConnectionPoolEntry]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._free = deque()

    def _do_get(self) -> ConnectionPoolEntry:
        try:
            return self._free.pop()
        except IndexError:
            return self._create_connection()

    def _do_return_conn(self, record: ConnectionPoolEntry) -> None:
        self._free.append(record)

    def recreate(self) -> "_FreeConnections":
        return _FreeConnections(
            self._creator,
            recycle=self._recycle,
            echo=self.echo,
            logging_name=self._orig_logging_name,
            reset_on_return=self._reset_on_return,
            pre_ping=self._pre_ping,
            _dispatch=self.dispatch,
            dialect=self._dialect,
        )

    def dispose(self) -> None:
        while self._free:
            self._free.pop().close()

    def status(self) -> str:
        return f"{len(self._free)} free connections"


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    # The driver would begin transactions by itself, and too late; see `_begin_sqlite`.
    connection.isolation_level = None
    # Writers wait for each other elsewhere (`turn`): only a crash's recovery, or a stranger, makes SQLite itself busy.
    connection.execute(f"PRAGMA busy_timeout={int(LOCK_WAIT_S * 1000)}")
    _use_wal(connection)
    for setting in (f"journal_size_limit={_WAL_BYTES_MAX}", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {setting}")


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch a new file to a write-ahead log, as others may at the same time: SQLite lets nobody wait for that."""
    deadline = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as ex:
            if ex.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
            time.sleep(_LOCK_RETRY_MIN_S)
        else:
            return


def _begin_sqlite(connection: Connection) -> None:
    # A transaction that reads first and then writes would fail if another one had written between.
    writes = connection.get_execution_options().get(WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


@contextlib.contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that writes, committed at the end of the block; on SQLite nobody else writes meanwhile.

    Raises:
        Unavailable: the database can't be reached, is full, or stays locked.
    """
    with (
        translated(),
        turn(engine),
        engine.connect().execution_options(**{WRITES: True}) as connection,
        connection.begin(),
    ):
        yield connection


@contextlib.contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A transaction that reads one state of the database, whatever others commit meanwhile.

    Raises:
        Unavailable: the database can't be reached.
    """
    # SQLite has no other way; PostgreSQL would show to every statement what was committed before it.
    options = {} if engine.dialect.name == "sqlite" else {"isolation_level": "REPEATABLE READ"}
    with translated(), engine.connect().execution_options(**options) as connection:
        yield connection


@contextlib.contextmanager
def turn(engine: Engine) -> Iterator[None]:
    """Wait until no other thread or process writes to the SQLite file."""
    if engine.dialect.name != "sqlite":
        yield
        return
    deadline = time.monotonic() + engine.get_execution_options()[_WAIT]
    path = f"{engine.url.database}-lock"
    try:
        # A file description of its own each time, so that the lock excludes threads of this process too.
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as ex:
        raise Unavailable(f"{path} can't be written: {ex.strerror}. Look at the disk and the permissions.") from ex
    try:
        _lock(fd, deadline)
        yield
    finally:
        # A process forked meanwhile has a copy of the descriptor: closing alone would leave the lock with it.
        fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


def _lock(fd: int, deadline: float) -> None:
    pause_s = _LOCK_RETRY_MIN_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise Unavailable(
                    "Another process has been writing to the database all the time. Try again later; if it stays so, "
                    "look for a process that hangs."
                ) from None
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LOCK_RETRY_MAX_S)
        else:
            return


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Let no error of a driver out but those that are our own mistakes.

    Raises:
        Unavailable: the database can't do its work now.
    """
    try:
        yield
    except exc.TimeoutError as ex:
        raise Unavailable("All connections to the database are in use. Try again later.") from ex
    except (exc.DBAPIError, sqlite3.Error) as ex:
        if (advice := _advice(ex)) is None:
            raise
        raise Unavailable(advice) from ex


def _advice(ex: exc.DBAPIError | sqlite3.Error) -> str | None:
    """What to do about an error; None where it is a mistake of ours."""
    cause = ex.orig if isinstance(ex, exc.DBAPIError) else ex
    if getattr(cause, "sqlstate", "") == _UNDEFINED_TABLE or "no such table" in str(cause):
        return "The database has not been prepared for Rioni yet: run `rioni serve` once."
    code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
    if code in _SQLITE_ADVICE:
        return _SQLITE_ADVICE[code].format(cause)
    if code == sqlite3.SQLITE_ERROR:
        return None
    if isinstance(ex, (exc.OperationalError, exc.InterfaceError, exc.InternalError)):
        return f"The database can't be used now: {str(cause).strip()}. Try again later."
    return None
