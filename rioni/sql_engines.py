"""What every SQLAlchemy engine of the registry's database needs: PostgreSQL's driver, real transactions on SQLite."""

import sqlite3

from sqlalchemy import Connection, Engine, event
from sqlalchemy.engine import URL


WRITES = "rioni_writes"
"""Execution option of connections: whether their transactions on SQLite lock the file for writing from the start."""


def with_driver(url: URL) -> URL:
    """Return the URL of a PostgreSQL database with the name of the driver that Rioni uses."""
    return url.set(drivername="postgresql+psycopg")


def begin_explicitly(engine: Engine) -> None:
    """Make transactions on SQLite begin where SQLAlchemy begins them, DDL included. Call it before other listeners."""
    event.listen(engine, "connect", _leave_transactions)
    event.listen(engine, "begin", _begin)


def _leave_transactions(connection: sqlite3.Connection, _record: object) -> None:
    # The driver would begin transactions implicitly, and too late; see `_begin`.
    connection.isolation_level = None


def _begin(connection: Connection) -> None:
    # A transaction that first reads and then writes would fail if another one had written in between.
    writes = connection.get_execution_options().get(WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
