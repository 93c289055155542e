import contextlib
from uuid import uuid4

import pytest
import structlog.testing

from rioni.commands.event_types import CreateEventType
from rioni.commands.maintenance import CLEAN_EVERY_S
from rioni.commands.subscriptions.subscriptions import CreateSubscription
from rioni.commands.system.storages import CreateStorage, SwitchFeature
from rioni.commands.timelines.timelines import FindOrphanedTopics, StartSwitch
from rioni.domain.access.authorization import Subject
from rioni.domain.errors import AdminOnly
from rioni.domain.system.storages import DEFAULT_STORAGE, StorageEntry
from rioni.domain.timelines.position import EventTypePartition, format_offset
from tests.support.builders import event_type_spec, subscription_spec
from tests.support.memory import MemoryEventStore, SingleStore


NAME = "order.created"
ORPHANED = "orphaned"


@pytest.fixture
def an_hour_passes(broker):
    """Lets an hour pass for background jobs that have just started."""
    background_jobs = broker.background_jobs()

    def pass_():
        broker.clock.advance(int(CLEAN_EVERY_S * 1_000))
        background_jobs.tick()

    return pass_


@pytest.fixture(params=[DEFAULT_STORAGE, "second"])
def store(request, broker):
    if request.param != DEFAULT_STORAGE:
        broker.do(CreateStorage(storage=StorageEntry(id=request.param, storage_type="embedded", default=False)))
    return broker.stores.of(request.param)


def test_a_topic_without_a_timeline_is_deleted_when_found_for_the_second_time(store, an_hour_passes):
    """Reference timelines#topic-deletion, operations#background-jobs."""
    store.create_topic(ORPHANED, 2)
    an_hour_passes()
    assert ORPHANED in store.topics()
    an_hour_passes()
    assert ORPHANED not in store.topics()


@pytest.mark.parametrize("away", [DEFAULT_STORAGE, "second"])
def test_a_storage_that_can_not_be_opened_is_named_and_the_others_are_cleaned_up(broker, away):
    broker.do(CreateStorage(storage=StorageEntry(id="second", storage_type="embedded", default=False)))
    for storage_id in (DEFAULT_STORAGE, "second"):
        broker.stores.of(storage_id).create_topic(ORPHANED, 1)
    usable = broker.stores_without(away)
    background_jobs = broker.background_jobs(usable)
    with contextlib.closing(usable), structlog.testing.capture_logs() as lines:
        for _ in range(3):
            broker.clock.advance(int(CLEAN_EVERY_S * 1_000))
            background_jobs.tick()
    left = {storage_id for storage_id in (DEFAULT_STORAGE, "second") if broker.stores.of(storage_id).topics()}
    assert left == {away}
    (reason,) = [line["reason"] for line in lines if line.get("job") == "deleting orphaned topics"]
    assert reason.startswith(f"storage {away}: ")


def test_orphans_are_deleted_in_read_only_mode_too(broker, an_hour_passes):
    broker.store.create_topic(ORPHANED, 1)
    broker.do(SwitchFeature(feature="disable_db_write_operations", enabled=True))
    for _ in range(2):
        an_hour_passes()
    assert ORPHANED not in broker.store.topics()


def test_a_topic_with_events_is_kept_even_if_all_of_them_are_too_old(broker, an_hour_passes):
    for topic in ("filled", "expired"):
        broker.store.create_topic(topic, 2)
        broker.store.append(topic, {1: [b"{}"]})
    broker.store.delete_before("expired", broker.clock.now_ms() + 1)
    for _ in range(3):
        an_hour_passes()
    assert {"filled", "expired"} <= set(broker.store.topics())


def test_topics_of_all_timelines_are_kept_including_closed_and_next_ones(broker, an_hour_passes):
    broker.do(CreateEventType(spec=event_type_spec()))
    broker.timeline_switcher.switch(StartSwitch(event_type=NAME, storage_id=DEFAULT_STORAGE), broker.context())
    following = broker.start_switch(NAME)
    # The switch belongs to another process, which is alive: nothing is repaired.
    broker.bus._running.add(following.topic)
    broker.store.create_topic(following.topic, following.partitions)
    before = set(broker.store.topics())
    assert len(before) == 3
    for _ in range(3):
        an_hour_passes()
    assert broker.store.topics() == before


def test_a_topic_whose_timeline_was_recorded_meanwhile_is_kept(broker):
    broker.do(CreateEventType(spec=event_type_spec()))
    topics = broker.store.topics()
    assert len(topics) == 1
    assert broker.do(FindOrphanedTopics(storage_id=DEFAULT_STORAGE, topics=topics)) == []


def test_deleting_a_topic_that_is_already_deleted_is_no_error(broker):
    broker.store.create_topic(ORPHANED, 1)
    head, cleaner = broker.log.head(), broker.background_jobs()._orphan_cleaner
    assert [cleaner._delete_empty(DEFAULT_STORAGE, ORPHANED) for _ in range(2)] == [True, False]
    assert broker.log.head() == head


def test_only_administrators_may_search_for_orphaned_topics(broker):
    with pytest.raises(AdminOnly):
        broker.do(FindOrphanedTopics(storage_id=DEFAULT_STORAGE, topics=[]), Subject(name="mallory"))


def test_the_topic_of_an_event_type_being_created_is_kept(broker, an_hour_passes):
    creation = broker.start_creation(event_type_spec())
    broker.bus._running.add(creation.topic)
    broker.store.create_topic(creation.topic, 1)
    for _ in range(3):
        an_hour_passes()
    assert broker.store.topics() == {creation.topic}
    assert broker.do(FindOrphanedTopics(storage_id=DEFAULT_STORAGE, topics=[creation.topic])) == []


def test_a_store_that_cannot_tell_its_topics_from_foreign_ones_is_not_cleaned_up(broker):
    shared = MemoryEventStore(broker.clock)
    shared.create_topic("foreign", 1)
    background_jobs = broker.background_jobs(SingleStore(shared))
    for _ in range(3):
        broker.clock.advance(int(CLEAN_EVERY_S * 1_000))
        background_jobs.tick()
    assert len(shared.bounds("foreign")) == 1


def test_cursors_of_a_deleted_subscription_are_deleted_when_found_for_the_second_time(broker, an_hour_passes):
    broker.do(CreateEventType(spec=event_type_spec()))
    gone, read, kept = str(uuid4()), str(uuid4()), broker.do(CreateSubscription(spec=subscription_spec()))[0].id
    for subscription in (gone, read, kept):
        broker.coordinator.initialise(subscription, {EventTypePartition(NAME, "0"): format_offset(1, 7)})
    broker.coordinator.join(read, "stale-session")
    an_hour_passes()
    assert {*broker.coordinator.initialised()} == {gone, read, kept}
    an_hour_passes()
    assert {*broker.coordinator.initialised()} == {read, kept}
