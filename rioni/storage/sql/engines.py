"""Creates the database engines, runs transactions, and translates drivers' errors.

NOTE: on SQLite every write transaction, with the checkpoint that may follow its commit, happens under a separate lock
file. It avoids the defect of SQLite before 3.51.3 by which a checkpoint may corrupt the file when another connection
commits at the same instant.
"""

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, Engine, event, exc, text
from sqlalchemy import create_engine as sqlalchemy_engine
from sqlalchemy.engine import URL

from rioni.domain.errors import CommitOutcomeUnknown, RioniError, TransactionConflict, Unavailable
from rioni.files.extras import requirement
from rioni.files.locks import try_lock, unlock
from rioni.sql.engines import (
    WRITES,
    begin_explicitly,
    discard_failed_commit,
    parse_url,
    use_write_ahead_log,
    with_driver,
)
from rioni.storage.sql import database_connections
from rioni.storage.sql.database_connections import GeventConnectionPool
from rioni.storage.threads import PAUSE_MAX_S, PAUSE_MIN_S, ThreadSafeSemaphore


LOCK_WAIT_S = 30.0
"""Timeout for the write lock, and for a free connection."""
CONNECTIONS_MAX = 10
"""Connections of one engine to PostgreSQL: about as many as blocking threads."""

CONNECT_WAIT_S = 10
IDLE_TRANSACTION_S = 60
"""PostgreSQL ends a transaction idle for this long: a worker that hangs must not block the others."""
STATEMENT_S = 60
"""PostgreSQL ends a statement after this time; those of migrations may take longer."""

_NO_SYNC = text("SET LOCAL synchronous_commit = off")

_WAIT = "rioni_lock_wait_s"
_TURN = "rioni_turn"
_FAILED = "rioni_failed"

SILENCE = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
"""TCP keepalive settings, in seconds: idle time before the first probe, interval, and number of unanswered probes.

The server uses the same: locks of a dead host are released after 25 s.
"""
_UNACKNOWLEDGED_MS = 20_000

_WAL_BYTES_MAX = 64 * 2**20
"""Size that the write-ahead log is truncated to after a long reader or a rebuild has let it grow."""

_UNDEFINED_TABLE = "42P01"
_NOTHING_WRITTEN = {"40001", "40P01"}
"""SQLSTATEs of rolled-back transactions that conflicted with others: serialization failure, deadlock."""
_FILE = "The database's file"
_LOOK = "{file} can't be used: {cause}. Check disk space and permissions."
_RESTORE = (
    "{file} is damaged: {cause}. Stop the broker, and restore a backup with `rioni restore`; `rioni verify` says what "
    "can still be read."
)
_BUSY = "Timed out waiting for the database write lock. Try again later; if it persists, look for a process that hangs."
_AWAY = "The database can't be reached now. Try again later."
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


class DriverMissing(RioniError):
    """The driver of the database is not installed."""


def create_engine(url: str, *, lock_wait_s: float = LOCK_WAIT_S, connections_max: int = CONNECTIONS_MAX) -> Engine:
    """Create an engine without connecting. A forked process must create its own.

    Args:
        url: `sqlite:///path` or `postgresql://...`.
        lock_wait_s: timeout for the write lock, and for a free connection.
        connections_max: maximum number of open connections to PostgreSQL.

    Raises:
        DriverMissing: PostgreSQL's driver is an extra.
        Unavailable: the URL is not one of a supported database.
    """
    parsed = parse_url(url)
    kind = parsed.drivername.partition("+")[0]
    if kind == "sqlite" and parsed.database and parsed.database != ":memory:":
        return _sqlite_engine(parsed, lock_wait_s)
    if kind == "postgresql":
        return _postgresql_engine(parsed, lock_wait_s, connections_max)
    raise Unavailable(f"The database must be an SQLite file or PostgreSQL, not {kind}.")


def _sqlite_engine(url: URL, lock_wait_s: float) -> Engine:
    engine = sqlalchemy_engine(
        url,
        poolclass=GeventConnectionPool,
        connect_args={"check_same_thread": False},
        execution_options={_WAIT: lock_wait_s, _FAILED: []},
    )
    begin_explicitly(engine)
    event.listen(engine, "connect", _prepare_sqlite)
    return engine


def _postgresql_engine(url: URL, lock_wait_s: float, connections_max: int) -> Engine:
    settings = {
        "lock_timeout": int(lock_wait_s * 1000),
        "statement_timeout": STATEMENT_S * 1000,
        "idle_in_transaction_session_timeout": IDLE_TRANSACTION_S * 1000,
        **{f"tcp_{name}": value for name, value in SILENCE.items()},
    }
    options = [*(f"-c {name}={value}" for name, value in settings.items()), *url.normalized_query.get("options", ())]
    try:
        engine = sqlalchemy_engine(
            with_driver(url),
            poolclass=GeventConnectionPool,
            pool_size=connections_max,
            pool_timeout=lock_wait_s,
            # After a restart of the server every pooled connection turns out to be broken at its next use.
            pool_pre_ping=True,
            connect_args={
                "connect_timeout": CONNECT_WAIT_S,
                "options": " ".join(options),
                "tcp_user_timeout": _UNACKNOWLEDGED_MS,
                **SILENCE,
            },
            execution_options={_WAIT: lock_wait_s, _TURN: ThreadSafeSemaphore()},
        )
    except ImportError as ex:
        raise DriverMissing(f"PostgreSQL needs a driver: pip install {requirement('cluster')}") from ex
    event.listen(engine, "do_connect", _connect_postgresql)
    return engine


def _connect_postgresql(_dialect: object, _record: object, arguments: list[Any], parameters: dict[str, Any]) -> Any:
    return database_connections.connect(arguments, parameters)


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    # Writers wait for each other in `write_lock`: SQLite is busy only during crash recovery, or due to others.
    connection.execute(f"PRAGMA busy_timeout={int(LOCK_WAIT_S * 1000)}")
    use_write_ahead_log(connection, LOCK_WAIT_S)
    for setting in (f"journal_size_limit={_WAL_BYTES_MAX}", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {setting}")


@contextlib.contextmanager
def writing(engine: Engine, *, durable: bool = True) -> Iterator[Connection]:
    """Open a write transaction, committed at the end of the block; on SQLite the only one.

    Args:
        engine: the engine of the database.
        durable: whether the commit waits for the disk; without it a crash of PostgreSQL's machine may lose the last
            seconds. Commits to SQLite always wait.

    Raises:
        TransactionConflict: it conflicted with another transaction.
        CommitOutcomeUnknown: the server failed during the commit, or the disk failed and still does.
        Unavailable: the database can't be reached, is full, or stays locked; nothing was written.
    """
    with exclusive(engine) as connection, connection.begin() as transaction:
        if not durable and engine.dialect.name == "postgresql":
            connection.execute(_NO_SYNC)
        yield connection
        try:
            transaction.commit()
        except exc.DBAPIError as ex:
            if ex.connection_invalidated:
                raise CommitOutcomeUnknown from ex
            if engine.dialect.name == "sqlite":
                # It must not be closed before another connection is open: see `discard_failed_commit`.
                with contextlib.suppress(sqlite3.Error):
                    connection.connection.rollback()
                try:
                    _discard_failed(engine, ex)
                finally:
                    connection.invalidate()
            raise


@contextlib.contextmanager
def exclusive(engine: Engine) -> Iterator[Connection]:
    """Open a connection that on SQLite excludes all other writers; rolled back at the end of the block.

    Raises:
        CommitOutcomeUnknown: SQLite's disk failed in an earlier COMMIT, and still does.
        Unavailable: the database can't be reached, or stays locked.
    """
    with (
        translate_errors(engine),
        write_lock(engine),
        _settled(engine),
        engine.connect().execution_options(**{WRITES: True}) as connection,
    ):
        yield connection


@contextlib.contextmanager
def _settled(engine: Engine) -> Iterator[None]:
    """First make sure that a failed COMMIT has left nothing in SQLite's log; see `discard_failed_commit`."""
    if engine.get_execution_options().get(_FAILED):
        _discard_failed(engine)
    yield


def _discard_failed(engine: Engine, failure: exc.DBAPIError | None = None) -> None:
    """Reopen the file and discard the failed transaction; connections open before are not used again.

    Args:
        engine: the engine of an SQLite file, whose lock is held.
        failure: the error of the COMMIT; None if an earlier one failed, and its outcome is still unknown.

    Raises:
        CommitOutcomeUnknown: the disk still fails, after this failure.
        sqlite3.Error: the disk still fails; the next transaction was not attempted.
    """
    failed: list[exc.DBAPIError] = engine.get_execution_options()[_FAILED]
    if failure is not None:
        failed.append(failure)
    # NOTE: the old connections are closed last. If the only open one is closed while the disk still fails, the next
    # one to open the file recovers the log, and treats the failed transaction as committed.
    old = engine.pool
    engine.dispose(close=False)
    try:
        with contextlib.closing(engine.raw_connection()) as connection:
            driver = connection.driver_connection
            assert isinstance(driver, sqlite3.Connection)
            discard_failed_commit(driver, int(LOCK_WAIT_S * 1000))
    except (exc.DBAPIError, sqlite3.Error):
        if failure is None:
            raise
        raise CommitOutcomeUnknown from failure
    finally:
        old.dispose()
    failed.clear()


@contextlib.contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """Open a read transaction on one snapshot of the database, which later commits of others do not affect.

    Raises:
        Unavailable: the database can't be reached.
    """
    # Always so on SQLite; PostgreSQL's default would show each statement the data committed before it.
    options = {} if engine.dialect.name == "sqlite" else {"isolation_level": "REPEATABLE READ"}
    with translate_errors(engine), engine.connect().execution_options(**options) as connection:
        yield connection


@contextlib.contextmanager
def write_lock(engine: Engine) -> Iterator[None]:
    """Hold the write lock: excludes other threads and, on an SQLite file, other processes.

    PostgreSQL's writers wait for each other in the server. But those of one process would occupy all of its
    connections, and the holder of the lock may need a second one.
    """
    options = engine.get_execution_options()
    if engine.dialect.name != "sqlite":
        places: ThreadSafeSemaphore = options[_TURN]
        if not places.acquire(options[_WAIT]):
            raise Unavailable(_BUSY)
        try:
            yield
        finally:
            places.release()
        return
    deadline = time.monotonic() + options[_WAIT]
    path = f"{engine.url.database}-lock"
    try:
        # A new file description each time, so that the lock excludes threads of this process too.
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as ex:
        raise Unavailable(f"{path} can't be written: {ex.strerror}. Check disk space and permissions.") from ex
    try:
        _lock(fd, deadline)
        yield
    finally:
        # A process forked meanwhile has a copy of the descriptor: closing alone would keep the lock held there.
        unlock(fd)
        os.close(fd)


def _lock(fd: int, deadline: float) -> None:
    pause_s = PAUSE_MIN_S
    while not try_lock(fd):
        if time.monotonic() >= deadline:
            raise Unavailable(_BUSY)
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, PAUSE_MAX_S)


def unpooled_connection(engine: Engine) -> Any:
    """Open a connection of the driver that is not one of the pool; the caller closes it. Raises as the driver does."""
    borrowed = engine.raw_connection()
    connection = borrowed.driver_connection
    borrowed.detach()
    return connection


@contextlib.contextmanager
def translate_errors(engine: Engine | None = None) -> Iterator[None]:
    """Translate drivers' errors, except those caused by bugs.

    Args:
        engine: the engine of the database, whose file errors name.

    Raises:
        TransactionConflict: the transaction conflicted with another.
        Unavailable: the database is currently unusable.
    """
    try:
        yield
    except exc.TimeoutError as ex:
        raise Unavailable("All connections to the database are in use. Try again later.") from ex
    except (exc.DBAPIError, sqlite3.Error) as ex:
        if getattr(getattr(ex, "orig", None), "sqlstate", "") in _NOTHING_WRITTEN:
            raise TransactionConflict from ex
        name = engine.url.database if engine is not None and engine.dialect.name == "sqlite" else None
        if (advice := _advice(ex, os.path.basename(name) if name else _FILE)) is None:  # noqa: PTH119 - a URI perhaps
            raise
        unavailable = Unavailable(advice)
        if advice is _AWAY:
            # The error contains hosts and roles, which only the operator may see.
            unavailable.add_note(str(ex.orig if isinstance(ex, exc.DBAPIError) else ex).strip())
        raise unavailable from ex


def _advice(ex: exc.DBAPIError | sqlite3.Error, file: str) -> str | None:
    """Return the advice for an error; None if it is a bug."""
    cause = ex.orig if isinstance(ex, exc.DBAPIError) else ex
    if getattr(cause, "sqlstate", "") == _UNDEFINED_TABLE:
        return "The database has not been prepared for Rioni yet: run `rioni serve` once."
    code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_ERROR:
        missing = "no such table" in str(cause)
        return f"{file} lacks a table ({cause}). `rioni verify` reports what is missing." if missing else None
    if code in _SQLITE_ADVICE:
        return _SQLITE_ADVICE[code].format(file=file, cause=cause)
    if isinstance(ex, exc.DBAPIError) and (ex.statement is None or ex.connection_invalidated):
        return _AWAY
    if isinstance(ex, (exc.OperationalError, exc.InterfaceError, exc.InternalError)):
        return f"The database can't be used now: {str(cause).strip()}. Try again later."
    return None
