"""Topics that are not needed any more are deleted in the end, with their events, despite failures."""

import contextlib

import pytest

from rioni.commands.event_types import CreateEventType, DeleteEventType
from rioni.commands.maintenance import RECORDED_AT_ONCE, REFUSALS_MAX
from rioni.commands.system.storages import CreateStorage, DeleteStorage, SwitchFeature
from rioni.commands.timelines.timelines import AbortSwitch, CleanUpTimeline, Repartition, StartSwitch
from rioni.domain.errors import Unavailable
from rioni.domain.system.storages import StorageEntry
from tests.support.broker import RETENTION_INTERVAL_S
from tests.support.builders import LATER_MS, event_type_spec


NAME = "order.created"
OTHER = StorageEntry(id="other", storage_type="embedded", default=False)


@pytest.fixture(autouse=True)
def event_type(broker):
    broker.do(CreateStorage(storage=OTHER))
    return broker.do(CreateEventType(spec=event_type_spec()))


@pytest.fixture
def unreachable(monkeypatch):
    """Lets a store fail on some calls, or work again."""

    def refuse(*_args):
        raise Unavailable("out of reach")

    def unreachable(store, *calls, until=None):
        for call in calls:
            if until is None:
                monkeypatch.setattr(store, call, refuse)
            else:
                monkeypatch.delattr(store, call)

    return unreachable


@pytest.fixture
def a_minute_passes(broker):
    background_jobs = broker.background_jobs()

    def pass_():
        broker.clock.advance(1_000 * RETENTION_INTERVAL_S)
        background_jobs.tick()

    return pass_


def timelines(broker):
    broker.registry.refresh()
    return broker.registry.timelines(NAME)


def switch(broker, storage_id):
    broker.timeline_switcher.switch(StartSwitch(event_type=NAME, storage_id=storage_id), broker.context())


def is_there(broker, storage_id, topic):
    return topic in broker.stores.of(storage_id).topics()


def delete(broker):
    broker.do(DeleteEventType(name=NAME))


def clean_up(broker):
    switch(broker, "other")
    broker.do(CleanUpTimeline(event_type=NAME, order=1, now_ms=LATER_MS))


@pytest.mark.parametrize("let_go", [delete, clean_up])
def test_a_topic_that_could_not_be_deleted_at_once_is_deleted_later_with_its_events(
    broker, unreachable, a_minute_passes, let_go
):
    """Reference timelines#topic-deletion."""
    topic = timelines(broker).active.topic
    broker.store.append(topic, {0: [b"{}"]})
    unreachable(broker.store, "delete_topic")
    let_go(broker)
    a_minute_passes()
    assert is_there(broker, "default", topic)
    unreachable(broker.store, "delete_topic", until="now")
    a_minute_passes()
    assert not is_there(broker, "default", topic)
    assert broker.topics()[-1] == "topic.deleted"
    head = broker.log.head()
    a_minute_passes()
    assert broker.log.head() == head


def test_a_switch_to_a_storage_that_fails_blocks_no_other_operation(broker, unreachable, a_minute_passes):
    other = broker.stores.of("other")
    make = other.create_topic

    def make_and_fail(*args):
        make(*args)
        unreachable(other, "delete_topic")
        raise Unavailable("no answer")

    other.create_topic = make_and_fail
    with pytest.raises(Unavailable, match="no answer"):
        switch(broker, "other")
    (left,) = other.topics()
    assert timelines(broker).switch is None
    broker.do(Repartition(event_type=NAME, partition_count=2))
    switch(broker, "default")
    broker.store.append(timelines(broker).active.topic, {1: [b"{}"]})
    unreachable(other, "delete_topic", until="now")
    a_minute_passes()
    assert not is_there(broker, "other", left)


def test_a_switch_of_a_dead_process_is_undone_though_its_storage_is_unreachable(broker, unreachable):
    following = broker.start_switch(NAME, "other")
    other = broker.stores.of("other")
    other.create_topic(following.topic, 1)
    unreachable(other, "delete_topic", "bounds")
    broker.timeline_switcher.repair(broker.context)  # no process runs the switch any more
    assert timelines(broker).switch is None
    switch(broker, "default")


def test_a_topic_is_deleted_when_its_storage_is_back(broker, unreachable, a_minute_passes):
    switch(broker, "other")
    topic, other = timelines(broker).active.topic, broker.stores.of("other")
    unreachable(other, "delete_topic")
    delete(broker)
    broker.do(DeleteStorage(storage_id="other"))
    a_minute_passes()
    broker.registry.refresh()
    assert [each.topic for each in broker.registry.abandoned_topics()] == [topic]
    unreachable(other, "delete_topic", until="now")
    broker.do(CreateStorage(storage=OTHER))
    a_minute_passes()
    assert not is_there(broker, "other", topic)
    broker.registry.refresh()
    assert broker.registry.abandoned_topics() == []


def test_nothing_is_deleted_while_writing_is_switched_off(broker, unreachable, a_minute_passes):
    topic = timelines(broker).active.topic
    unreachable(broker.store, "delete_topic")
    delete(broker)
    unreachable(broker.store, "delete_topic", until="now")
    broker.do(SwitchFeature(feature="disable_db_write_operations", enabled=True))
    head = broker.log.head()
    a_minute_passes()
    assert (is_there(broker, "default", topic), broker.log.head()) == (True, head)


def test_a_topic_created_after_its_deletion_is_deleted_again(broker, a_minute_passes):
    following = broker.start_switch(NAME, "other")
    delete(broker)
    a_minute_passes()
    broker.stores.of("other").create_topic(following.topic, 1)
    broker.do(AbortSwitch(event_type=NAME, timeline=following, reason="the event type is gone"))
    a_minute_passes()
    assert not is_there(broker, "other", following.topic)
    broker.registry.refresh()
    assert broker.registry.abandoned_topics() == []


def test_a_storage_that_does_not_answer_costs_the_same_for_any_number_of_topics(broker, monkeypatch):
    names = [f"a{number}" for number in range(3 * REFUSALS_MAX)]
    for name in names:
        broker.do(CreateEventType(spec=event_type_spec(name=name)))
    asked, cleaner = [], broker.background_jobs()._orphan_cleaner

    def refuse(topic):
        asked.append(topic)
        raise Unavailable("no answer")

    with monkeypatch.context() as hanging:
        hanging.setattr(broker.store, "delete_topic", refuse)
        for name in names:
            broker.do(DeleteEventType(name=name))
        asked.clear()
        for _ in range(3):
            cleaner.delete_abandoned(broker.context())
        assert len(asked) == len(set(asked)) == len(names), "each of them has its turn"
    cleaner.delete_abandoned(broker.context())
    broker.registry.refresh()
    assert broker.registry.abandoned_topics() == []


def test_deletions_of_many_topics_are_recorded_in_several_transactions(broker, monkeypatch):
    names, recorded, transaction = (
        [f"a{number}" for number in range(2 * RECORDED_AT_ONCE + 1)],
        [],
        broker.log.transaction,
    )
    for name in names:
        broker.do(CreateEventType(spec=event_type_spec(name=name), is_schema_checked=True))
        broker.do(DeleteEventType(name=name))

    @contextlib.contextmanager
    def watched():
        with transaction() as each:
            before = each.head.position
            yield each
            recorded.append(each.head.position - before)

    monkeypatch.setattr(broker.log, "transaction", watched)
    broker.background_jobs()._orphan_cleaner.delete_abandoned(broker.context())
    assert recorded == [RECORDED_AT_ONCE, RECORDED_AT_ONCE, 1]
    broker.registry.refresh()
    assert broker.registry.abandoned_topics() == []
