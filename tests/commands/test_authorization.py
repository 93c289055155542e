import msgspec
import pytest

from rioni.commands.event_types import CreateEventType
from rioni.commands.subscriptions.subscriptions import CreateSubscription
from rioni.commands.system.settings import SetAdmins, SwitchFeature
from rioni.domain.access.authorization import UNAUTHENTICATED, Attribute, Subject
from rioni.domain.streaming.visibility import Visibility
from rioni.domain.system.settings import Admins
from tests.support.broker import DEFAULT_ADMIN
from tests.support.builders import event_type_spec, subscription_spec


ALICE = Attribute("user", "alice")


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
