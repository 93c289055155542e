"""One Spark session for the whole run, and databases with a log in them."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from sqlalchemy import Engine

from rioni.domain.ports.event_log import LogEntry
from rioni.projections.bulk import spark_session
from rioni.projections.generations.engine import open_engine
from tests.support.log import append, create_tables


@pytest.fixture(scope="session")
def spark(tmp_path_factory) -> Iterator[SparkSession]:
    with spark_session(tmp_path_factory.mktemp("spark")) as session:
        yield session


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
