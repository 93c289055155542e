"""Locks a database for one rebuild at a time, on any machine."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from sqlalchemy import Connection, Engine, exc, func, select

from rioni.domain.errors import Conflict, Unavailable
from rioni.files.locks import open_lock, try_lock
from rioni.storage.sql.engines import translate_errors


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
    try:
        file = open_lock(path)
    except OSError as ex:
        raise Unavailable(f"{path} can't be written: {ex.strerror}.") from ex
    with file:
        if not try_lock(file.fileno()):
            raise Conflict(_TAKEN.format(f"it holds the lock on {path}"))
        yield
