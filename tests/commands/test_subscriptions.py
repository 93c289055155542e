import pytest

from rioni.commands.event_types import CreateEventType
from rioni.commands.settings import SwitchFeature
from rioni.commands.subscriptions import ChangeSubscription, CreateSubscription, DeleteSubscription
from rioni.domain.authorization import Attribute, Subject, SubscriptionAuthorization
from rioni.domain.errors import Denied, Invalid, SubscriptionNotFound, Unavailable, UnavailableCursor
from rioni.domain.subscription import InitialCursor
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


def test_the_same_subscription_again_is_found_whatever_else_differs(broker):
    first, _ = create(broker, event_types=("order.paid", "order.created"))
    head = broker.log.head()
    again = create(broker, event_types=("order.created", "order.paid", "order.paid"), read_from="begin")
    assert again == (first, False)
    assert broker.log.head() == head


def test_a_found_subscription_is_answered_even_while_creation_is_off(broker):
    first, _ = create(broker)
    broker.do(SwitchFeature(feature="disable_subscription_creation", enabled=True))
    assert create(broker) == (first, False)
    with pytest.raises(Unavailable, match="temporarily unavailable"):
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
        cursor = InitialCursor(event_type="order.created", partition="0", offset=offset)
        return create(broker, read_from="cursors", initial_cursors=(cursor,))

    for offset in ("000", "001-0001-000000000000000000", "001-0002--1"):
        with pytest.raises(UnavailableCursor):
            cursors(offset)
    subscription, _ = cursors("BEGIN")
    assert subscription.initial_cursors[0].offset == "BEGIN"


def test_only_administrators_change_and_delete(broker):
    subscription, _ = create(broker, authorization=ALICES)
    with pytest.raises(Denied, match=f"Access on ADMIN subscription:{subscription.id} denied"):
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
