import pytest

from tests.support.broker import empty_registry, running_broker


@pytest.fixture
def broker(tmp_path):
    with running_broker(tmp_path / "data") as broker:
        yield broker


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def registry_url(request, tmp_path):
    """The URL of an empty registry, in SQLite and in PostgreSQL."""
    if request.param == "postgres":
        return request.getfixturevalue("postgres_url")(migrated=True)
    (tmp_path / "registry.db").write_bytes(empty_registry())
    return f"sqlite:///{tmp_path / 'registry.db'}"
