import contextlib
from collections.abc import Iterator

import pytest

from rioni.commands.system import client_activity
from rioni.commands.system.client_activity import ActivityTracker
from rioni.domain.errors import Unavailable
from rioni.domain.ports.host import direct
from rioni.domain.system.client_activity import DAY_MS, RETENTION_MS, LastActivity
from rioni.storage.embedded.expendable import EmbeddedActivity
from tests.support.clock import ManualClock


START_MS = 1_700_000_000_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(now_ms=START_MS)


@pytest.fixture
def activity(tmp_path) -> Iterator[EmbeddedActivity]:
    with contextlib.closing(EmbeddedActivity(tmp_path / "activity.db")) as activity:
        yield activity


@pytest.fixture
def process(activity, clock) -> ActivityTracker:
    return ActivityTracker(activity, clock, direct)


def test_a_process_knows_the_activity_of_its_own_clients_at_once(process, clock):
    process.record("publish", "order", "alice", 3)
    clock.advance(10)
    process.record("publish", "order", "alice", 4)
    assert process.of("publish", "order") == {"alice": LastActivity(START_MS, START_MS + 10, 7)}


def test_other_processes_know_the_activity_after_the_next_tick(process, activity, clock):
    """Reference operations#activity-records."""
    other = ActivityTracker(activity, clock, direct)
    process.tick()
    process.record("publish", "order", "alice", 3)
    process.tick()
    assert other.of("publish", "order") == {}
    clock.advance(int(client_activity.WRITE_EVERY_S * 1_000))
    process.tick()
    assert other.of("publish", "order") == {"alice": LastActivity(START_MS, START_MS, 3)}


def test_repeated_queries_count_nothing_twice(process, clock):
    process.record("publish", "order", "alice", 1)
    for _ in range(3):
        clock.advance(5_000)
        process.tick()
        assert process.of("publish", "order")["alice"].amount == 1


def test_resources_are_active_for_days_and_this_is_remembered_for_a_moment(process, activity, clock):
    """Reference event-types#unused."""
    other = ActivityTracker(activity, clock, direct)
    process.record("publish", "order", "alice")
    assert set(process.active_within(1)) == {"order"}
    process.record("stream", "subscription", "alice")
    assert set(process.active_within(1)) == {"order"}
    clock.advance(int(client_activity.ACTIVE_HOLDS_S * 1_000))
    process.tick()
    assert set(process.active_within(1)) == set(other.active_within(1)) == {"order", "subscription"}
    clock.advance(DAY_MS)
    assert set(process.active_within(2)) == {"order", "subscription"}
    assert set(process.active_within(1)) == set()


def test_activity_that_could_not_be_written_is_written_later(tmp_path, clock):
    class Failing(EmbeddedActivity):
        works = False

        def add(self, sightings):
            if not self.works:
                raise Unavailable("the disk is full")
            super().add(sightings)

    with contextlib.closing(Failing(tmp_path / "failing.db")) as failing:
        process = ActivityTracker(failing, clock, direct)
        process.record("publish", "order", "alice", 1)
        process.tick()
        with pytest.raises(Unavailable):
            process.of("publish", "order")
        process.close()
        process.record("publish", "order", "alice", 1)
        failing.works = True
        assert process.of("publish", "order")["alice"].amount == 2


def test_what_is_pending_is_written_at_the_end(process, activity, clock):
    process.record("end:reset", "subscription", "alice", 1)
    process.close()
    ((key, seen),) = ActivityTracker(activity, clock, direct).of_any(["end:reset"], "subscription").items()
    assert (key.client, seen.amount) == ("alice", 1)


def test_inactive_clients_are_removed(process, clock):
    """Reference operations#activity-records."""
    process.record("publish", "order", "alice")
    process.tick()
    clock.advance(RETENTION_MS)
    process.record("publish", "order", "bob")
    process.tick()
    assert list(process.of("publish", "order")) == ["alice", "bob"]
    clock.advance(int(client_activity.FORGET_EVERY_S * 1_000))
    process.tick()
    assert list(process.of("publish", "order")) == ["bob"]


def test_activity_beyond_the_limit_is_dropped(process):
    for number in range(client_activity.PENDING_MAX + 5):
        process.record("publish", "order", f"client-{number:06}")
    assert len(process.of("publish", "order")) == client_activity.PENDING_MAX
