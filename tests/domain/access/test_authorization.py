"""Lists of attributes and the subjects they permit: reference authorization#model, authorization#section-rules."""

import pytest

from rioni.domain.access.authorization import (
    EVERYBODY,
    UNAUTHENTICATED,
    Attribute,
    EventTypeAuthorization,
    Subject,
    SubscriptionAuthorization,
    check,
    check_duplicates,
    permits,
)
from rioni.domain.errors import AccessDenied, Invalid, InvalidFields
from rioni.domain.event_types.rules import check_fields as check_event_type
from rioni.domain.limits import ATTRIBUTES_MAX
from rioni.domain.subscriptions.subscription import check_fields as check_subscription
from tests.support.builders import event_type_spec, subscription_spec


ALICE = Attribute("user", "alice")
BOB = Attribute("user", "bob")
SUBJECT = Subject(name="alice", attributes=frozenset({ALICE}))


@pytest.mark.parametrize(
    ("attributes", "permitted"),
    [(None, True), ((ALICE,), True), ((BOB,), False), ((BOB, ALICE), True), ((EVERYBODY,), True), ((), False)],
)
def test_one_matching_attribute_is_enough(attributes, permitted):
    """Reference authorization#wildcard, authorization#sections, authorization#no-section."""
    assert permits(attributes, SUBJECT) is permitted


def test_everything_is_permitted_while_authentication_is_off():
    """Reference authorization#authentication-off."""
    assert permits((BOB,), UNAUTHENTICATED)


def test_the_error_names_operation_and_resource():
    """Reference authorization#denials."""
    with pytest.raises(AccessDenied) as caught:
        check((BOB,), SUBJECT, "READ", "event-type:a")
    assert str(caught.value) == "Access on READ event-type:a denied"


def test_duplicates_are_named_for_every_list():
    """Reference authorization#duplicates."""
    with pytest.raises(Invalid) as caught:
        check_duplicates([("ADMIN", (ALICE, ALICE)), ("READ", (ALICE, BOB)), ("WRITE", (BOB, BOB))])
    assert str(caught.value) == (
        "authorization property 'ADMIN' contains duplicated attribute(s): user:alice; "
        "authorization property 'WRITE' contains duplicated attribute(s): user:bob"
    )


def test_the_search_for_duplicates_takes_linear_time():
    compared = 0

    class Counted(Attribute, frozen=True, order=True):
        def __eq__(self, other):
            nonlocal compared
            compared += 1
            return (self.data_type, self.value) == (other.data_type, other.value)

        def __hash__(self):
            return hash(self.value)

    readers = [Counted("user", str(number)) for number in range(2_000)]
    with pytest.raises(Invalid, match=r"duplicated attribute\(s\): user:0$"):
        check_duplicates([("READ", (*readers, Counted("user", "0")))])
    assert compared < 10 * len(readers)


@pytest.mark.parametrize(
    ("check_fields", "spec"), [(check_event_type, event_type_spec), (check_subscription, subscription_spec)]
)
def test_lists_of_attributes_have_a_limit(check_fields, spec):
    """Reference authorization#list-sizes."""
    section = EventTypeAuthorization if spec is event_type_spec else SubscriptionAuthorization
    lists = dict.fromkeys(section.__struct_fields__, (ALICE,) * ATTRIBUTES_MAX)
    check_fields(spec(authorization=section(**lists)))
    for name in lists:
        with pytest.raises(InvalidFields, match=f"authorization.{name}. must not contain more than {ATTRIBUTES_MAX}"):
            check_fields(spec(authorization=section(**{**lists, name: (ALICE,) * (ATTRIBUTES_MAX + 1)})))
