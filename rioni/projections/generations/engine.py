"""The engine of a rebuild: its transactions are real ones on both databases, DDL included."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from sqlalchemy import Connection, Engine, NullPool, create_engine, event

from rioni.sql.engines import WRITES, begin_explicitly, parse_url, with_driver


Turn = Callable[[], AbstractContextManager[None]]

LOCK_WAIT_S = 60
SORTERS = 2
"""Threads that SQLite sorts with."""


def open_engine(url: str, turn: Turn = nullcontext) -> Engine:
    """An engine of our own for a rebuild.

    Args:
        url: the database, as SQLAlchemy writes it.
        turn: what every other writer to the database holds while it writes.
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
    # Loading needs no fsync of its own: a commit of the live projection, and the swap, write all that came before.
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
    """What every other writer to the database holds while it writes."""
    taken: AbstractContextManager[None] = engine.get_execution_options()["turn"]()
    return taken


@contextmanager
def snapshot(engine: Engine) -> Iterator[Connection]:
    """A transaction that sees one state of the database and locks nothing."""
    options = {WRITES: False} if engine.dialect.name == "sqlite" else {"isolation_level": "REPEATABLE READ"}
    with engine.connect().execution_options(**options) as connection, connection.begin():
        yield connection
