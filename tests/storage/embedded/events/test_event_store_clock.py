"""Events stored while the clock was wrong neither keep other events from expiring nor let them expire too early."""

import pytest

from tests.contracts.event_store import TOPIC, events


DAY_MS = 86_400_000
JUMP_MS = 3_650 * DAY_MS


def bounds(store):
    return tuple(store.bounds(TOPIC)[0])


def append(store, clock, count):
    for _ in range(count):
        store.append(TOPIC, {0: events(1)})
        clock.advance(1_000)


@pytest.mark.parametrize("before", [0, 1, 50])
@pytest.mark.parametrize("wrong", [1, 3, 40])
@pytest.mark.parametrize("after", [1, 100])
def test_an_append_ten_years_ahead_does_not_end_retention(store, clock, before, wrong, after):
    store.create_topic(TOPIC, 1)
    append(store, clock, before)
    clock.advance(JUMP_MS)
    append(store, clock, wrong)
    clock.advance(-JUMP_MS)
    append(store, clock, after)
    assert store.delete_before(TOPIC, clock.now_ms() - DAY_MS) == 0
    clock.advance(30 * DAY_MS)
    append(store, clock, 2)
    assert store.delete_before(TOPIC, clock.now_ms() - DAY_MS) == before + wrong + after
    assert bounds(store) == (before + wrong + after, before + wrong + after + 1)


@pytest.mark.parametrize("before", [1, 3, 50])
@pytest.mark.parametrize("wrong", [1, 3, 40])
def test_an_append_ten_years_back_lets_nothing_expire_too_early(store, clock, before, wrong):
    store.create_topic(TOPIC, 1)
    append(store, clock, before)
    clock.advance(-JUMP_MS)
    append(store, clock, wrong)
    assert store.delete_before(TOPIC, clock.now_ms() - DAY_MS) == 0
    clock.advance(JUMP_MS)
    append(store, clock, 5)
    assert store.delete_before(TOPIC, clock.now_ms() - DAY_MS) == 0
    clock.advance(2 * DAY_MS)
    assert store.delete_before(TOPIC, clock.now_ms() - DAY_MS) == before + wrong + 5


def test_retention_works_after_several_clock_jumps(store, clock):
    store.create_topic(TOPIC, 1)
    for jump_ms in (JUMP_MS, -JUMP_MS, 3 * JUMP_MS):
        append(store, clock, 10)
        clock.advance(jump_ms)
        append(store, clock, 10)
        clock.advance(-jump_ms)
    append(store, clock, 10)
    assert store.delete_before(TOPIC, clock.now_ms() - DAY_MS) == 0
    clock.advance(30 * DAY_MS)
    assert store.delete_before(TOPIC, clock.now_ms() - DAY_MS) == 70
