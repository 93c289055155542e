"""Filters of the list of event types."""

import msgspec
import pytest

from rioni.commands.event_types import CreateEventType
from rioni.domain.access.authorization import EVERYBODY, Attribute, EventTypeAuthorization
from rioni.domain.event_types.event_type import EventType
from rioni.projections.queries.event_types import EventTypeFilter, page
from rioni.storage.sql import engines
from tests.support.broker import running_broker
from tests.support.builders import event_type_spec


ALICE, BOB = Attribute("user", "alice"), Attribute("user", "bob")
TEAM = {"team": "orders", "shop.org/tier": "1"}


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    """The names on a page of the event types that match, and whether there are more."""
    owned = EventTypeAuthorization(admins=(ALICE,), readers=(BOB, EVERYBODY), writers=(ALICE, BOB))
    with running_broker(tmp_path_factory.mktemp("data") / "rioni") as broker:
        for spec in (
            event_type_spec(name="order.created", authorization=owned, labels=TEAM),
            event_type_spec(name="order.paid", owning_application="pay", labels={"team": "money"}, annotations=TEAM),
            event_type_spec(name="a", category="undefined", enrichment_strategies=()),
            event_type_spec(name="order.order.created"),
        ):
            broker.do(CreateEventType(spec=spec))

        def read(wanted, *numbers):
            with engines.reading(broker.engine) as connection:
                bodies, more = page(connection, EventTypeFilter(**wanted), *numbers)
            return [msgspec.json.decode(body, type=EventType).name for body in bodies], more

        yield read


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


@pytest.mark.parametrize("wanted", [{}, {"name": "*"}], ids=["in SQL", "by a filter"])
def test_pages_follow_each_other_and_say_whether_there_are_more(read, wanted):
    names, more = read(wanted)
    assert len(names) > 3
    assert not more
    for limit in range(1, len(names) + 2):
        for offset in range(len(names) + 2):
            end = offset + limit
            assert read(wanted, offset, limit) == (names[offset:end], end < len(names))
