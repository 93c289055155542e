import pytest

from rioni.domain.authorization import (
    EVERYBODY,
    UNAUTHENTICATED,
    Attribute,
    Subject,
    check,
    check_duplicates,
    permits,
)
from rioni.domain.errors import Denied, Invalid


ALICE = Attribute("user", "alice")
BOB = Attribute("user", "bob")
SUBJECT = Subject(name="alice", attributes=frozenset({ALICE}))


@pytest.mark.parametrize(
    ("attributes", "permitted"),
    [(None, True), ((ALICE,), True), ((BOB,), False), ((BOB, ALICE), True), ((EVERYBODY,), True), ((), False)],
)
def test_one_matching_attribute_is_enough(attributes, permitted):
    assert permits(attributes, SUBJECT) is permitted


def test_nobody_is_asked_while_authentication_is_off():
    assert permits((BOB,), UNAUTHENTICATED)


def test_the_refusal_names_operation_and_resource():
    with pytest.raises(Denied) as caught:
        check((BOB,), SUBJECT, "READ", "event-type:a")
    assert str(caught.value) == "Access on READ event-type:a denied"


def test_administrators_pass_wherever_a_list_leaves_them_out():
    check((BOB,), SUBJECT, "READ", "event-type:a", admins=(ALICE,))


def test_duplicates_are_named_for_every_list():
    with pytest.raises(Invalid) as caught:
        check_duplicates([("ADMIN", (ALICE, ALICE)), ("READ", (ALICE, BOB)), ("WRITE", (BOB, BOB))])
    assert str(caught.value) == (
        "authorization property 'ADMIN' contains duplicated attribute(s): user:alice; "
        "authorization property 'WRITE' contains duplicated attribute(s): user:bob"
    )
