"""The lags that the monitor knows are those that `/stats` says, whatever happens, before the first stream too."""

import contextlib
import tempfile
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import falcon
import falcon.testing
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
)

from rioni.commands.event_types import CreateEventType
from rioni.commands.subscriptions.subscriptions import CreateSubscription, DeleteSubscription
from rioni.commands.system import lag_monitor
from rioni.commands.system.lag_monitor import LagMonitor
from rioni.commands.system.storages import CreateStorage
from rioni.commands.timelines.timelines import Repartition, StartSwitch
from rioni.domain.errors import Unavailable
from rioni.domain.event_types.event_type import Statistic
from rioni.domain.subscriptions.lag import Lag
from rioni.domain.system.storages import StorageEntry
from rioni.domain.timelines.position import format_offset
from rioni.http.resources.subscriptions import SubscriptionStatsResource
from rioni.storage.embedded.signals import SharedChangeFlags
from tests.support.broker import running_broker
from tests.support.builders import event_type_spec, subscription_spec
from tests.support.campaigns import length


PARTITIONS, PARTITIONS_MAX = 2, 4
NAMES = ("a", "b", "c")
SUBSCRIPTIONS = 4


class Scene:
    """A broker with event types, a monitor, and what happens to them."""

    def __init__(self, folder):
        self._running = running_broker(folder / "data")
        self.broker = self._running.__enter__()
        statistic = Statistic(messages_per_minute=1, message_size=1, read_parallelism=2, write_parallelism=2)
        for name in NAMES:
            self.broker.do(CreateEventType(spec=event_type_spec(name=name, default_statistic=statistic)))
        self.monitor = self.new_monitor(self.broker.base.directory.changes)
        dependencies = SimpleNamespace(
            registry=self.broker.registry,
            coordinator=self.broker.coordinator,
            stores=self.broker.stores,
            clock=self.broker.clock,
        )
        app = falcon.App()
        app.add_route("/subscriptions/{subscription_id}/stats", SubscriptionStatsResource(dependencies))
        self._client = falcon.testing.TestClient(app)

    def new_monitor(self, flags, stores=None):
        broker = self.broker
        return LagMonitor(broker.registry, stores or broker.stores, broker.coordinator, flags, broker.clock)

    def subscribe(self, *names, read_from="begin", initialise=True):
        spec = subscription_spec(owning_application=str(uuid4()), event_types=names, read_from=read_from)
        subscription = self.broker.do(CreateSubscription(spec=spec))[0]
        self.broker.registry.refresh()
        if initialise:
            self.broker.cursor_initializer.initialise(subscription)
        return subscription.id

    def publish(self, name, count=1, partition=0):
        timeline = self.timelines(name).active
        self.broker.stores.of(timeline.storage_id).append(timeline.topic, {partition: [b"{}"] * count})

    def commit(self, subscription_id, ahead, partition=0):
        """Commit a partition of one event type up to `ahead`, which may be beyond the end."""
        coordinator, stream = self.broker.coordinator, str(uuid4())
        key = next((each for each in coordinator.cursors(subscription_id) if each.partition == str(partition)), None)
        if key is None:
            return
        order = self.timelines(key.event_type).active.order
        coordinator.join(subscription_id, stream)
        coordinator.commit(subscription_id, stream, [(key, format_offset(order, ahead))])
        coordinator.leave(subscription_id, stream)

    def switch(self, name):
        self.broker.timeline_switcher.switch(StartSwitch(event_type=name, storage_id="default"), self.broker.context())

    def stats(self, subscription_id):
        """The lag that `/stats` says."""
        answer = self._client.simulate_get(
            f"/subscriptions/{subscription_id}/stats?show_time_lag=true&show_initial_lag=true"
        )
        assert answer.status_code == 200, answer.text
        partitions = [each for item in answer.json["items"] for each in item["partitions"]]
        counts = [each["unconsumed_events"] for each in partitions if "unconsumed_events" in each]
        ages = [each["consumer_lag_seconds"] for each in partitions if "consumer_lag_seconds" in each]
        return (sum(counts), max(ages)) if counts else None

    def known(self, monitor):
        """The lags that a monitor knows."""
        now_ms = self.broker.clock.now_ms()
        of_partitions = {each: sum(lag.events for lag in found.values()) for each, found in monitor.lagging.items()}
        assert of_partitions == {each: lag.events for each, lag in monitor.lags.items() if lag.events}
        return {each: (lag.events, lag.seconds(now_ms)) for each, lag in monitor.lags.items()}

    def expected(self):
        self.broker.registry.refresh()
        found = {each.id: self.stats(each.id) for each in self.broker.registry.subscriptions()}
        return {each: lag for each, lag in found.items() if lag}

    def timelines(self, name):
        self.broker.registry.refresh()
        return self.broker.registry.timelines(name)

    def close(self):
        self._running.__exit__(None, None, None)


class Recording:
    """A coordinator that says which subscriptions it was asked about since the last look at it."""

    def __init__(self, coordinator):
        self._coordinator, self._asked = coordinator, set()

    def cursors_of(self, subscription_ids):
        self._asked.update(subscription_ids)
        return self._coordinator.cursors_of(subscription_ids)

    @property
    def asked(self):
        asked, self._asked = self._asked, set()
        return asked


class FailingStorages:
    """Storages of which some can't be used."""

    def __init__(self, stores):
        self._stores, self.storages, self.hang, self.asked = stores, set(), lambda: None, 0

    def of(self, storage_id):
        if storage_id in self.storages:
            self.asked += 1
            self.hang()
            raise Unavailable("the disk hangs")
        return self._stores.of(storage_id)


class LagMachine(RuleBasedStateMachine):
    """All changes that affect lags, in any order."""

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.scene = Scene(Path(self.folder.name))
        self.subscriptions = []

    @precondition(lambda self: len(self.subscriptions) < SUBSCRIPTIONS)
    @rule(
        names=st.sets(st.sampled_from(NAMES), min_size=1),
        read_from=st.sampled_from(["begin", "end"]),
        first=st.booleans(),
    )
    def subscribe(self, names, read_from, first):
        self.subscriptions.append(self.scene.subscribe(*sorted(names), read_from=read_from, initialise=first))

    @rule(name=st.sampled_from(NAMES), count=st.integers(1, 3), partition=st.integers(0, PARTITIONS - 1))
    def publish(self, name, count, partition):
        self.scene.publish(name, count, partition)

    @precondition(lambda self: self.subscriptions)
    @rule(data=st.data(), ahead=st.integers(-1, 6), partition=st.integers(0, PARTITIONS - 1))
    def commit(self, data, ahead, partition):
        self.scene.commit(data.draw(st.sampled_from(self.subscriptions)), ahead, partition)

    @precondition(lambda self: self.subscriptions)
    @rule(data=st.data(), position=st.integers(-1, 3))
    def reset(self, data, position):
        subscription = data.draw(st.sampled_from(self.subscriptions))
        coordinator = self.scene.broker.coordinator
        cursors = dict.fromkeys([*coordinator.cursors(subscription)][:1], format_offset(1, position))
        coordinator.reset(subscription, cursors, timeout_s=0)

    @rule(name=st.sampled_from(NAMES))
    def switch(self, name):
        self.scene.switch(name)

    @precondition(lambda self: self.scene.timelines("c").active.partitions < PARTITIONS_MAX)
    @rule(name=st.just("c"))
    def repartition(self, name):
        self.scene.broker.do(
            Repartition(event_type=name, partition_count=self.scene.timelines(name).active.partitions + 1)
        )

    @rule(name=st.sampled_from(NAMES))
    def expire(self, name):
        timeline = self.scene.timelines(name).active
        self.scene.broker.store.delete_before(timeline.topic, self.scene.broker.clock.now_ms())

    @precondition(lambda self: self.subscriptions)
    @rule(data=st.data())
    def delete(self, data):
        subscription = data.draw(st.sampled_from(self.subscriptions))
        self.subscriptions.remove(subscription)
        self.scene.broker.do(DeleteSubscription(subscription_id=subscription))

    @rule(seconds=st.integers(1, 100))
    def wait(self, seconds):
        self.scene.broker.clock.advance(1_000 * seconds)

    @invariant()
    def the_monitor_says_what_stats_says(self):
        self.scene.monitor.look()
        expected = self.scene.expected()
        assert self.scene.known(self.scene.monitor) == expected
        assert self.scene.monitor.events == sum(events for events, _ in expected.values())

    def teardown(self):
        with self.folder, contextlib.closing(self.scene):
            another = self.scene.new_monitor(SharedChangeFlags())
            another.look()
            assert self.scene.known(another) == self.scene.expected()


@pytest.fixture
def scene(tmp_path):
    scene = Scene(tmp_path)
    yield scene
    scene.close()


def test_a_change_without_a_flag_is_found_in_turn(scene, monkeypatch):
    """Reference operations#lag-metrics."""
    monkeypatch.setattr(lag_monitor, "CHECKED_AT_ONCE", 1)
    monitor = scene.new_monitor(SharedChangeFlags())
    ids = [scene.subscribe("a") for _ in range(3)]
    monitor.look()
    scene.publish("a", 2)
    for number in range(3):
        assert [monitor.lags[each].events for each in ids].count(2) == number
        monitor.look()
    assert scene.known(monitor) == scene.expected()


def test_topics_that_other_nodes_have_appended_to_are_looked_at(scene):
    monitor = scene.new_monitor(SharedChangeFlags())
    ids = [scene.subscribe("a") for _ in range(30)]
    monitor.look()
    scene.publish("a")
    monitor.note_appended([scene.timelines("a").active.topic, "unknown"])
    monitor.look()
    assert {monitor.lags[each].events for each in ids} == {1}
    scene.publish("a")
    monitor.look_at_all()
    monitor.look()
    assert {monitor.lags[each].events for each in ids} == {2}


def test_the_topics_that_were_appended_to_are_told(scene):
    scene.subscribe("a")
    scene.monitor.look()
    scene.publish("a")
    scene.publish("b")
    scene.monitor.gather()
    scene.publish("a")
    scene.monitor.look()
    assert list(scene.monitor.take_appended()) == [scene.timelines("a").active.topic]
    assert list(scene.monitor.take_appended()) == []


def test_an_append_just_before_a_subscription_is_known_is_told_as_well(scene):
    scene.monitor.look()
    scene.publish("a")
    refresh, scene.broker.registry.refresh = scene.broker.registry.refresh, lambda: None
    scene.monitor.gather()
    assert list(scene.monitor.take_appended()) == []
    scene.broker.registry.refresh = refresh
    scene.subscribe("a")
    scene.monitor.gather()
    assert list(scene.monitor.take_appended()) == [scene.timelines("a").active.topic]


def test_only_what_has_changed_is_looked_at(scene, monkeypatch):
    """Reference operations#lag-metrics."""
    monkeypatch.setattr(lag_monitor, "CHECKED_AT_ONCE", 0)
    coordinator = Recording(scene.broker.coordinator)
    broker = scene.broker
    monitor = LagMonitor(broker.registry, broker.stores, coordinator, broker.base.directory.changes, broker.clock)
    idle, busy = scene.subscribe("a"), scene.subscribe("b")
    monitor.look()
    assert coordinator.asked == {idle, busy}
    scene.publish("b", 2)
    monitor.look()
    assert coordinator.asked == {busy}
    scene.commit(busy, 0)
    monitor.look()
    assert coordinator.asked == {busy}
    broker.clock.advance(5_000)
    monitor.look()
    assert coordinator.asked == set()
    assert scene.known(monitor) == scene.expected()


def test_a_storage_that_fails_leaves_its_lags_as_they_were_and_the_others_are_read(scene):
    broker, failing = scene.broker, FailingStorages(scene.broker.stores)
    broker.do(CreateStorage(storage=StorageEntry(id="second", storage_type="embedded", default=False)))
    broker.timeline_switcher.switch(StartSwitch(event_type="b", storage_id="second"), broker.context())
    one, other = scene.subscribe("a"), scene.subscribe("b")
    monitor = scene.new_monitor(broker.base.directory.changes, failing)
    failing.storages = {"second"}
    monitor.look()
    assert (monitor.ready, monitor.as_of_ms) == (True, 0)
    assert monitor.lags == {one: Lag(0)}
    failing.storages = set()
    broker.clock.advance(1_000)
    monitor.look()
    assert monitor.as_of_ms == broker.clock.now_ms()
    assert monitor.lags == {one: Lag(0), other: Lag(0)}
    scene.publish("a")
    scene.publish("b")
    failing.storages = {"second"}
    monitor.look()
    assert (monitor.lags[one].events, monitor.lags[other].events) == (1, 0)
    failing.storages = set()
    monitor.look()
    assert monitor.lags[other].events == 1


def test_a_storage_that_hangs_is_left_alone_for_a_while(scene):
    broker, failing = scene.broker, FailingStorages(scene.broker.stores)
    scene.subscribe("a")
    monitor = scene.new_monitor(broker.base.directory.changes, failing)
    failing.storages, failing.hang = {"default"}, lambda: broker.clock.advance(2_000)
    for _ in range(3):
        monitor.look()
        assert failing.asked == 1
    failing.storages = set()
    broker.clock.advance(int(lag_monitor.REST * 2_000))
    monitor.look()
    assert scene.known(monitor) == scene.expected()


def test_a_look_is_short_and_the_next_one_goes_on(scene):
    broker = scene.broker
    ids = [scene.subscribe("a") for _ in range(6)]
    monitor = LagMonitor(
        broker.registry,
        broker.stores,
        broker.coordinator,
        SharedChangeFlags(),
        broker.clock,
        pause=lambda: broker.clock.advance(int(lag_monitor.BUSY_S * 500)),
    )
    known = []
    for _ in range(3):
        monitor.look()
        known.append((len(monitor.lags), monitor.ready, bool(monitor.as_of_ms)))
    assert known == [(2, False, False), (4, False, False), (6, True, True)]
    assert monitor.lags.keys() == {*ids}


TestLags = LagMachine.TestCase
TestLags.settings = settings(max_examples=length(8, 300), stateful_step_count=length(25, 50))
TestLags.pytestmark = [pytest.mark.nightly]
