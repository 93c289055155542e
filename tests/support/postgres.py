"""A real PostgreSQL from a wheel, for the length of a test run, with as many databases as are asked for."""

import contextlib
import itertools
from collections.abc import Callable, Iterator

import psycopg

from rioni.local_cluster.cluster import running_postgres as running_server


@contextlib.contextmanager
def running_postgres() -> Iterator[Callable[[], str]]:
    """Start a server in a scratch folder, where its socket is too; it listens on no port, and works for root as well.

    Yields:
        A function that makes another empty database and returns its URL, for SQLAlchemy.
    """
    numbers = itertools.count(1)
    with running_server() as server, psycopg.connect(server.get_uri(), autocommit=True) as connection:
        # No test stops the machine; waiting for the disk would only cost time.
        connection.execute("ALTER SYSTEM SET fsync = off")
        connection.execute("SELECT pg_reload_conf()")

        def fresh_database() -> str:
            name = f"test_{next(numbers)}"
            connection.execute(f"CREATE DATABASE {name}")
            return server.get_uri(name, driver="psycopg")

        yield fresh_database
