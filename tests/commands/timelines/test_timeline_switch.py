import contextlib
import json

import msgspec
import pytest
import structlog

from rioni.commands.event_types import ChangeEventType, CreateEventType, DeleteEventType
from rioni.commands.publisher import PublishEvents
from rioni.commands.system.storages import CreateStorage, DeleteStorage, SwitchFeature
from rioni.commands.timelines.timeline_switch import RETRY_S, TimelineSwitcher
from rioni.commands.timelines.timelines import AbortSwitch, CloseTimeline, StartSwitch
from rioni.domain.access.authorization import BROKER, Subject
from rioni.domain.errors import (
    AccessDenied,
    Conflict,
    EventTypeNotFound,
    InUse,
    Invalid,
    InvalidFields,
    NotFound,
    TopicClosed,
    Unavailable,
)
from rioni.domain.event_types.event_type import Options
from rioni.domain.system.storages import StorageEntry
from rioni.domain.timelines.position import Bounds, TimelinePosition
from rioni.domain.timestamps import milliseconds, rfc3339
from rioni.projections.queries.timeline_reader import read_after, recorded_at_ms_after
from tests.support.builders import as_spec, event_type_spec


NAME = "order.created"
METADATA = {"eid": "0d1b6f0e-3c52-4d8c-9b50-0f2b7f6d2a11", "occurred_at": "2026-11-20T10:00:00Z"}


@pytest.fixture(autouse=True)
def event_type(broker):
    return broker.do(CreateEventType(spec=event_type_spec()))


def start(storage_id="default", name=NAME):
    return StartSwitch(event_type=name, storage_id=storage_id)


def switch(broker, storage_id="default", subject=BROKER):
    broker.timeline_switcher.switch(start(storage_id), broker.context(subject))


def timelines(broker):
    broker.registry.refresh()
    return broker.registry.timelines(NAME)


def repair(broker):
    broker.registry.refresh()
    broker.timeline_switcher.repair(broker.context)


def publish(broker):
    body = json.dumps([{"order_id": "1", "metadata": METADATA}]).encode()
    return broker.publisher.publish(PublishEvents(event_type=NAME, body=body, flow_id=""), BROKER)


def test_events_go_to_the_new_timeline_and_the_old_one_records_its_end(broker):
    """Reference timelines#timeline-creation, timelines#switch-steps."""
    publish(broker)
    publish(broker)
    before = broker.log.head().position
    switch(broker)
    publish(broker)
    old, new = timelines(broker).timelines
    assert (old.latest_position, new.latest_position, new.order) == ((1,), None, 2)
    assert broker.store.bounds(old.topic) == [Bounds(0, 1)]
    assert broker.store.bounds(new.topic) == [Bounds(0, 0)]
    assert broker.topics(before) == ["timeline.switch-started", "timeline.close-started", "timeline.switched"]


def test_a_timeline_may_be_in_another_storage(broker):
    broker.do(CreateStorage(storage=StorageEntry(id="a", storage_type="embedded", default=False)))
    publish(broker)
    switch(broker, "a")
    publish(broker)
    new = timelines(broker).active
    assert new.storage_id == "a"
    assert broker.stores.of("a").bounds(new.topic) == [Bounds(0, 0)]
    with pytest.raises(NotFound):
        broker.store.bounds(new.topic)


@pytest.mark.parametrize(
    ("command", "error", "detail"),
    [
        (start("nope"), Invalid, "No storage with id: nope"),
        (start(None), InvalidFields, "storage_id"),
        (start(name="nope"), EventTypeNotFound, 'EventType "nope" does not exist'),
    ],
)
def test_a_rejected_switch_changes_nothing(broker, command, error, detail):
    """Reference timelines#creation-errors."""
    head = broker.log.head()
    with pytest.raises(error, match=detail):
        broker.timeline_switcher.switch(command, broker.context())
    assert broker.log.head() == head


def test_compacted_event_types_keep_their_timeline(broker):
    broker.do(CreateEventType(spec=event_type_spec(name="compacted", cleanup_policy="compact")))
    with pytest.raises(Invalid, match="It is not possible to create a timeline for event type with 'compact'"):
        broker.timeline_switcher.switch(start(name="compacted"), broker.context())


def test_only_administrators_switch_timelines(broker):
    """Reference timelines#creation-errors, authorization#broker-rights."""
    with pytest.raises(AccessDenied, match=f"Access on ADMIN event-type:{NAME} denied"):
        switch(broker, subject=Subject(name="bob"))


def test_an_unusable_storage_is_rejected_before_anything_is_changed(broker):
    broker.do(CreateStorage(storage=StorageEntry(id="k", storage_type="kafka", default=False)))
    head = broker.log.head()
    with pytest.raises(Unavailable, match="kafka_configuration"):
        switch(broker, "k")
    assert broker.log.head() == head
    assert publish(broker).events == 1


def test_only_one_switch_at_a_time(broker):
    """Reference timelines#creation-errors."""
    broker.start_switch(NAME)
    with pytest.raises(Conflict, match=f"Timeline is already being created for: {NAME}"):
        switch(broker)


def test_publishers_wait_for_the_end_of_a_switch_with_a_timeout(broker):
    """Reference publishing#storing, timelines#publishers."""
    broker.start_switch(NAME)
    assert publish(broker).events == 1, "nothing is closed yet"
    broker.store.close_topic(timelines(broker).active.topic)
    with pytest.raises(Unavailable, match=f"Event type {NAME} is currently in maintenance, please repeat request"):
        publish(broker)


class TakesHalf:
    """A store that is closed during its first batch, after it has stored the first event of each partition."""

    def __init__(self, store, closes):
        self._store, self._closes = store, closes

    def append(self, topic, batches, **options):
        closes, self._closes = self._closes, None
        if closes is None:
            return self._store.append(topic, batches, **options)
        self._store.append(topic, {number: events[:1] for number, events in batches.items()})
        closes()
        raise TopicClosed(topic, dict.fromkeys(batches, 1))

    def __getattr__(self, name):
        return getattr(self._store, name)


@pytest.fixture
def publish_during(broker, monkeypatch):
    """Publishes three events while a callback changes their topic."""

    def publish_during(happens):
        half, of = TakesHalf(broker.store, happens), broker.stores.of
        monkeypatch.setattr(broker.stores, "of", lambda name: half if name == "default" else of(name))
        body = json.dumps([{"order_id": str(number), "metadata": METADATA} for number in range(3)]).encode()
        return broker.publisher.publish(PublishEvents(event_type=NAME, body=body, flow_id=""), BROKER)

    return publish_during


def test_the_rest_of_a_batch_that_a_closing_topic_did_not_store_goes_to_the_next_topic(broker, publish_during):
    """Reference timelines#publishers."""
    broker.do(CreateStorage(storage=StorageEntry(id="a", storage_type="embedded", default=False)))
    published = publish_during(lambda: switch(broker, "a"))
    assert (published.events, published.partly) == (3, ())
    old, new = timelines(broker).timelines
    assert (old.latest_position, broker.stores.of("a").bounds(new.topic)) == ((0,), [Bounds(0, 1)])


class Lagging:
    """A store that learns of appends by other processes only when its bounds are queried."""

    def __init__(self, store):
        self._store, self._heard = store, False

    def bounds(self, topic):
        self._heard = True
        return self._store.bounds(topic)

    def read(self, topic, *place):
        return self._store.read(topic, *place) if self._heard else []

    def recorded_at_ms(self, topic, *place):
        return self._store.recorded_at_ms(topic, *place) if self._heard else None

    def __getattr__(self, name):
        return getattr(self._store, name)


@pytest.mark.parametrize("lagging", ["default", "a"])
def test_readers_continue_with_the_next_timeline_only_after_they_know_the_end_of_this_one(broker, lagging):
    broker.do(CreateStorage(storage=StorageEntry(id="a", storage_type="embedded", default=False)))
    publish(broker)
    switch(broker, "a")
    publish(broker)
    stores = {name: broker.stores.of(name) for name in ("default", "a")}
    stores[lagging] = Lagging(stores[lagging])
    order, chunks = read_after(timelines(broker), Stores(stores), 0, TimelinePosition(1, -1), 1_000_000)
    assert (order, len(chunks)) == (1, 1)
    stores["default"] = Lagging(broker.store)
    broker.clock.advance(1)
    assert (
        recorded_at_ms_after(timelines(broker), Stores(stores), 0, TimelinePosition(1, -1)) == chunks[0].recorded_at_ms
    )
    order, chunks = read_after(timelines(broker), Stores(stores), 0, TimelinePosition(1, 0), 1_000_000)
    assert (order, len(chunks)) == ((2, 1) if lagging == "default" else (1, 0)), "who lags behind the end waits"


class Stores:
    def __init__(self, stores):
        self._stores = stores

    def of(self, storage_id):
        return self._stores[storage_id]


def test_without_a_next_timeline_the_events_not_stored_are_reported(broker, publish_during):
    """Reference publishing#partial-results."""
    store, topic = broker.store, timelines(broker).active.topic

    def closes():
        broker.start_switch(NAME)
        store.close_topic(topic)

    published = publish_during(closes)
    assert [(item.publishing_status, item.detail) for item in published.partly] == [("failed", "interrupted")] * 3
    assert store.bounds(topic) == [Bounds(0, 0)]


def test_a_failed_switch_leaves_no_trace(broker, monkeypatch):
    def fail(*_args):
        raise Unavailable("the disk is full")

    publish(broker)
    monkeypatch.setattr(broker.store, "create_topic", fail)
    before = broker.log.head().position
    with pytest.raises(Unavailable, match="the disk is full"):
        switch(broker)
    started, aborted, abandoned = broker.log.entries(before, 10)
    assert abandoned.event.topic == started.event.timeline.topic
    assert (aborted.event.TOPIC, aborted.event.reason) == ("timeline.switch-aborted", "the disk is full")
    with pytest.raises(NotFound):
        broker.store.bounds(started.event.timeline.topic)
    assert publish(broker).events == 1
    assert len(timelines(broker).timelines) == 1


def test_a_switch_whose_old_topic_can_not_be_closed_is_completed_later(broker, monkeypatch):
    """Reference timelines#interrupted-switches."""

    def fail(_topic):
        raise Unavailable("no answer")

    publish(broker)
    with monkeypatch.context() as broken:
        broken.setattr(broker.store, "close_topic", fail)
        with pytest.raises(Unavailable, match="no answer"):
            switch(broker)
        assert publish(broker).events == 1, "the old topic is open still"
        with pytest.raises(Conflict):
            switch(broker)
        with pytest.raises(Unavailable, match="no answer"):
            repair(broker)
        repair(broker)  # it is not retried at once: every attempt may take long
    broker.clock.advance(int(1_000 * RETRY_S))
    repair(broker)
    old, new = timelines(broker).timelines
    assert (old.latest_position, timelines(broker).switch) == ((1,), None)
    publish(broker)
    assert broker.store.bounds(new.topic) == [Bounds(0, 0)]


def test_the_retention_of_a_timeline_starts_when_its_closing_ends(broker, event_type, monkeypatch):
    def fail(_topic):
        raise Unavailable("no answer")

    with monkeypatch.context() as broken:
        broken.setattr(broker.store, "close_topic", fail)
        with pytest.raises(Unavailable, match="no answer"):
            switch(broker)
    # The store accepts events all the time, and closes the topic after more than the retention time.
    retention_ms, begun_at_ms = event_type.retention_ms, milliseconds(timelines(broker).switch.timeline.switched_at)
    closed_at_ms = begun_at_ms + 2 * retention_ms
    broker.clock.advance(closed_at_ms - broker.clock.now_ms())
    publish(broker)
    late = msgspec.structs.replace(broker.context().origin, recorded_at=rfc3339(closed_at_ms))
    broker.timeline_switcher.repair(lambda: msgspec.structs.replace(broker.context(), origin=late))
    old, new = timelines(broker).timelines
    # It can't be checked now whether the old topic is empty.
    background_jobs = broker.background_jobs(unreachable := broker.stores_without("default"))
    with contextlib.closing(unreachable):
        broker.clock.advance(60_000)
        background_jobs.expire()
        assert timelines(broker).readable[0].id == old.id
        broker.clock.advance(retention_ms)
        background_jobs.expire()
        assert [each.id for each in timelines(broker).readable] == [new.id]
    assert (milliseconds(new.switched_at), milliseconds(new.created_at)) == (closed_at_ms, begun_at_ms)


def test_of_many_switches_that_wait_for_a_storage_one_is_tried_in_each_run(broker, monkeypatch):
    names, asked = ["a", "b", "c"], []
    for name in names:
        broker.do(CreateEventType(spec=event_type_spec(name=name)))
        following = broker.start_switch(name)
        broker.store.create_topic(following.topic, 1)
        broker.bus.transact(CloseTimeline(event_type=name, timeline=following), broker.context())

    def refuse(topic):
        asked.append(topic)
        raise Unavailable("no answer")

    with monkeypatch.context() as hanging:
        hanging.setattr(broker.store, "close_topic", refuse)
        for number in range(1, 4):
            with pytest.raises(Unavailable, match=r"^event type [abc]: no answer$"):
                repair(broker)
            assert len(set(asked)) == len(asked) == number
    broker.clock.advance(int(1_000 * RETRY_S))
    repair(broker)
    broker.registry.refresh()
    assert [len(broker.registry.timelines(name).timelines) for name in names] == [2, 2, 2]


def test_a_switch_that_is_closing_the_old_timeline_is_not_aborted(broker):
    """Reference timelines#switch-steps."""
    following = broker.start_switch(NAME)
    broker.store.create_topic(following.topic, 1)
    broker.bus.transact(CloseTimeline(event_type=NAME, timeline=following), broker.context())
    head = broker.log.head()
    broker.do(AbortSwitch(event_type=NAME, timeline=following, reason="late"))
    assert broker.log.head() == head
    repair(broker)
    assert timelines(broker).active.id == following.id


def test_the_target_storage_of_a_switch_that_must_be_completed_can_not_be_deleted(broker):
    broker.do(CreateStorage(storage=StorageEntry(id="a", storage_type="embedded", default=False)))
    following = broker.start_switch(NAME, "a")
    broker.stores.of("a").create_topic(following.topic, 1)
    broker.bus.transact(CloseTimeline(event_type=NAME, timeline=following), broker.context())
    with pytest.raises(InUse):
        broker.do(DeleteStorage(storage_id="a"))
    repair(broker)
    assert timelines(broker).active.id == following.id


def test_a_switch_away_from_a_missing_topic_reports_it(broker):
    broker.store.delete_topic(timelines(broker).active.topic)
    with pytest.raises(Unavailable, match=r"Topic .* of event type order.created is missing"):
        switch(broker)


def test_a_completed_switch_is_not_aborted(broker):
    switch(broker)
    head, new = broker.log.head(), timelines(broker).active
    broker.do(AbortSwitch(event_type=NAME, timeline=new, reason="late"))
    assert broker.log.head() == head
    assert publish(broker).events == 1


def test_deleting_an_event_type_deletes_the_next_timeline_too(broker):
    new = broker.start_switch(NAME)
    broker.store.create_topic(new.topic, 1)
    broker.do(DeleteEventType(name=NAME))
    with pytest.raises(NotFound):
        broker.store.bounds(new.topic)
    broker.store.create_topic(new.topic, 1)
    broker.do(AbortSwitch(event_type=NAME, timeline=new, reason="the event type is gone"))
    with pytest.raises(NotFound):
        broker.store.bounds(new.topic)


def test_a_closed_timeline_is_deleted_as_a_whole_when_it_has_expired(broker, event_type):
    """Reference timelines#cleanup."""
    background_jobs = broker.background_jobs()
    publish(broker)
    switch(broker)
    publish(broker)
    switch(broker)
    first, _, last = timelines(broker).timelines
    retention_ms = event_type.options.retention_time
    broker.clock.advance(1_900_000_000_000 - broker.clock.now_ms())
    background_jobs.expire()
    after = timelines(broker)
    assert [each.cleaned_up_at is None for each in after.timelines] == [False, False, True]
    assert after.readable == [last]
    assert retention_ms
    with pytest.raises(NotFound):
        broker.store.bounds(first.topic)
    assert broker.topics()[-4:] == ["timeline.cleaned-up", "topic.abandoned"] * 2


def test_closed_timelines_are_kept_while_the_database_is_read_only(broker):
    """Reference settings-and-storages#feature-effects, timelines#cleanup, disable_db_write_operations."""
    switch(broker)
    broker.clock.advance(1_900_000_000_000 - broker.clock.now_ms())
    for enabled in (True, False):
        broker.do(SwitchFeature(feature="disable_db_write_operations", enabled=enabled))
        with structlog.testing.capture_logs() as logged:
            broker.background_jobs().expire()
        assert [each.cleaned_up_at is None for each in timelines(broker).timelines] == [enabled, True]
        assert logged == []


def test_a_longer_retention_time_applies_to_closed_timelines_too(broker, event_type):
    """Reference timelines#cleanup, timelines#kept-events."""
    switch(broker)
    closed_at_ms = 1_795_168_800_000  # about the time of the commands of the test
    broker.clock.advance(closed_at_ms + event_type.options.retention_time + 60_000 - broker.clock.now_ms())
    spec = as_spec(event_type)
    longer = event_type.options.retention_time * 2
    broker.do(ChangeEventType(name=NAME, spec=event_type_spec(options=Options(retention_time=longer))))
    broker.background_jobs().expire()
    assert all(each.cleaned_up_at is None for each in timelines(broker).timelines)
    broker.do(ChangeEventType(name=NAME, spec=spec))
    broker.background_jobs().expire()
    assert [each.cleaned_up_at is None for each in timelines(broker).timelines] == [False, True]


def test_the_store_rejects_appends_to_a_closed_topic(broker):
    """Reference timelines#switch-steps."""
    old = timelines(broker).active
    switch(broker)
    with pytest.raises(TopicClosed):
        broker.store.append(old.topic, {0: [b"{}"]})


def test_a_storage_that_can_not_be_opened_blocks_only_its_own_switches(broker):
    broker.do(CreateStorage(storage=StorageEntry(id="second", storage_type="embedded", default=False)))
    names = ["a", "b", "c"]
    for name in names:
        broker.do(CreateEventType(spec=event_type_spec(name=name)))
    broker.timeline_switcher.switch(start("second", "b"), broker.context())
    for name in names:
        following = broker.start_switch(name)
        broker.store.create_topic(following.topic, 1)
        broker.bus.transact(CloseTimeline(event_type=name, timeline=following), broker.context())
    broker.registry.refresh()
    with contextlib.closing(broker.stores_without("second")) as usable:
        switcher = TimelineSwitcher(broker.registry, broker.bus_on(broker.log, usable), broker.signals, broker.clock)
        with pytest.raises(Unavailable, match=r"^event type b: [^;]*$"):
            switcher.repair(broker.context)
    broker.registry.refresh()
    assert [broker.registry.timelines(name).switch is None for name in names] == [True, False, True]
