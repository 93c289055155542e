"""The answers of `/rights` agree with the checks: each right, each list that may grant it, each subject."""

import pytest

from rioni.commands.authorization import AccessPolicy
from rioni.commands.event_types import ChangeEventType, CreateEventType
from rioni.commands.subscriptions.subscriptions import ChangeSubscription, CreateSubscription
from rioni.commands.system.storages import SetAdmins, SwitchFeature
from rioni.domain.access.authorization import (
    UNAUTHENTICATED,
    Attribute,
    EventTypeAuthorization,
    Subject,
    SubscriptionAuthorization,
)
from rioni.domain.errors import AccessDenied, AdminOnly, EventTypeNotFound, SubscriptionNotFound
from rioni.domain.system.settings import Admins
from tests.support.broker import DEFAULT_ADMIN
from tests.support.builders import event_type_spec, subscription_spec


LISTED = {
    name: Attribute("user", name)
    for name in (
        "reader", "writer", "admin", "subscriber", "subscription_admin",
        "broker_reader", "broker_writer", "broker_admin", "analyst", "auditor",
    )
}  # fmt: skip
"""One attribute for each list."""
SUBJECTS = [
    *(Subject(name=name, attributes=frozenset({attribute})) for name, attribute in LISTED.items()),
    Subject(name="both", attributes=frozenset({LISTED["reader"], LISTED["subscriber"]})),
    Subject(name="default_admin", attributes=frozenset({DEFAULT_ADMIN})),
    Subject(name="stranger"),
    UNAUTHENTICATED,
]
SECTION = EventTypeAuthorization(admins=(LISTED["admin"],), readers=(LISTED["reader"],), writers=(LISTED["writer"],))
SUBSCRIPTION_SECTION = SubscriptionAuthorization(
    admins=(LISTED["subscription_admin"],), readers=(LISTED["subscriber"],)
)
ADMINS = Admins(
    admins=(LISTED["broker_admin"],), readers=(LISTED["broker_reader"],), writers=(LISTED["broker_writer"],)
)


@pytest.fixture
def access(broker):
    """The policy of a broker with an attribute in each list."""
    broker.do(SetAdmins(admins=ADMINS))
    # While it is on, reading events of all owners is what only those do who may READ the broker.
    broker.do(SwitchFeature(feature="event_owner_selector_authz", enabled=True))
    return AccessPolicy(broker.registry, DEFAULT_ADMIN, (LISTED["analyst"],), (LISTED["auditor"],))


@pytest.mark.parametrize("section", [None, SECTION])
@pytest.mark.parametrize("subscription_section", [None, SUBSCRIPTION_SECTION])
@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_rights_are_those_that_the_checks_look_at(broker, access, section, subscription_section, subject):
    """Reference authorization#own-rights, authorization#broker-administrators, authorization#all-data-access."""
    event_type = broker.do(CreateEventType(spec=event_type_spec(authorization=section)))
    spec = subscription_spec(authorization=subscription_section)
    subscription, _ = broker.do(CreateSubscription(spec=spec))
    broker.registry.refresh()
    name = event_type.name

    def passes(check, *arguments):
        try:
            check(*arguments)
        except (AccessDenied, AdminOnly):
            return False
        return True

    def stream():
        access.subscription(subject, subscription.id)
        access.event_type(subject, name, "READ")

    def administer():
        access.administration(subject, subscription)
        broker.do(ChangeSubscription(subscription_id=subscription.id, spec=spec), subject)

    change = ChangeEventType(name=name, spec=event_type_spec(authorization=section))
    may = {
        "event_type": {
            "READ": passes(access.event_type, subject, name, "READ"),
            "WRITE": passes(access.event_type, subject, name, "WRITE"),
            "ADMIN": passes(broker.do, change, subject),
        },
        "subscription": {
            "READ": passes(access.subscription, subject, subscription.id),
            "ADMIN": passes(administer),
            "STREAM": passes(stream),
            "REDRIVE": passes(access.redrive, subject, subscription.id),
        },
        "broker": {
            "READ": access.visibility(subject).reader is None,
            "WRITE": passes(broker.do, SwitchFeature(feature="event_owner_selector_authz", enabled=True), subject),
            "ADMIN": passes(broker.do, SetAdmins(admins=ADMINS), subject),
            "HISTORY": passes(access.history, subject),
        },
    }
    rights = access.rights(subject, name, subscription.id)
    assert rights.subject == subject.name
    assert {kind: getattr(rights, kind) for kind in may} == {
        kind: [right for right, allowed in checked.items() if allowed] for kind, checked in may.items()
    }


def test_rights_to_what_does_not_exist_are_an_error(access):
    """Reference authorization#own-rights."""
    with pytest.raises(EventTypeNotFound):
        access.rights(UNAUTHENTICATED, "no.such")
    with pytest.raises(SubscriptionNotFound):
        access.rights(UNAUTHENTICATED, None, "no-such")
