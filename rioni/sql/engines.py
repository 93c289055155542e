"""The SQLAlchemy engines of the registry's database and of a rebuild."""

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from sqlalchemy import Connection, Engine, NullPool, create_engine, event, exc, make_url
from sqlalchemy.engine import URL

from rioni.domain.errors import Unavailable


# Setup of every SQLAlchemy engine of the registry's database: PostgreSQL's driver, real transactions on SQLite.

WRITES = "rioni_writes"
"""Execution option of connections: whether their transactions on SQLite lock the file for writing from the start."""


DEFAULT_PORT = 5432
PORT_MAX = 65_535


def parse_url(text: str) -> URL:
    """Return the URL of a database; of PostgreSQL it may name several hosts, as libpq has it: `h1:5432,h2:5432`.

    With several hosts, and without `target_session_attrs`, a connection is made to the one that takes writes.

    Raises:
        Unavailable: it can't be read. The text never has the URL, which may hold a password.
    """
    kind, found, rest = text.partition("://")
    authority, slash, path = rest.partition("/")
    user, at, hosts = authority.rpartition("@")
    several: list[str] = []
    if found and kind.partition("+")[0] == "postgresql" and "?" not in hosts:
        several = list(_checked_hosts(hosts)) if hosts else []
    try:
        if "," not in hosts or not several:
            return make_url(text)
        url = make_url(f"{kind}://{user}{at}{slash}{path}")
    except (exc.ArgumentError, ValueError) as ex:
        raise _unreadable() from ex
    url = url.update_query_pairs([("host", each) for each in several], append=True)
    if "target_session_attrs" not in url.query:
        url = url.update_query_dict({"target_session_attrs": "read-write"})
    return url


def libpq_url(url: URL) -> str:
    """Return the URL of a PostgreSQL database, with its password, as libpq reads it."""
    hosts = url.query.get("host", ())
    if isinstance(hosts, str):
        return url.set(drivername="postgresql").render_as_string(hide_password=False)
    plain = url.difference_update_query(["host"]).set(drivername="postgresql", host="hosts" if hosts else url.host)
    text = plain.render_as_string(hide_password=False)
    if not hosts:
        return text
    before, _, after = text.partition("://")
    user, at, rest = after.rpartition("@hosts") if "@hosts" in after else ("", "", after.removeprefix("hosts"))
    return f"{before}://{user}{'@' if at else ''}{','.join(hosts)}{rest}"


def _checked_hosts(hosts: str) -> Iterator[str]:
    for each in hosts.split(","):
        address = each.rpartition("]")[2] if each.startswith("[") else each
        name, colon, port = address.rpartition(":")
        host = each[: len(each) - len(colon + port)] if colon else each
        if not host or (name and ":" in name):
            raise _unreadable("a host is missing, or an IPv6 address is not in brackets")
        if colon and not (port.isascii() and port.isdecimal() and 0 < int(port) <= PORT_MAX):
            raise _unreadable(f"a port is no number from 1 to {PORT_MAX}")
        yield f"{host}:{port if colon else DEFAULT_PORT}"


def _unreadable(reason: str = "") -> Unavailable:
    return Unavailable(
        f"The database's URL can't be read{': ' if reason else ''}{reason}. Write sqlite:///path, "
        "postgresql://user@host/name or postgresql://user@host1:5432,host2:5432/name, with special characters of the "
        "password as %40 and so on."
    )


def with_driver(url: URL) -> URL:
    """Return the URL of a PostgreSQL database with the name of the driver that Rioni uses."""
    return url.set(drivername="postgresql+psycopg")


def begin_explicitly(engine: Engine) -> None:
    """Make transactions on SQLite begin when SQLAlchemy begins them, DDL included. Call it before other listeners."""
    event.listen(engine, "connect", _leave_transactions)
    event.listen(engine, "begin", _begin)


def _leave_transactions(connection: sqlite3.Connection, _record: object) -> None:
    # The driver would begin transactions implicitly, and too late; see `_begin`.
    connection.isolation_level = None


def _begin(connection: Connection) -> None:
    # A transaction that first reads and then writes would fail if another one had written in between.
    writes = connection.get_execution_options().get(WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


# --- The engine of a rebuild: its transactions are real ones on both databases, DDL included ---

Turn = Callable[[], AbstractContextManager[None]]

WAL_PAUSE_S = 0.0005
"""The pause between two attempts to switch a file to a write-ahead log."""
LOCK_WAIT_S = 60
SORTERS = 2
"""Threads that SQLite sorts with."""


def open_engine(url: str, turn: Turn = nullcontext) -> Engine:
    """An engine of our own for a rebuild.

    Args:
        url: the database, as SQLAlchemy writes it.
        turn: the lock that every other writer to the database holds while it writes.
    """
    parsed = parse_url(url)
    if parsed.get_backend_name() == "postgresql":
        parsed = with_driver(parsed)
    engine = create_engine(parsed, poolclass=NullPool, execution_options={"turn": turn, WRITES: True})
    if engine.dialect.name == "sqlite":
        begin_explicitly(engine)
        event.listen(engine, "connect", _prepare_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    # Loading needs no separate fsync: a commit of the live projection, and the swap, write everything before them.
    # PERF: without secure_delete, dropping a table of a million rows takes one second instead of sixteen.
    # PERF: making the indexes of a million rows takes a third less with two threads that sort.
    # PERF: a batch of rows fits into 64 MB of cache and does not spill; checkpoints are fewer and larger.
    for setting in (
        f"busy_timeout={LOCK_WAIT_S * 1000}",
        "synchronous=NORMAL",
        "secure_delete=OFF",
        "cache_size=-64000",
        "wal_autocheckpoint=16000",
        f"threads={SORTERS}",
    ):
        connection.execute(f"PRAGMA {setting}")


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that writes, while no other process does."""
    with turn(engine), engine.begin() as connection:
        yield connection


def turn(engine: Engine) -> AbstractContextManager[None]:
    """Return the lock that every writer to the database holds while it writes."""
    taken: AbstractContextManager[None] = engine.get_execution_options()["turn"]()
    return taken


@contextmanager
def snapshot(engine: Engine) -> Iterator[Connection]:
    """A transaction that sees one state of the database and locks nothing."""
    options = {WRITES: False} if engine.dialect.name == "sqlite" else {"isolation_level": "REPEATABLE READ"}
    with engine.connect().execution_options(**options) as connection, connection.begin():
        yield connection


def use_write_ahead_log(connection: sqlite3.Connection, wait_s: float) -> None:
    """Switch a file to a write-ahead log, with retries: SQLite's busy timeout does not apply to that.

    Args:
        connection: not in a transaction.
        wait_s: maximum time to block while other processes use the file.

    Raises:
        sqlite3.Error: they still do, or the file can't be used.
    """
    deadline = time.monotonic() + wait_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as ex:
            if ex.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
            time.sleep(WAL_PAUSE_S)
        else:
            return


# --- Discards the remains of a failed COMMIT from SQLite's write-ahead log, so that they never reappear ---
#
# The log may contain the whole transaction although its fsync failed: while the processes that have the file open live,
# no other connection sees it, but the first one to open the file after them would treat it as committed. And after a
# failed fsync the kernel may mark the lost pages as clean, so that a second fsync of the same file handle would succeed
# without them. So the outcome is unknown until another connection has emptied the log, or overwritten the part after
# its end.

READERS_TIMEOUT_MS = 200
"""How long a truncating checkpoint waits for readers; writers are blocked meanwhile."""


def empty_log(connection: sqlite3.Connection, busy_timeout_ms: int) -> bool:
    """Checkpoint the write-ahead log and empty it; return whether that succeeded, as readers can prevent it.

    Args:
        connection: not in a transaction.
        busy_timeout_ms: restored afterwards.

    Raises:
        sqlite3.Error: the disk fails.
    """
    connection.execute(f"PRAGMA busy_timeout = {READERS_TIMEOUT_MS}")
    ((busy, _, _),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.execute(f"PRAGMA busy_timeout = {busy_timeout_ms}")
    return not busy


def discard_failed_commit(connection: sqlite3.Connection, busy_timeout_ms: int) -> None:
    """Make sure that a transaction whose COMMIT failed is discarded; the caller must hold the write lock.

    Args:
        connection: opened after the failed one.
        busy_timeout_ms: the busy timeout of the connection.

    Raises:
        sqlite3.Error: the disk still fails; the outcome stays unknown.
    """
    if not empty_log(connection, busy_timeout_ms):
        # The next commit overwrites the failed transaction: here, one that changes nothing.
        ((version,),) = connection.execute("PRAGMA user_version").fetchall()
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(f"PRAGMA user_version = {version}")
        connection.execute("COMMIT")
