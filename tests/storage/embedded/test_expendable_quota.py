from collections.abc import Iterator

import pytest

from rioni.storage.embedded.expendable import EmbeddedConnectionQuota
from tests.contracts.slots import ConnectionQuotaContract


class TestEmbeddedConnectionQuota(ConnectionQuotaContract):
    @pytest.fixture
    def alive(self) -> set[str]:
        return {"this", "other"}

    @pytest.fixture
    def slots(self, tmp_path, alive) -> Iterator[EmbeddedConnectionQuota]:
        slots = EmbeddedConnectionQuota(tmp_path / "slots.db", worker="this", is_alive=alive.__contains__)
        yield slots
        slots.close()

    @pytest.fixture
    def other(self, tmp_path, alive) -> Iterator[EmbeddedConnectionQuota]:
        slots = EmbeddedConnectionQuota(tmp_path / "slots.db", worker="other", is_alive=alive.__contains__)
        yield slots
        slots.close()

    def test_slots_of_a_dead_process_are_free(self, slots, other, alive):
        """Reference operations#slot-release."""
        assert other.acquire("one", {"a": 1}) == []
        assert slots.acquire("two", {"a": 1}) == ["a"]
        alive.remove("other")
        assert slots.acquire("three", {"a": 1}) == []

    def test_a_new_process_releases_the_slots_of_dead_ones(self, slots, other, alive, tmp_path):
        other.acquire("one", {"a": 1, "b": 1})
        alive.remove("other")
        EmbeddedConnectionQuota(tmp_path / "slots.db", worker="third", is_alive=alive.__contains__).close()
        assert slots._database.fetch("SELECT * FROM taken") == []
