import msgspec
import pytest

from rioni.commands.event_types import CreateEventType
from rioni.commands.subscriptions.subscriptions import CreateSubscription
from rioni.commands.system.storages import AddBlacklistEntry, SetAdmins, SwitchFeature
from rioni.domain.access.authorization import UNAUTHENTICATED, Attribute, Subject
from rioni.domain.errors import AccessDenied, Blocked
from rioni.domain.streaming.batching import Visibility
from rioni.domain.subscriptions.subscription import SubscriptionAuthorization
from rioni.domain.system.settings import Admins
from tests.support.broker import DEFAULT_ADMIN
from tests.support.builders import event_type_spec, subscription_spec


ALICE, BOB, CAROL = (Attribute("user", name) for name in ("alice", "bob", "carol"))


def subject(attribute):
    return Subject(name=attribute.value, attributes=frozenset({attribute}))


@pytest.mark.parametrize(
    ("attribute", "enabled", "asked"),
    [
        (ALICE, False, False),
        (ALICE, True, True),
        (DEFAULT_ADMIN, True, False),
    ],
)
def test_readers_see_only_events_of_permitted_owners_while_the_feature_is_on(broker, attribute, enabled, asked):
    broker.do(SwitchFeature(feature="event_owner_selector_authz", enabled=enabled))
    broker.do(CreateEventType(spec=event_type_spec()))
    subscription, _ = broker.do(CreateSubscription(spec=subscription_spec()))
    broker.registry.refresh()
    reader = subject(attribute)
    expected = Visibility(reader=reader if asked else None)
    assert broker.access.visibility(reader) == expected
    assert broker.access.visibility(reader, subscription.id) == msgspec.structs.replace(
        expected, subscription_id=subscription.id
    )


@pytest.mark.parametrize(
    ("entry", "blocked"),
    [
        ("shop", {("user", ""), ("user", "employees"), ("service", "services")}),
        ("service:shop", {("service", "services")}),
        ("user:shop", {("user", ""), ("user", "employees")}),
        ("shop2", set()),
    ],
)
@pytest.mark.parametrize("side", ["PRODUCER", "CONSUMER"])
def test_the_blacklist_names_a_subject_in_all_realms_or_one_attribute(broker, side, entry, blocked):
    """Reference settings-and-storages#blacklist-types."""
    broker.do(AddBlacklistEntry(type=f"{side}_APP", name=entry))
    broker.registry.refresh()
    found = set()
    for kind, realm in (("user", ""), ("user", "employees"), ("service", "services")):
        client = Subject(name="shop", realm=realm, attributes=frozenset({Attribute(kind, "shop")}))
        try:
            broker.access.blacklist(side, client, ())
        except Blocked:
            found.add((kind, realm))
        broker.access.blacklist("CONSUMER" if side == "PRODUCER" else "PRODUCER", client, ())
    assert found == blocked


def test_administrators_and_unauthenticated_readers_see_the_events_of_all_owners(broker):
    broker.do(SwitchFeature(feature="event_owner_selector_authz", enabled=True))
    broker.do(SetAdmins(admins=Admins(admins=(DEFAULT_ADMIN,), readers=(ALICE,), writers=(DEFAULT_ADMIN,))))
    broker.registry.refresh()
    assert broker.access.visibility(subject(ALICE)).reader is None
    assert broker.access.visibility(UNAUTHENTICATED).reader is None


def test_the_filter_of_a_subscription_decides_what_its_readers_see(broker):
    broker.do(CreateEventType(spec=event_type_spec()))
    subscription, _ = broker.do(CreateSubscription(spec=subscription_spec(filter="event.n == 1")))
    broker.registry.refresh()
    wanted = broker.access.visibility(UNAUTHENTICATED, subscription.id).wanted
    assert wanted is not None
    assert wanted.matches(b'{"n":1}')
    assert not wanted.matches(b'{"n":2}')
    assert broker.access.visibility(UNAUTHENTICATED).wanted is None


def test_a_subscription_is_read_by_its_readers_and_the_administrators_for_reading(broker):
    others = SubscriptionAuthorization(admins=(BOB,), readers=(BOB,))
    _set_admins(broker, readers=(ALICE,))
    broker.do(CreateEventType(spec=event_type_spec()))
    subscription, _ = broker.do(CreateSubscription(spec=subscription_spec(authorization=others)))
    broker.registry.refresh()
    for allowed in (ALICE, BOB, DEFAULT_ADMIN):
        assert broker.access.subscription(subject(allowed), subscription.id) == subscription
    with pytest.raises(AccessDenied):
        broker.access.subscription(subject(CAROL), subscription.id)


def test_a_subscription_is_administered_by_its_own_and_the_general_administrators(broker):
    others = SubscriptionAuthorization(admins=(BOB,), readers=(CAROL,))
    _set_admins(broker, admins=(ALICE,))
    broker.do(CreateEventType(spec=event_type_spec()))
    subscription, _ = broker.do(CreateSubscription(spec=subscription_spec(authorization=others)))
    broker.registry.refresh()
    for allowed in (ALICE, BOB, DEFAULT_ADMIN):
        broker.access.administration(subject(allowed), subscription)
    with pytest.raises(AccessDenied):
        broker.access.administration(subject(CAROL), subscription)


def _set_admins(broker, **changes):
    members = {"admins": (DEFAULT_ADMIN,), "readers": (DEFAULT_ADMIN,), "writers": (DEFAULT_ADMIN,)}
    broker.do(SetAdmins(admins=Admins(**members | changes)))
