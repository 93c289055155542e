"""Engines for the two databases, and the border at which their drivers' errors become the broker's."""

import contextlib
from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, Engine, NullPool, event, exc, make_url
from sqlalchemy import create_engine as sqlalchemy_engine

from rioni.domain.errors import RioniError, Unavailable


LOCK_WAIT_S = 30
"""How long a writer waits for the one before it."""

WRITES = "rioni_writes"


class DriverMissing(RioniError):
    """The driver of the database is not installed."""


def create_engine(url: str) -> Engine:
    """Make an engine; nothing is opened yet.

    Args:
        url: `sqlite:///path` or `postgresql://...`.

    Raises:
        DriverMissing: PostgreSQL's driver is an extra.
        Unavailable: the URL names another kind of database.
    """
    parsed = make_url(url)
    kind = parsed.get_backend_name()
    if kind == "sqlite":
        # Connections must not go from thread to thread, and under gevent the threads of a pool come and go: so a
        # connection lives as long as its use. PERF: opening one takes 0.1 ms.
        engine = sqlalchemy_engine(parsed, poolclass=NullPool)
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    if kind == "postgresql":
        try:
            return sqlalchemy_engine(parsed.set(drivername="postgresql+psycopg"), pool_pre_ping=True)
        except ModuleNotFoundError as ex:
            raise DriverMissing("PostgreSQL needs a driver: pip install 'rioni[cluster]'") from ex
    raise Unavailable(f"The database must be SQLite or PostgreSQL, not {kind}")


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    # The driver would begin transactions by itself, and too late; see `_begin_sqlite`.
    connection.isolation_level = None
    for setting in (f"busy_timeout={LOCK_WAIT_S * 1000}", "journal_mode=WAL", "synchronous=FULL"):
        connection.execute(f"PRAGMA {setting}")


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get(WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


@contextlib.contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that writes, committed at the end of the block; on SQLite it has the database's lock from its start.

    Raises:
        Unavailable: the database can't be reached, is full, or stays locked.
    """
    with translated(), engine.connect().execution_options(**{WRITES: True}) as connection, connection.begin():
        yield connection


@contextlib.contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A transaction that reads one state of the database.

    Raises:
        Unavailable: the database can't be reached.
    """
    with translated(), engine.connect() as connection:
        yield connection


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Let no error of a driver out but those that are our own mistakes.

    Raises:
        Unavailable: the database can't do its work now.
    """
    try:
        yield
    except (exc.OperationalError, exc.InterfaceError, exc.TimeoutError) as ex:
        raise Unavailable(f"The database can't be used now: {ex.__cause__ or ex}. Try again later.") from ex
