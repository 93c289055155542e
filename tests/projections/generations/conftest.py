"""A database with a log, live read models, and generations that are folded without Spark."""

from collections.abc import Callable, Collection, Iterable, Iterator

import pytest
from sqlalchemy import Engine

from rioni.domain.hash_chain import GENESIS, LogHead
from rioni.domain.ports.event_log import LogEntry
from rioni.projections.generations.generation import Generation, catch_up, create, finish_load, record
from rioni.projections.tables import READ_MODELS
from rioni.sql.engines import open_engine, writing
from tests.support.log import append


@pytest.fixture
def engine(registry_url: str) -> Iterator[Engine]:
    engine = open_engine(registry_url)
    yield engine
    engine.dispose()


@pytest.fixture
def write(engine: Engine) -> Callable[[Iterable[LogEntry]], None]:
    """Appends to the log and to the live read models."""

    def write(entries: Iterable[LogEntry]) -> None:
        with writing(engine) as connection:
            append(connection, entries)

    return write


@pytest.fixture
def build(engine: Engine) -> Callable[..., Generation]:
    """Builds a generation from the log."""

    def build(name: str, tables: Collection[str] = tuple(READ_MODELS.tables)) -> Generation:
        generation = Generation(name, tables)
        create(engine, generation)
        finish_load(engine, generation, 0)
        with writing(engine) as connection:
            record(connection, generation, "2026-11-20T10:00:00.000Z", LogHead(0, GENESIS))
        catch_up(engine, generation)
        return generation

    return build
