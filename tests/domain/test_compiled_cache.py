import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.domain.compiled_cache import CompiledCache
from rioni.domain.subscriptions import event_filter as filters
from rioni.domain.subscriptions.event_filter import EventFilter, event_filter


BYTES_MAX = 100


def filled(*sizes):
    cache = CompiledCache(BYTES_MAX)
    for number, size in enumerate(sizes):
        cache.put(number, f"value {number}", size)
    return cache


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 150))))
def test_values_never_take_more_than_the_bound_unless_there_is_only_one(steps):
    cache = CompiledCache(BYTES_MAX)
    for key, size in steps:
        cache.put(key, key, size)
        assert cache.get(key) == key
        assert cache.bytes_kept <= BYTES_MAX or len(cache) == 1


def test_what_was_used_longest_ago_is_dropped_first():
    cache = filled(40, 40)
    assert cache.get(0) == "value 0"
    cache.put(2, "value 2", 40)
    assert [cache.get(number) for number in range(3)] == ["value 0", None, "value 2"]


def test_a_value_that_is_put_again_counts_once():
    cache = filled(60)
    cache.put(0, "anew", 70)
    assert (cache.get(0), cache.bytes_kept) == ("anew", 70)


def test_what_is_dropped_is_not_counted():
    cache = filled(60, 40)
    cache.drop(0)
    cache.drop("never there")
    assert (cache.get(0), len(cache), cache.bytes_kept) == (None, 1, 40)


@pytest.fixture
def small_cache(monkeypatch):
    cache = CompiledCache(1)
    monkeypatch.setattr(filters, "_kept", cache)
    return cache


def test_filters_that_nobody_uses_are_dropped_when_there_are_too_many(small_cache):
    for number in range(20):
        event_filter(f"event.number == {number}")
    assert len(small_cache) == 1


def test_a_filter_that_a_stream_uses_is_not_compiled_again_for_others(small_cache):
    used = event_filter("event.number == -1")
    event_filter("event.number == -2")
    assert small_cache.get("event.number == -1") is None
    assert event_filter("event.number == -1") is used


def test_longer_filters_count_for_more():
    """Their patterns are compiled when they run, and take no memory in between."""
    short, long = EventFilter("event.a.matches('a')"), EventFilter("event.a.matches('(a{1,20}){1,10}x')")
    assert long.bytes_ - short.bytes_ == filters.FILTER_BYTES_PER_CHARACTER * (len(long.source) - len(short.source)) > 0
