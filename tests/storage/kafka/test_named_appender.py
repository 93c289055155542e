from collections.abc import Callable
from pathlib import Path

import pytest

from rioni.storage.migration import upgrade
from rioni.storage.sql import create_engine
from tests.contracts.stored_once import StoredOnceContract


pytestmark = pytest.mark.kafka


class TestKafkaStoredOnce(StoredOnceContract):
    @pytest.fixture(params=["sqlite", "postgresql"])
    def database(self, request: pytest.FixtureRequest, tmp_path: Path, postgres_url: Callable[[], str]) -> str:
        if request.param == "sqlite":
            return f"sqlite:///{tmp_path / 'names.db'}"
        engine = create_engine(url := postgres_url())
        upgrade(engine)
        engine.dispose()
        return url
