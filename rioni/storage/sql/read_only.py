"""Opens databases read-only: nothing is created, changed or migrated, not even next to an SQLite file."""

import contextlib
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, event, make_url
from sqlalchemy import create_engine as sqlalchemy_engine

from rioni.sql.engines import begin_explicitly, parse_url
from rioni.storage.sql.database_connections import GeventConnectionPool
from rioni.storage.sql.engines import create_engine


@contextlib.contextmanager
def read_only_engine(url: str) -> Iterator[Engine]:
    """Provide an engine without write access; works while a broker runs, and on a read-only file system.

    Args:
        url: as for `rioni.storage.sql.engines.create_engine`.

    Raises:
        DriverMissing: PostgreSQL's driver is an extra.
        Unavailable: the URL is not one of a supported database.
    """
    parsed = parse_url(url)
    with contextlib.ExitStack() as opened:
        if parsed.drivername.partition("+")[0] == "sqlite" and parsed.database:
            uri = opened.enter_context(read_only_uri(Path(parsed.database)))
            parsed = make_url(f"sqlite:///{uri}&uri=true")
        engine = engine_for_reading(parsed)
        opened.callback(engine.dispose)
        yield engine


def engine_for_reading(url: URL) -> Engine:
    """Create an engine that never writes, for a database that is not changed otherwise.

    Args:
        url: as for `rioni.storage.sql.engines.create_engine`, or of an engine from this module.

    Raises:
        DriverMissing: PostgreSQL's driver is an extra.
        Unavailable: the URL is not one of a supported database.
    """
    if url.drivername.partition("+")[0] != "sqlite":
        options = url.update_query_pairs([("options", "-c default_transaction_read_only=on")], append=True)
        return create_engine(options.render_as_string(hide_password=False))
    engine = sqlalchemy_engine(url, poolclass=GeventConnectionPool, connect_args={"check_same_thread": False})
    begin_explicitly(engine)
    event.listen(engine, "connect", _forbid_writes)
    return engine


@contextlib.contextmanager
def read_only_uri(path: Path) -> Iterator[str]:
    """Provide a URI for reading an SQLite file without changing it or its directory.

    While a broker runs, or after it was killed, the write-ahead log and its index exist next to the file, and readers
    share them. Without an index, as in a copy, SQLite would have to create it: a non-empty log is then read from a
    temporary copy, and a file without one is read as immutable.

    Args:
        path: the path of an existing file in WAL mode.
    """
    log, index = Path(f"{path}-wal"), Path(f"{path}-shm")
    with contextlib.ExitStack() as opened:
        if index.exists():
            mode = "mode=ro"
        elif log.exists() and log.stat().st_size:
            # NOTE: no process has the file open, or there would be an index; so no lock of this process is lost.
            folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
            shutil.copyfile(path, folder / path.name)
            shutil.copyfile(log, folder / log.name)
            path, mode = folder / path.name, "mode=rw"
        else:
            mode = "mode=ro&immutable=1"
        yield f"file:{quote(str(path.absolute()))}?{mode}"


@contextlib.contextmanager
def opened_read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """Open an existing SQLite file as `read_only_uri` says; blocks on the disk.

    Raises:
        sqlite3.Error: the file can't be read.
    """
    with read_only_uri(path) as uri, contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
        connection.execute("PRAGMA query_only = ON")
        yield connection


def _forbid_writes(connection: sqlite3.Connection, _record: object) -> None:
    connection.execute("PRAGMA query_only=ON")


@contextlib.contextmanager
def any_text(connection: Connection) -> Iterator[None]:
    """Read text that is not valid UTF-8 from a damaged SQLite file; other databases can't contain any."""
    driver = connection.connection.driver_connection
    if not isinstance(driver, sqlite3.Connection):
        yield
        return
    driver.text_factory = _decoded
    try:
        yield
    finally:
        driver.text_factory = str


def _decoded(text: bytes) -> str:
    return text.decode(errors="surrogateescape")
