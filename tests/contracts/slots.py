"""What every adapter of the port `ConnectionQuota` does."""

import pytest

from rioni.domain.ports.quota import ConnectionQuota


class SlotsContract:
    @pytest.fixture
    def slots(self) -> ConnectionQuota:
        raise NotImplementedError

    @pytest.fixture
    def other(self) -> ConnectionQuota:
        """The same, of another process."""
        raise NotImplementedError

    def test_there_are_as_many_as_are_said_over_all_processes(self, slots: ConnectionQuota, other: ConnectionQuota):
        assert slots.acquire("one", {"a": 2}) == []
        assert other.acquire("two", {"a": 2}) == []
        assert slots.acquire("three", {"a": 2}) == ["a"]
        assert other.acquire("four", {"a": 2}) == ["a"]
        assert other.acquire("five", {"a": 3}) == []

    def test_where_one_is_missing_none_is_taken_and_all_that_miss_are_named(self, slots: ConnectionQuota):
        slots.acquire("one", {"a": 1, "b": 1})
        assert slots.acquire("two", {"a": 1, "b": 1, "c": 1}) == ["a", "b"]
        assert slots.acquire("three", {"c": 1}) == []

    def test_what_is_given_back_is_free_for_all(self, slots: ConnectionQuota, other: ConnectionQuota):
        slots.acquire("one", {"a": 1, "b": 1})
        slots.release("one")
        slots.release("one")
        assert other.acquire("two", {"a": 1, "b": 1}) == []
        other.release("unknown")
        assert other.acquire("three", {"b": 1}) == ["b"]
