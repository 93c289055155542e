import pytest

from rioni.commands.event_types import CreateEventType
from rioni.commands.subscriptions.subscriptions import ChangeSubscription, CreateSubscription, DeleteSubscription
from rioni.commands.system.storages import SwitchFeature
from rioni.domain.access.authorization import Attribute, Subject, SubscriptionAuthorization
from rioni.domain.errors import (
    AccessDenied,
    Invalid,
    InvalidFields,
    SubscriptionNotFound,
    Unavailable,
    UnavailableCursor,
)
from rioni.domain.subscriptions.cursor_spec import CursorSpec
from rioni.domain.subscriptions.subscription import InitialCursor
from rioni.domain.timelines.position import format_offset
from tests.support.builders import event_type_spec, subscription_spec


ALICE = Attribute("user", "alice")
ALICES = SubscriptionAuthorization(admins=(ALICE,), readers=(ALICE,))
BOB = Subject(name="bob", attributes=frozenset({Attribute("user", "bob")}))


@pytest.fixture(autouse=True)
def _event_types(broker):
    for name in ("order.created", "order.paid"):
        broker.do(CreateEventType(spec=event_type_spec(name=name)))


def create(broker, **changes):
    return broker.do(CreateSubscription(spec=subscription_spec(**changes)))


def test_creation_claims_the_natural_key(broker):
    head = broker.log.head().position
    subscription, created = create(broker)
    assert created
    assert broker.topics(head) == ["subscription-key.claimed", "subscription.created"]
    assert subscription.event_types == ("order.created",)


def test_creating_a_subscription_with_the_same_key_finds_the_existing_one(broker):
    first, _ = create(broker, event_types=("order.paid", "order.created"))
    head = broker.log.head()
    again = create(broker, event_types=("order.created", "order.paid", "order.paid"), read_from="begin")
    assert again == (first, False)
    assert broker.log.head() == head


@pytest.mark.parametrize(
    ("features", "refusal"),
    [
        (["disable_subscription_creation"], "Subscription creation is temporarily unavailable"),
        (["disable_db_write_operations"], "Database is currently in read-only mode"),
        (["force_subscription_authz", "disable_db_write_operations"], "Database is currently in read-only mode"),
        (["disable_db_write_operations", "disable_subscription_creation"], "Subscription creation is temporarily"),
    ],
)
def test_an_existing_subscription_is_returned_even_while_creation_is_disabled(broker, features, refusal):
    """Reference subscriptions#creation-checks."""
    first, _ = create(broker)
    for feature in features:
        broker.do(SwitchFeature(feature=feature, enabled=True))
    assert create(broker) == (first, False)
    with pytest.raises(Unavailable, match=refusal):
        create(broker, consumer_group="other")


def test_a_deleted_subscription_frees_its_key(broker):
    first, _ = create(broker)
    broker.do(DeleteSubscription(subscription_id=first.id))
    second, created = create(broker)
    assert created
    assert second.id != first.id
    with pytest.raises(SubscriptionNotFound):
        broker.do(DeleteSubscription(subscription_id=first.id))


def test_unknown_event_types_are_named(broker):
    with pytest.raises(Invalid, match=r"event type\(s\) not found: 'a', 'b'"):
        create(broker, event_types=("b", "order.paid", "a"))


def test_initial_cursors_must_be_available(broker):
    def cursors(offset):
        cursor = CursorSpec(event_type="order.created", partition="0", offset=offset)
        return create(broker, read_from="cursors", initial_cursors=(cursor,))

    for offset in ("000", "001-0001-000000000000000000", "001-0002--1"):
        with pytest.raises(UnavailableCursor):
            cursors(offset)
    subscription, _ = cursors("BEGIN")
    assert subscription.initial_cursors[0].offset == "BEGIN"


@pytest.mark.parametrize(
    ("named", "kept"),
    [
        ({"offset": "BEGIN"}, "BEGIN"),
        ({"offset": "1"}, "1"),
        ({"offset": "END"}, format_offset(1, 2)),
        ({"offset": "1", "shift": 1}, format_offset(1, 2)),
        ({"offset": "BEGIN", "shift": 1}, format_offset(1, 0)),
        ({"timestamp": "2020-01-01T00:00:00Z"}, format_offset(1, -1)),
    ],
)
def test_initial_cursors_store_offsets_as_given_and_other_cursor_specs_resolved(broker, named, kept):
    broker.registry.refresh()
    broker.store.append(broker.registry.timelines("order.created").active.topic, {0: [b"{}", b"{}", b"{}"]})
    cursor = CursorSpec(event_type="order.created", partition="0", **named)
    subscription, _ = create(broker, read_from="cursors", initial_cursors=(cursor,))
    expected = InitialCursor(event_type="order.created", partition="0", offset=kept)
    assert subscription.initial_cursors == (expected,)
    spec = subscription_spec(read_from="cursors", initial_cursors=(expected.named,))
    broker.do(ChangeSubscription(subscription_id=subscription.id, spec=spec))
    spec = subscription_spec(read_from="cursors", initial_cursors=(CursorSpec(offset="END", shift=-1),))
    with pytest.raises(Invalid, match="Not allowed to change subscription initial cursors"):
        broker.do(ChangeSubscription(subscription_id=subscription.id, spec=spec))


def test_initial_cursors_may_be_for_all_partitions(broker):
    event_types = ("order.created", "order.paid")
    subscription, _ = create(
        broker, event_types=event_types, read_from="cursors", initial_cursors=(CursorSpec(offset="begin"),)
    )
    assert [(each.event_type, each.partition, each.offset) for each in subscription.initial_cursors] == [
        (name, "0", "begin") for name in event_types
    ]
    foreign = (CursorSpec(offset="END"), CursorSpec(event_type="nope", offset="END"))
    with pytest.raises(Invalid, match="only for partitions of this subscription"):
        create(broker, consumer_group="a", read_from="cursors", initial_cursors=foreign)
    twice = (CursorSpec(offset="END"), CursorSpec(event_type="order.created", offset="END"))
    with pytest.raises(Invalid, match="no more than 1 cursor for each partition"):
        create(broker, consumer_group="a", read_from="cursors", initial_cursors=twice)


@pytest.mark.parametrize(
    "named", [{"offset": "END"}, {"offset": "1", "shift": 1}, {"offset": "BEGIN", "partition": None}]
)
def test_unused_initial_cursors_may_only_be_offsets(broker, named):
    cursor = CursorSpec(**{"event_type": "order.created", "partition": "0"} | named)
    with pytest.raises(InvalidFields, match="unless read_from is cursors"):
        create(broker, read_from="begin", initial_cursors=(cursor,))
    unused = CursorSpec(event_type="order.created", partition="0", offset="x")
    subscription, _ = create(broker, read_from="begin", initial_cursors=(unused,))
    broker.registry.refresh()
    broker.cursor_initializer.initialise(subscription)
    assert list(broker.coordinator.cursors(subscription.id).values()) == [format_offset(1, -1)]


def test_only_administrators_change_and_delete(broker):
    subscription, _ = create(broker, authorization=ALICES)
    with pytest.raises(AccessDenied, match=f"Access on ADMIN subscription:{subscription.id} denied"):
        broker.do(DeleteSubscription(subscription_id=subscription.id), BOB)


def test_a_change_is_recorded_once(broker):
    subscription, _ = create(broker)
    change = ChangeSubscription(subscription_id=subscription.id, spec=subscription_spec(labels={"a": "b"}))
    head = broker.log.head().position
    broker.do(change)
    broker.do(change)
    assert broker.topics(head) == ["subscription.changed"]
    broker.registry.refresh()
    assert broker.registry.subscription(subscription.id).labels == {"a": "b"}
