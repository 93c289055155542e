import uuid

import pytest

from rioni.commands.cursors import CommitCursors
from rioni.commands.event_types import CreateEventType
from rioni.commands.settings import AddBlacklistEntry
from rioni.commands.subscriptions import CreateSubscription
from rioni.domain.authorization import BROKER, Attribute, Subject, SubscriptionAuthorization
from rioni.domain.cursor import format_offset
from rioni.domain.errors import Blocked, Denied, Invalid, InvalidCursor, SubscriptionNotFound, UnavailableCursor
from rioni.domain.ports import EventTypePartition
from tests.support.builders import event_type_spec, subscription_spec


NAME = "order.created"
PARTITION = EventTypePartition(NAME, "0")
ALICE = Attribute("user", "alice")


@pytest.fixture
def subscription(broker):
    broker.do(CreateEventType(spec=event_type_spec()))
    lists = SubscriptionAuthorization(admins=(ALICE,), readers=(ALICE,))
    subscription, _ = broker.do(CreateSubscription(spec=subscription_spec(authorization=lists)))
    broker.coordinator.initialise(subscription.id, {PARTITION: format_offset(1, -1)})
    return subscription


@pytest.fixture
def stream_id(broker, subscription):
    stream_id = str(uuid.uuid4())
    broker.coordinator.join(subscription.id, stream_id)
    return stream_id


def commit(broker, subscription_id, stream_id, *offsets, subject=BROKER, **changes):
    cursors = [{"event_type": NAME, "partition": "0", "offset": offset} | changes for offset in offsets]
    command = CommitCursors(subscription_id=subscription_id, stream_id=stream_id, cursors=cursors)
    return broker.committer.commit(command, subject)


def test_cursors_advance_in_the_order_of_the_request(broker, subscription, stream_id):
    offsets = [format_offset(1, position) for position in (5, 6, 2, 7)]
    assert list(commit(broker, subscription.id, stream_id, *offsets)) == [True, True, False, True]
    assert broker.coordinator.cursors(subscription.id) == {PARTITION: offsets[-1]}


def test_begin_and_plain_numbers_are_understood(broker, subscription, stream_id):
    assert list(commit(broker, subscription.id, stream_id, "BEGIN", "3")) == [False, True]
    assert broker.coordinator.cursors(subscription.id) == {PARTITION: format_offset(1, 3)}


@pytest.mark.parametrize(
    ("offset", "changes", "error"),
    [
        ("x", {}, InvalidCursor),
        ("0", {"event_type": "nope"}, InvalidCursor),
        ("001-0007-000000000000000000", {}, UnavailableCursor),
    ],
)
def test_cursors_that_name_nothing_are_refused(broker, subscription, stream_id, offset, changes, error):
    with pytest.raises(error):
        commit(broker, subscription.id, stream_id, offset, **changes)


def test_nothing_to_commit_is_refused(broker, subscription, stream_id):
    with pytest.raises(Invalid, match="Cursors are empty"):
        commit(broker, subscription.id, stream_id)


def test_only_readers_and_administrators_commit(broker, subscription, stream_id):
    with pytest.raises(Denied, match=f"Access on READ subscription:{subscription.id} denied"):
        commit(broker, subscription.id, stream_id, "0", subject=Subject(name="bob"))
    alice = Subject(name="alice", attributes=frozenset({ALICE}))
    assert list(commit(broker, subscription.id, stream_id, "0", subject=alice)) == [True]


def test_blocked_consumers_do_not_commit(broker, subscription, stream_id):
    broker.do(AddBlacklistEntry(type="CONSUMER_ET", name=NAME))
    with pytest.raises(Blocked, match="Application or subscription is blocked"):
        commit(broker, subscription.id, stream_id, "0")


def test_subscription_and_stream_must_exist(broker, subscription, stream_id):
    with pytest.raises(SubscriptionNotFound):
        commit(broker, str(uuid.uuid4()), stream_id, "0")
    with pytest.raises(Invalid, match="Stream id has to be valid UUID"):
        commit(broker, subscription.id, "x", "0")
    with pytest.raises(Invalid, match="not found"):
        commit(broker, subscription.id, str(uuid.uuid4()), "0")
