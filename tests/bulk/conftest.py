"""Databases with a log in them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pytest
from sqlalchemy import Engine

from rioni.domain.ports.event_log import LogEntry
from rioni.projections.custom import installed
from rioni.projections.custom_tables import LiveProjector, prepare
from rioni.sql.engines import open_engine
from tests.support.campaigns import NIGHTLY
from tests.support.log import append, create_tables
from tests.support.standalone import Standalone, standalone


@pytest.fixture(scope="package")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """A master of Spark with two workers."""
    with standalone(tmp_path_factory.mktemp("standalone")) as started:
        yield started


# It starts Spark for each kill; `test_resuming.py` has one of each kind.
collect_ignore = [] if NIGHTLY else ["test_rebuild_kill.py"]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def url(request, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'registry.db'}"
    return request.getfixturevalue("postgres_url")()


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    engine = open_engine(url)
    create_tables(engine)
    if engine.dialect.name == "sqlite":
        with engine.connect() as connection:
            connection.connection.execute("PRAGMA journal_mode=WAL")
    yield engine
    engine.dispose()


@pytest.fixture
def write(engine: Engine) -> Callable[[Iterable[LogEntry]], None]:
    """Writes entries to the log and, in the same transaction, to the live read models."""

    def write(entries: Iterable[LogEntry]) -> None:
        with engine.begin() as connection:
            append(connection, entries)

    return write


def write_all(engine: Engine, log: Sequence[LogEntry]) -> None:
    """Write entries to the log and to all live read models, those of installed projections included."""
    with engine.begin() as connection:
        prepare(connection, installed())
        append(connection, log, project=False)
        LiveProjector(installed()).apply(connection, log)
