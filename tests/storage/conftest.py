from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from rioni.storage.sql.engines import create_engine
from tests.support.broker import empty_registry


ON_BOTH = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]


@pytest.fixture(params=ON_BOTH)
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'registry.db'}"
    return str(request.getfixturevalue("postgres_url")())


@pytest.fixture(params=ON_BOTH)
def migrated_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database with the current schema and an empty log."""
    if request.param == "sqlite":
        return migrated_file(tmp_path / "registry.db")
    return str(request.getfixturevalue("postgres_url")(migrated=True))


@pytest.fixture
def engine(migrated_url: str) -> Iterator[Engine]:
    yield from opened(migrated_url)


@pytest.fixture
def sqlite_engine(tmp_path: Path) -> Iterator[Engine]:
    yield from opened(migrated_file(tmp_path / "registry.db"))


@pytest.fixture
def postgres_engine(postgres_url: Callable[..., str]) -> Iterator[Engine]:
    yield from opened(postgres_url(migrated=True))


def migrated_file(path: Path) -> str:
    if not path.exists():
        path.write_bytes(empty_registry())
    return f"sqlite:///{path}"


def opened(url: str) -> Iterator[Engine]:
    engine = create_engine(url)
    yield engine
    engine.dispose()
