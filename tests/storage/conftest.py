from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from rioni.storage.sql.engines import create_engine
from rioni.storage.sql.migration import upgrade


ON_BOTH = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]


@pytest.fixture(params=ON_BOTH)
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'registry.db'}"
    return str(request.getfixturevalue("postgres_url")())


@pytest.fixture
def engine(empty_url: str) -> Iterator[Engine]:
    """A database with the current schema and an empty log."""
    yield from migrated(empty_url)


@pytest.fixture
def sqlite_engine(tmp_path: Path) -> Iterator[Engine]:
    yield from migrated(f"sqlite:///{tmp_path / 'registry.db'}")


@pytest.fixture
def postgres_engine(postgres_url) -> Iterator[Engine]:
    yield from migrated(postgres_url())


def migrated(url: str) -> Iterator[Engine]:
    engine = create_engine(url)
    upgrade(engine)
    yield engine
    engine.dispose()
