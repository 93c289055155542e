import pytest

from rioni.commands.event_types import CreateEventType
from rioni.commands.positions import Positions, ResetCursors
from rioni.commands.subscriptions import CreateSubscription
from rioni.domain.authorization import Attribute, Subject, SubscriptionAuthorization
from rioni.domain.cursor import format_offset
from rioni.domain.errors import Denied, Unavailable
from rioni.domain.ports import EventTypePartition
from rioni.domain.subscription import InitialCursor
from rioni.storage.embedded.events import direct
from tests.support.builders import context, event_type_spec, subscription_spec


NAME = "order.created"
PARTITION = EventTypePartition(NAME, "0")
ALICE = Attribute("user", "alice")


@pytest.fixture
def positions(broker):
    return Positions(
        broker.registry,
        broker.gate,
        broker.bus,
        store=broker.store,
        coordinator=broker.coordinator,
        offload=direct,
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
    [
        ("begin", (), -1),
        ("end", (), 2),
        ("cursors", (InitialCursor(event_type=NAME, partition="0", offset="1"),), 1),
        ("cursors", (InitialCursor(event_type=NAME, partition="0", offset="BEGIN"),), -1),
    ],
)
def test_reading_begins_where_the_subscription_says(broker, positions, subscribe, read_from, cursors, position):
    subscription = subscribe(read_from=read_from, initial_cursors=cursors)
    positions.initialise(subscription)
    assert broker.coordinator.cursors(subscription.id) == {PARTITION: format_offset(1, position)}


def test_a_second_initialisation_changes_nothing(broker, positions, subscribe):
    subscription = subscribe(read_from="end")
    positions.initialise(subscription)
    broker.store.append(broker.registry.timelines(NAME).active.topic, {0: [b"{}"]})
    positions.initialise(subscription)
    assert broker.coordinator.cursors(subscription.id) == {PARTITION: format_offset(1, 2)}


def reset(positions, subscription, offset, **who):
    cursors = [{"event_type": NAME, "partition": "0", "offset": offset}]
    positions.reset(ResetCursors(subscription_id=subscription.id, cursors=cursors), context(**who))


def test_a_reset_is_recorded_with_the_canonical_offsets(broker, positions, subscribe):
    subscription = subscribe()
    head = broker.log.head().position
    reset(positions, subscription, "BEGIN")
    (entry,) = broker.log.entries(head, 10)
    assert entry.event.TOPIC == "subscription.cursors-reset"
    assert entry.event.cursors[0].offset == format_offset(1, -1)
    assert broker.coordinator.cursors(subscription.id) == {PARTITION: format_offset(1, -1)}


def test_a_reset_that_streams_outlast_is_not_recorded(broker, positions, subscribe):
    subscription = subscribe()
    positions.initialise(subscription)
    broker.coordinator.join(subscription.id, "a-stream-that-does-not-end")
    head = broker.log.head()
    with pytest.raises(Unavailable, match="Timeout resetting cursors"):
        reset(positions, subscription, "0")
    assert broker.log.head() == head
    assert broker.coordinator.cursors(subscription.id) == {PARTITION: format_offset(1, 2)}


def test_only_administrators_reset(positions, subscribe):
    subscription = subscribe(authorization=SubscriptionAuthorization(admins=(ALICE,), readers=(ALICE,)))
    with pytest.raises(Denied, match="Access on ADMIN subscription"):
        reset(positions, subscription, "0", subject=Subject(name="bob"))
    reset(positions, subscription, "0", subject=Subject(name="alice", attributes=frozenset({ALICE})))
