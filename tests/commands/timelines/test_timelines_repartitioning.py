import contextlib
import json

import pytest

from rioni.commands.event_types import CreateEventType
from rioni.commands.publisher import PublishEvents
from rioni.commands.subscriptions.initial_cursors import CursorInitializer
from rioni.commands.subscriptions.subscriptions import CreateSubscription
from rioni.commands.system.storages import CreateStorage, SwitchFeature
from rioni.commands.timelines.timelines import Repartition, StartSwitch
from rioni.domain.access.authorization import BROKER, Subject
from rioni.domain.errors import AccessDenied, FeatureDisabled, Invalid, Unavailable
from rioni.domain.event_types.event_type import Statistic
from rioni.domain.publishing.partitioning import java_hash
from rioni.domain.subscriptions.cursor_spec import CursorSpec
from rioni.domain.system.storages import StorageEntry
from rioni.domain.system.system_events import DEAD_LETTER_QUEUE
from rioni.domain.timelines.position import EventTypePartition, format_offset
from rioni.domain.timelines.timeline import Timelines
from tests.support.broker import COMPACTION_LAG_S
from tests.support.builders import COMMAND_ID, NOW, event_type_spec, subscription_spec


NAME = "order.created"
KEYS = [f"ES-{number}" for number in range(12)]


@pytest.fixture(autouse=True)
def event_type(broker):
    return broker.do(CreateEventType(spec=event_type_spec()))


def repartition(count):
    return Repartition(event_type=NAME, partition_count=count)


def timelines(broker) -> Timelines:
    broker.registry.refresh()
    return broker.registry.timelines(NAME)


def switch(broker):
    broker.timeline_switcher.switch(StartSwitch(event_type=NAME, storage_id="default"), broker.context())


def subscribe(broker, **changes):
    subscription, _ = broker.do(CreateSubscription(spec=subscription_spec(**changes)))
    broker.registry.refresh()
    return subscription


def cursors(broker, subscription):
    return {key.partition: offset for key, offset in broker.coordinator.cursors(subscription.id).items()}


def test_the_dead_letter_queue_keeps_its_partitions(broker):
    """Reference timelines#count-checks, system-event-types#dead-letter-definition."""
    broker.do(CreateEventType(spec=event_type_spec(name=DEAD_LETTER_QUEUE)))
    with pytest.raises(Invalid, match=r"^Repartitioning nakadi\.dead\.letter\.queue event type is not supported$"):
        broker.do(Repartition(event_type=DEAD_LETTER_QUEUE, partition_count=2))


def test_all_timelines_get_the_partitions_and_the_statistic_is_adjusted(broker):
    switch(broker)
    before = broker.log.head().position
    broker.do(repartition(3))
    old, new = timelines(broker).timelines
    assert (old.partitions, old.latest_position, new.partitions) == (3, (-1, -1, -1), 3)
    assert [len(broker.store.bounds(each.topic)) for each in (old, new)] == [3, 3]
    statistic = broker.registry.event_type(NAME).default_statistic
    assert statistic == Statistic(messages_per_minute=1, message_size=1, read_parallelism=3, write_parallelism=3)
    assert broker.registry.publish_rules(NAME).partitions == 3
    assert broker.topics(before) == ["timeline.repartitioned", "event-type.changed"]


def test_repeating_a_repartitioning_changes_nothing(broker):
    broker.do(repartition(3))
    head = broker.log.head()
    broker.do(repartition(3))
    assert broker.log.head() == head


def test_a_repartitioning_interrupted_before_the_log_is_completed_by_repeating_it(broker):
    broker.store.extend_topic(timelines(broker).active.topic, 4)
    broker.do(repartition(3))
    assert timelines(broker).active.partitions == 3
    switch(broker)
    assert timelines(broker).timelines[0].latest_position == (-1, -1, -1)


@pytest.mark.parametrize(
    ("count", "detail"),
    [(0, "Number of partitions can not decrease"), (9, "Number of partitions should not be more than 8")],
)
def test_the_number_of_partitions_is_limited(broker, count, detail):
    """Reference timelines#count-checks."""
    with pytest.raises(Invalid, match=detail):
        broker.do(repartition(count))


def test_repartitioning_during_a_switch_is_a_conflict(broker):
    """Reference timelines#count-checks."""
    broker.start_switch(NAME)
    with pytest.raises(Unavailable, match=f"Event type {NAME} is currently in maintenance"):
        broker.do(repartition(2))


def test_only_administrators_repartition_and_only_while_the_feature_is_on(broker):
    """Reference timelines#count-checks."""
    with pytest.raises(AccessDenied, match=f"Access on ADMIN event-type:{NAME} denied"):
        broker.do(repartition(2), Subject(name="bob"))
    broker.do(SwitchFeature(feature="repartitioning", enabled=False))
    with pytest.raises(FeatureDisabled):
        broker.do(repartition(2))


@pytest.mark.parametrize("read_from", ["begin", "end", "cursors"])
def test_subscriptions_read_new_partitions_from_their_begin_and_keep_their_other_cursors(broker, read_from):
    """Reference timelines#subscriptions."""
    given = (
        (CursorSpec(event_type=NAME, partition="0", offset=format_offset(1, 1)),) if read_from == "cursors" else None
    )
    broker.store.append(timelines(broker).active.topic, {0: [b"{}", b"{}"]})
    subscription = subscribe(broker, read_from=read_from, initial_cursors=given)
    broker.cursor_initializer.initialise(subscription)
    before = cursors(broker, subscription)
    broker.do(repartition(2))
    broker.store.append(timelines(broker).active.topic, {1: [b"{}", b"{}"]})
    broker.cursor_initializer.extend(NAME)
    assert cursors(broker, subscription) == before | {"1": format_offset(1, -1)}


def test_a_stream_adds_partitions_that_the_repartitioning_process_could_not(broker):
    subscription = subscribe(broker)
    broker.cursor_initializer.initialise(subscription)
    switch(broker)
    broker.do(repartition(2))
    broker.store.append(timelines(broker).active.topic, {1: [b"{}"]})
    switch(broker)
    broker.cursor_initializer.initialise(subscription)
    assert cursors(broker, subscription)["1"] == format_offset(2, -1), "the first event is behind it"
    assert EventTypePartition(NAME, "1") in broker.coordinator.topology(subscription.id).partitions


def test_background_jobs_add_partitions_for_running_streams(broker):
    """Reference timelines#subscriptions."""
    subscription = subscribe(broker)
    broker.cursor_initializer.initialise(subscription)
    background_jobs = broker.background_jobs()
    broker.do(repartition(2))
    broker.clock.advance(61_000)
    background_jobs.tick()
    assert set(cursors(broker, subscription)) == {"0", "1"}


def test_a_storage_that_can_not_be_opened_blocks_only_its_own_subscriptions(broker):
    broker.do(CreateStorage(storage=StorageEntry(id="second", storage_type="embedded", default=False)))
    broker.do(CreateEventType(spec=event_type_spec(name="far")))
    broker.timeline_switcher.switch(StartSwitch(event_type="far", storage_id="second"), broker.context())
    far = subscribe(broker, event_types=("far",))
    near = [subscribe(broker, consumer_group=group) for group in "ab"]
    for each in (far, *near):
        broker.cursor_initializer.initialise(each)
    for name in (NAME, "far"):
        broker.do(Repartition(event_type=name, partition_count=2))
    broker.registry.refresh()
    with contextlib.closing(broker.stores_without("second")) as usable:
        positions = CursorInitializer(
            broker.registry,
            broker.access,
            broker.bus,
            stores=usable,
            coordinator=broker.coordinator,
            reset_timeout_s=1,
        )
        with pytest.raises(Unavailable, match=f"^subscription {far.id}: [^;]*$"):
            positions.extend()
    assert [len(cursors(broker, each)) for each in (far, *near)] == [1, 2, 2]


def test_subscriptions_never_read_get_their_partitions_with_the_first_stream(broker):
    subscription = subscribe(broker)
    broker.do(repartition(2))
    broker.registry.refresh()
    broker.cursor_initializer.extend(NAME)
    assert cursors(broker, subscription) == {}


# --- keys ---


def publish(broker, name, rounds):
    """Publish one event of each key in each round."""
    for number in rounds:
        events = [
            {
                "order_id": key,
                "round": number,
                "metadata": {"eid": COMMAND_ID, "occurred_at": NOW, "partition_compaction_key": key},
            }
            for key in KEYS
        ]
        command = PublishEvents(event_type=name, body=json.dumps(events).encode(), flow_id="")
        assert broker.publisher.publish(command, BROKER).events == len(KEYS)


def rounds(broker, name):
    """For each partition and key the rounds whose events are stored, in their order."""
    found = {}
    for event in broker.events(name):
        place = int(event["metadata"]["partition"]), event["order_id"]
        found.setdefault(place, []).append(event["round"])
    return found


def by_hash(key, partitions):
    """The partition of a key: the remainder of a signed division (counts below ten: numbers sort as texts do)."""
    number = java_hash(key) % 2**32
    return abs(number - 2**32 if number >= 2**31 else number) % partitions


def test_keys_that_move_keep_the_order_in_both_partitions_and_the_last_event_of_each(broker):
    """Reference timelines#moved-keys."""
    statistic = Statistic(messages_per_minute=1, message_size=1, read_parallelism=2, write_parallelism=2)
    hashed = {"partition_strategy": "hash", "partition_key_fields": ("order_id",), "default_statistic": statistic}
    broker.do(CreateEventType(spec=event_type_spec(name="keyed", cleanup_policy="compact", **hashed)))
    publish(broker, "keyed", (0, 1))
    broker.do(Repartition(event_type="keyed", partition_count=5))
    publish(broker, "keyed", (2, 3))
    expected = {}
    for number in range(4):
        for key in KEYS:
            expected.setdefault((by_hash(key, 2 if number < 2 else 5), key), []).append(number)
    assert rounds(broker, "keyed") == expected
    moved = [key for key in KEYS if by_hash(key, 2) != by_hash(key, 5)]
    assert len(moved) > len(KEYS) / 2
    background_jobs = broker.background_jobs()
    broker.clock.advance(2 * 1_000 * COMPACTION_LAG_S)
    background_jobs.tick()
    assert rounds(broker, "keyed") == {place: found[-1:] for place, found in expected.items()}
