import re
import uuid

import pytest

from rioni.commands.event_types import CreateEventType
from rioni.commands.subscriptions.cursors import CommitCursors
from rioni.commands.subscriptions.subscriptions import CreateSubscription
from rioni.commands.system.storages import AddBlacklistEntry, RemoveBlacklistEntry
from rioni.commands.timelines.timelines import CleanUpTimeline, StartSwitch
from rioni.domain.access.authorization import BROKER, Attribute, Subject, SubscriptionAuthorization
from rioni.domain.errors import AccessDenied, Blocked, Invalid, InvalidCursor, SubscriptionNotFound, UnavailableCursor
from rioni.domain.timelines.position import EventTypePartition, format_offset
from tests.support.builders import LATER_MS, event_type_spec, subscription_spec


NAME = "order.created"
PARTITION = EventTypePartition(NAME, "0")
PAID = EventTypePartition("order.paid", "0")
ALICE = Attribute("user", "alice")


@pytest.fixture
def subscription(broker):
    """A subscription to two event types of one partition each, with one stream that owns both."""
    for name in (NAME, PAID.event_type):
        broker.do(CreateEventType(spec=event_type_spec(name=name)))
    lists = SubscriptionAuthorization(admins=(ALICE,), readers=(ALICE,))
    spec = subscription_spec(authorization=lists, event_types=(NAME, PAID.event_type))
    subscription, _ = broker.do(CreateSubscription(spec=spec))
    broker.coordinator.initialise(subscription.id, dict.fromkeys((PARTITION, PAID), format_offset(1, -1)))
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
    """Reference subscriptions#commit-order."""
    commit(broker, subscription.id, stream_id, "100")
    offsets = [format_offset(1, position) for position in (105, 106, 102, 96, 130, 120, 121, 130)]
    advanced = [True, True, False, False, True, False, False, False]
    assert list(commit(broker, subscription.id, stream_id, *offsets)) == advanced
    assert broker.coordinator.cursors(subscription.id)[PARTITION] == format_offset(1, 130)


def test_begin_and_plain_numbers_are_accepted(broker, subscription, stream_id):
    assert list(commit(broker, subscription.id, stream_id, "BEGIN", "3")) == [False, True]
    assert broker.coordinator.cursors(subscription.id)[PARTITION] == format_offset(1, 3)


@pytest.mark.parametrize(
    ("offset", "changes", "error", "detail"),
    [
        ("x", {}, InvalidCursor, "invalid offset x for partition 0"),
        ("END", {}, InvalidCursor, "invalid offset END for partition 0"),
        ("0", {"event_type": "nope"}, InvalidCursor, 'EventType "nope" does not exist.'),
        (format_offset(7, 3), {}, UnavailableCursor, f"offset 3 for partition 0 event type {NAME} is unavailable as"),
    ],
)
def test_malformed_cursors_are_rejected(broker, subscription, stream_id, offset, changes, error, detail):
    """Reference cursors#accepted-specifications."""
    with pytest.raises(error, match=detail):
        commit(broker, subscription.id, stream_id, offset, **changes)


def test_rules_are_checked_in_the_documented_order(broker, subscription, stream_id):
    """Everything is wrong at first, and then one thing less each time.

    Source: reference subscriptions#commit-checks, authorization#blacklist-first.
    """
    for _ in range(2):
        broker.timeline_switcher.switch(StartSwitch(event_type=NAME, storage_id="default"), broker.context())
    broker.do(CleanUpTimeline(event_type=NAME, order=2, now_ms=LATER_MS))
    for kind, name in (("CONSUMER_ET", "order.paid"), ("CONSUMER_ET", NAME)):
        broker.do(AddBlacklistEntry(type=kind, name=name))
    expired, there = format_offset(2, -1), format_offset(3, 0)

    def refused(error, detail, subscription_id, session, offset, subject=BROKER, **changes):
        with pytest.raises(error, match=re.escape(detail)):
            commit(broker, subscription_id, session, *([offset] if offset else []), subject=subject, **changes)

    unknown, bob = str(uuid.uuid4()), Subject(name="bob")
    refused(Invalid, "Cursors are empty", unknown, "x", None, bob)
    blocked = "Application or subscription is blocked"
    refused(Blocked, blocked, unknown, "x", expired, bob)
    broker.do(RemoveBlacklistEntry(type="CONSUMER_ET", name=NAME))
    # The subscription reads an event type that is blocked, whichever partition is committed.
    refused(Blocked, blocked, subscription.id, "x", expired, bob)
    broker.do(RemoveBlacklistEntry(type="CONSUMER_ET", name="order.paid"))
    refused(SubscriptionNotFound, f'Subscription with id "{unknown}" does not exist', unknown, "x", expired, bob)
    refused(AccessDenied, f"Access on READ subscription:{subscription.id} denied", subscription.id, "x", expired, bob)
    unavailable = f"offset -1 for partition 0 event type {NAME} is unavailable as retention time of data elapsed. "
    refused(UnavailableCursor, unavailable, subscription.id, "x", expired)
    refused(Invalid, "Stream id has to be valid UUID, but `x was provided", subscription.id, "x", there, partition="9")
    refused(Invalid, f"Session with stream id {unknown} not found", subscription.id, unknown, there, partition="9")
    refused(Invalid, "non existing partition 9", subscription.id, stream_id, there, partition="9")
    other = str(uuid.uuid4())
    broker.coordinator.join(subscription.id, other)
    for partition in (PARTITION, PAID):
        broker.coordinator.release(subscription.id, stream_id, partition)
    owners = {each.session: key for key, each in broker.coordinator.topology(subscription.id).partitions.items()}
    name = owners[other].event_type
    there = format_offset(1, 0)
    cursor = f"Cursor {{partition='0', offset='{there}', event_type='{name}'}}"
    foreign = f"{cursor} cannot be committed with stream id {stream_id}"
    refused(Invalid, foreign, subscription.id, stream_id, there, event_type=name)


def test_one_bad_cursor_rejects_the_whole_commit(broker, subscription, stream_id):
    with pytest.raises(InvalidCursor):
        commit(broker, subscription.id, stream_id, "3", "x")
    assert broker.coordinator.cursors(subscription.id)[PARTITION] == format_offset(1, -1)


def test_only_readers_and_administrators_commit(broker, subscription, stream_id):
    alice = Subject(name="alice", attributes=frozenset({ALICE}))
    assert list(commit(broker, subscription.id, stream_id, "0", subject=alice)) == [True]


def test_positions_that_were_never_sent_can_be_committed(broker, subscription, stream_id):
    """Reference subscriptions#commits-beyond-sent-events."""
    assert list(commit(broker, subscription.id, stream_id, "-1", "25")) == [False, True]
    assert broker.coordinator.cursors(subscription.id)[PARTITION] == format_offset(1, 25)
