import pytest

from rioni.commands.event_types import CreateEventType
from rioni.commands.subscriptions.initial_cursors import CursorInitializer, ResetCursors
from rioni.commands.subscriptions.subscriptions import CreateSubscription
from rioni.commands.system.storages import AddBlacklistEntry, RemoveBlacklistEntry
from rioni.commands.timelines.timelines import StartSwitch
from rioni.domain.access.authorization import Attribute, Subject, SubscriptionAuthorization
from rioni.domain.errors import AccessDenied, Blocked, Invalid, InvalidCursor, Unavailable
from rioni.domain.event_types.event_type import Statistic
from rioni.domain.subscriptions.cursor_spec import CursorSpec
from rioni.domain.timelines.position import EventTypePartition, format_offset
from rioni.domain.timestamps import rfc3339
from tests.support.builders import context, event_type_spec, subscription_spec
from tests.support.tables import rows


NAME = "order.created"
PARTITION = EventTypePartition(NAME, "0")
ALICE = Attribute("user", "alice")


@pytest.fixture
def positions(broker):
    return CursorInitializer(
        broker.registry,
        broker.access,
        broker.bus,
        stores=broker.stores,
        coordinator=broker.coordinator,
        reset_timeout_s=0,
    )


@pytest.fixture
def subscribe(broker):
    def subscribe(**changes):
        broker.do(CreateEventType(spec=event_type_spec()))
        broker.registry.refresh()
        broker.store.append(broker.registry.timelines(NAME).active.topic, {0: [b"{}", b"{}", b"{}"]})
        return broker.do(CreateSubscription(spec=subscription_spec(**changes)))[0]

    return subscribe


@pytest.mark.parametrize(
    ("read_from", "cursors", "position"),
    rows(
        ("begin", "begin", (), -1),
        ("end", "end", (), 2),
        ("cursors", "cursors", (CursorSpec(event_type=NAME, partition="0", offset="1"),), 1),
        ("cursors: BEGIN", "cursors", (CursorSpec(event_type=NAME, partition="0", offset="BEGIN"),), -1),
    ),
)
def test_reading_begins_at_the_position_set_by_the_subscription(
    broker, positions, subscribe, read_from, cursors, position
):
    subscription = subscribe(read_from=read_from, initial_cursors=cursors)
    positions.initialise(subscription)
    assert broker.coordinator.cursors(subscription.id) == {PARTITION: format_offset(1, position)}


@pytest.mark.parametrize(
    ("read_from", "cursors", "offset"),
    [
        ("begin", (), format_offset(1, -1)),
        ("end", (), format_offset(2, -1)),
        ("cursors", (CursorSpec(offset="END"),), format_offset(1, 2)),
        ("cursors", (CursorSpec(offset="BEGIN"),), format_offset(1, -1)),
    ],
)
def test_begin_and_end_are_those_of_the_first_stream_and_not_of_the_creation(
    broker, positions, subscribe, read_from, cursors, offset
):
    subscription = subscribe(read_from=read_from, initial_cursors=cursors)
    broker.timeline_switcher.switch(StartSwitch(event_type=NAME, storage_id="default"), broker.context())
    broker.registry.refresh()
    positions.initialise(subscription)
    assert broker.coordinator.cursors(subscription.id) == {PARTITION: offset}


def test_initial_cursors_are_used_only_once(broker, positions, subscribe):
    cursor = CursorSpec(event_type=NAME, partition="0", offset="0")
    subscription = subscribe(read_from="cursors", initial_cursors=(cursor,))
    broker.store.delete_before(broker.registry.timelines(NAME).active.topic, broker.clock.now_ms() + 1)
    positions.initialise(subscription)
    assert broker.coordinator.cursors(subscription.id) == {PARTITION: format_offset(1, 0)}


def test_a_second_initialisation_changes_nothing(broker, positions, subscribe):
    subscription = subscribe(read_from="end")
    positions.initialise(subscription)
    broker.store.append(broker.registry.timelines(NAME).active.topic, {0: [b"{}"]})
    positions.initialise(subscription)
    assert broker.coordinator.cursors(subscription.id) == {PARTITION: format_offset(1, 2)}


def statistic(partitions):
    return Statistic(messages_per_minute=1, message_size=1, read_parallelism=partitions, write_parallelism=partitions)


def reset(positions, subscription, offset, **who):
    cursors = [CursorSpec(event_type=NAME, partition="0", offset=offset)]
    positions.reset(ResetCursors(subscription_id=subscription.id, cursors=cursors), context(**who))


def test_a_reset_is_recorded_with_the_canonical_offsets_before_and_after(broker, positions, subscribe):
    """Reference subscriptions#reset-effects."""
    subscription = subscribe()
    head = broker.log.head().position
    reset(positions, subscription, "BEGIN")
    (entry,) = broker.log.entries(head, 10)
    assert entry.event.TOPIC == "subscription.cursors-reset"
    assert [each.offset for each in entry.event.cursors] == [format_offset(1, -1)]
    assert [each.offset for each in entry.event.previous] == [format_offset(1, 2)]
    assert broker.coordinator.cursors(subscription.id) == {PARTITION: format_offset(1, -1)}


def test_cursor_specs_are_recorded_as_the_offsets_they_resolve_to(broker, positions):
    for name, partitions in (("order.created", 2), ("order.paid", 1)):
        broker.do(CreateEventType(spec=event_type_spec(name=name, default_statistic=statistic(partitions))))
    broker.registry.refresh()
    topic = broker.registry.timelines("order.created").active.topic
    broker.store.append(topic, {0: [b"{}", b"{}"], 1: [b"{}", b"{}", b"{}"]})
    spec = subscription_spec(event_types=("order.created", "order.paid"))
    subscription, _ = broker.do(CreateSubscription(spec=spec))
    names = [
        CursorSpec(offset="end"),
        CursorSpec(event_type="order.created", timestamp=rfc3339(broker.clock.now_ms()), shift=1),
        CursorSpec(event_type="order.created", partition="1", offset="END", shift=-1),
    ]
    positions.reset(ResetCursors(subscription_id=subscription.id, cursors=names), context())
    expected = {("order.created", "0"): 0, ("order.created", "1"): 1, ("order.paid", "0"): -1}
    assert broker.coordinator.cursors(subscription.id) == {key: format_offset(1, at) for key, at in expected.items()}
    (entry,) = broker.log.entries(broker.log.head().position - 1, 10)
    assert {(each.event_type, each.partition): each.offset for each in entry.event.cursors} == {
        key: format_offset(1, at) for key, at in expected.items()
    }


def test_a_reset_with_a_cursor_that_cannot_be_read_from_changes_nothing(broker, positions, subscribe):
    subscription = subscribe()
    positions.initialise(subscription)
    before = dict(broker.coordinator.cursors(subscription.id))
    names = [CursorSpec(offset="BEGIN"), CursorSpec(event_type=NAME, partition="0", offset="END", shift=1)]
    with pytest.raises(Invalid, match="does not exist"):
        positions.reset(ResetCursors(subscription_id=subscription.id, cursors=names), context())
    assert broker.coordinator.cursors(subscription.id) == before


def test_a_reset_that_times_out_waiting_for_streams_is_not_recorded(broker, positions, subscribe):
    """Reference subscriptions#reset-checks."""
    subscription = subscribe()
    positions.initialise(subscription)
    broker.coordinator.join(subscription.id, "a-stream-that-does-not-end")
    head = broker.log.head()
    with pytest.raises(Unavailable, match="Timeout resetting cursors"):
        reset(positions, subscription, "0")
    assert broker.log.head() == head
    assert broker.coordinator.cursors(subscription.id) == {PARTITION: format_offset(1, 2)}


def test_rights_and_blacklist_are_checked_before_the_cursors(broker, positions, subscribe):
    """Reference subscriptions#reset-checks, authorization#blacklist-first."""
    subscription = subscribe(authorization=SubscriptionAuthorization(admins=(ALICE,), readers=(ALICE,)))
    broker.do(AddBlacklistEntry(type="CONSUMER_ET", name=NAME))
    bob = Subject(name="bob")
    with pytest.raises(Blocked, match="Application or subscription is blocked"):
        reset(positions, subscription, "x", subject=bob)
    broker.do(RemoveBlacklistEntry(type="CONSUMER_ET", name=NAME))
    with pytest.raises(AccessDenied, match="Access on ADMIN subscription"):
        reset(positions, subscription, "x", subject=bob)
    with pytest.raises(InvalidCursor, match="invalid offset x for partition 0"):
        reset(positions, subscription, "x")
    assert not broker.coordinator.cursors(subscription.id), "nothing was initialised"


def test_only_administrators_reset(positions, subscribe):
    subscription = subscribe(authorization=SubscriptionAuthorization(admins=(ALICE,), readers=(ALICE,)))
    with pytest.raises(AccessDenied, match="Access on ADMIN subscription"):
        reset(positions, subscription, "0", subject=Subject(name="bob"))
    reset(positions, subscription, "0", subject=Subject(name="alice", attributes=frozenset({ALICE})))
