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
        assert slots.take("one", {"a": 2}) == []
        assert other.take("two", {"a": 2}) == []
        assert slots.take("three", {"a": 2}) == ["a"]
        assert other.take("four", {"a": 2}) == ["a"]
        assert other.take("five", {"a": 3}) == []

    def test_where_one_is_missing_none_is_taken_and_all_that_miss_are_named(self, slots: ConnectionQuota):
        slots.take("one", {"a": 1, "b": 1})
        assert slots.take("two", {"a": 1, "b": 1, "c": 1}) == ["a", "b"]
        assert slots.take("three", {"c": 1}) == []

    def test_what_is_given_back_is_free_for_all(self, slots: ConnectionQuota, other: ConnectionQuota):
        slots.take("one", {"a": 1, "b": 1})
        slots.give_back("one")
        slots.give_back("one")
        assert other.take("two", {"a": 1, "b": 1}) == []
        other.give_back("unknown")
        assert other.take("three", {"b": 1}) == ["b"]
