"""Filters of the list of event types."""

import pytest

from rioni.domain.access.authorization import EVERYBODY, Attribute, EventTypeAuthorization
from rioni.domain.event_types.selection import EventTypeFilter, page
from tests.support.builders import event_type


ALICE, BOB = Attribute("user", "alice"), Attribute("user", "bob")
TEAM = {"team": "orders", "shop.org/tier": "1"}
OWNED = EventTypeAuthorization(admins=(ALICE,), readers=(BOB, EVERYBODY), writers=(ALICE, BOB))
EVENT_TYPES = [
    event_type(name="order.created", authorization=OWNED, labels=TEAM),
    event_type(name="order.paid", owning_application="pay", labels={"team": "money"}, annotations=TEAM),
    event_type(name="a", category="undefined", enrichment_strategies=()),
    event_type(name="order.order.created", cleanup_policy="compact"),
]


@pytest.fixture
def read():
    """The names on a page of the event types that match, and whether there are more."""

    return lambda wanted, *numbers: page(EVENT_TYPES, EventTypeFilter(**wanted), *numbers)


@pytest.fixture
def find(read):
    """The names of all event types that match."""
    return lambda **wanted: read(wanted)[0]


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ({}, ["a", "order.created", "order.order.created", "order.paid"]),
        ({"name": "order.paid"}, ["order.paid"]),
        ({"name": "order"}, []),
        ({"name": "order.*"}, ["order.created", "order.order.created", "order.paid"]),
        ({"name": "*created"}, ["order.created", "order.order.created"]),
        ({"name": "*"}, ["a", "order.created", "order.order.created", "order.paid"]),
        ({"name": "*a*"}, ["a", "order.created", "order.order.created", "order.paid"]),
        ({"name": "order.*order.*"}, ["order.order.created"]),
        ({"name": "o*.*.c*d"}, ["order.order.created"]),
        ({"name": "a*a"}, []),
        ({"name": "order.%"}, []),
        ({"name": "ORDER.*"}, []),
        ({"name": "."}, []),
        ({"owning_application": "pay"}, ["order.paid"]),
        ({"owning_application": "pay", "name": "a*"}, []),
        ({"category": "undefined"}, ["a"]),
        ({"cleanup_policy": "compact"}, ["order.order.created"]),
        ({"attributes": (("admins", ALICE),)}, ["order.created"]),
        ({"attributes": (("readers", ALICE),)}, []),
        ({"attributes": (("readers", BOB), ("writers", BOB))}, ["order.created"]),
        ({"attributes": (("readers", BOB), ("admins", BOB))}, []),
        ({"attributes": (("readers", EVERYBODY),)}, ["order.created"]),
        ({"labels": (("team", None),)}, ["order.created", "order.paid"]),
        ({"labels": (("team", "money"),)}, ["order.paid"]),
        ({"labels": (("team", "orders"), ("shop.org/tier", "1"))}, ["order.created"]),
        ({"labels": (("team", "orders"), ("shop.org/tier", "2"))}, []),
        ({"annotations": (("team", "orders"),)}, ["order.paid"]),
        ({"annotations": (("team", ""),)}, []),
    ],
    ids=str,
)
def test_event_types_that_match_all_filters_are_listed(find, wanted, names):
    assert find(**wanted) == names


def test_a_pattern_with_very_many_stars_is_evaluated_at_once(find):
    assert find(name="*r" * 5_000 + "x") == []


def test_pages_follow_each_other_and_say_whether_there_are_more(read):
    names, more = read({})
    assert len(names) > 3
    assert not more
    for limit in range(1, len(names) + 2):
        for offset in range(len(names) + 2):
            end = offset + limit
            assert read({}, offset, limit) == (names[offset:end], end < len(names))
