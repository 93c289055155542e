"""The contract of the port `ConnectionQuota`."""

import pytest

from rioni.domain.ports.host import ConnectionQuota


class ConnectionQuotaContract:
    @pytest.fixture
    def slots(self) -> ConnectionQuota:
        raise NotImplementedError

    @pytest.fixture
    def other(self) -> ConnectionQuota:
        """The quota of another process."""
        raise NotImplementedError

    def test_the_limit_is_counted_over_all_processes(self, slots: ConnectionQuota, other: ConnectionQuota):
        assert slots.acquire("one", {"a": 2}) == []
        assert other.acquire("two", {"a": 2}) == []
        assert slots.acquire("three", {"a": 2}) == ["a"]
        assert other.acquire("four", {"a": 2}) == ["a"]
        assert other.acquire("five", {"a": 3}) == []

    def test_acquiring_takes_all_or_none_and_names_all_exhausted_keys(self, slots: ConnectionQuota):
        slots.acquire("one", {"a": 1, "b": 1})
        assert slots.acquire("two", {"a": 1, "b": 1, "c": 1}) == ["a", "b"]
        assert slots.acquire("three", {"c": 1}) == []

    def test_a_released_slot_is_free_for_all_processes(self, slots: ConnectionQuota, other: ConnectionQuota):
        slots.acquire("one", {"a": 1, "b": 1})
        slots.release("one")
        slots.release("one")
        assert other.acquire("two", {"a": 1, "b": 1}) == []
        other.release("unknown")
        assert other.acquire("three", {"b": 1}) == ["b"]
