"""A real PostgreSQL from a wheel, for the duration of a test run, with any number of databases."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
from sqlalchemy import make_url

from rioni.cli.cluster.postgres import running_postgres as running_server
from rioni.storage.sql.engines import create_engine
from rioni.storage.sql.migration import upgrade
from tests.support.descendants import descendants
from tests.support.waiting import wait_until


@contextlib.contextmanager
def running_postgres(connections_max: int) -> Iterator[str]:
    """Start a server in a scratch folder, where its socket is too; it listens on no port, and works for root as well.

    Args:
        connections_max: how many may be open at the same time.

    Yields:
        The URL of its first database, for SQLAlchemy.
    """
    with running_server() as server:
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            # No test powers off the machine; waiting for the disk would only cost time.
            connection.execute("ALTER SYSTEM SET fsync = off")
            connection.execute(f"ALTER SYSTEM SET max_connections = {connections_max}")
        server.stop()
        server.ensure_postgres_running()
        url = server.get_uri(driver="psycopg")
        _create_template(url)
        yield url


def crash(server: Any) -> None:
    """End a server without a checkpoint, and all its connections; blocks until it has ended.

    Args:
        server: from `rioni.cli.cluster.postgres.running_postgres`; its `ensure_postgres_running` starts it again,
            which recovers what was committed.
    """
    pid = server.get_pid()
    os.kill(pid, signal.SIGQUIT)
    wait_until(lambda: not Path(f"/proc/{pid}").exists())


@contextlib.contextmanager
def suspended(server: Any) -> Iterator[None]:
    """Suspend a server and all of its processes for the block, like an unreachable machine; `server` as for `crash`."""
    pid = server.get_pid()
    processes = [pid, *descendants(pid)]
    try:
        for each in processes:
            os.kill(each, signal.SIGSTOP)
        yield
    finally:
        for each in processes:
            os.kill(each, signal.SIGCONT)


MIGRATED = "migrated"
"""A database with the current schema and an empty log, which is copied.

PERF: migrating an empty one takes 160 ms, copying this one 30.
"""


def _create_template(url: str) -> None:
    engine = create_engine(_create(url, MIGRATED, "template1"))
    upgrade(engine)
    engine.dispose()


def fresh_database(url: str, *, migrated: bool = False) -> str:
    """Create a database on the server of another one, and return its URL.

    Args:
        url: of any database of a server from `running_postgres`.
        migrated: whether it has the current schema; otherwise it is empty.
    """
    return _create(url, f"test_{uuid4().hex}", MIGRATED if migrated else "template1")


def drop_database(url: str) -> None:
    """Drop a database of `fresh_database`, and end its connections; it stays if they do not end within 5 s."""
    database = make_url(url)
    server = database.set(drivername="postgresql", database="postgres").render_as_string(hide_password=False)
    with (
        psycopg.connect(server, autocommit=True) as connection,
        contextlib.suppress(psycopg.errors.ObjectInUse),
    ):
        connection.execute(f"DROP DATABASE {database.database} WITH (FORCE)")


def _create(url: str, name: str, template: str) -> str:
    with psycopg.connect(url.replace("+psycopg", "", 1), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
    return make_url(url).set(database=name).render_as_string(hide_password=False)
