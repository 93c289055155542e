import threading
from decimal import Decimal

import pytest

from rioni.client import NotFound
from rioni.testing import Broker
from rioni.testing.expectations import SHOWN_MAX, matches


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ({"a": 1, "b": 2}, {"a": 1}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"c": 2}}),
        ({"a": [1, {"b": 2, "c": 3}]}, {"a": [1, {"b": 2}]}),
        ({"a": [1, 2]}, {"a": (1, 2)}),
        ({"a": 5}, {"a": lambda value: value > 4}),
        ({"a": 5}, lambda event: "a" in event),
        ({"a": None}, {"a": None}),
        ({}, {}),
    ],
)
def test_what_has_all_that_is_wanted_matches(value, wanted):
    assert matches(value, wanted)


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ({"a": 1}, {"a": 2}),
        ({}, {"a": None}),
        ({"a": 1}, {"a": {"b": 1}}),
        ({"a": [1, 2]}, {"a": [1]}),
        ({"a": [1]}, {"a": [1, 2]}),
        ({"a": "xy"}, {"a": ["x", "y"]}),
        ({"a": 5}, {"a": lambda value: value > 5}),
    ],
)
def test_what_lacks_something_does_not_match(value, wanted):
    assert not matches(value, wanted)


def test_events_of_all_partitions_are_found(broker: Broker):
    broker.create_event_type("order.created", partitions=3)
    broker.publish("order.created", *({"order": number} for number in range(20)))
    assert len(broker.expect("order.created")) == 20
    assert len(broker.expect("order.created", lambda event: event["order"] % 2, count=10)) == 10
    assert sorted(event["order"] for event in broker.published("order.created")) == [*range(20)]


def test_a_failed_expectation_shows_what_was_published(broker: Broker):
    broker.create_event_type("order.created", category="undefined")
    with pytest.raises(AssertionError, match=r"Nothing else was published"):
        broker.expect("order.created", within_s=0)
    broker.publish("order.created", {"order": "1", "city": "Zürich"})
    with pytest.raises(AssertionError) as failed:
        broker.expect("order.created", {"order": "2"}, within_s=0)
    assert str(failed.value) == (
        'Expected an event of order.created like {"order": "2"} within 0 s; 0 came. All 1 that were published to it:\n'
        '  {"order": "1", "city": "Zürich"}'
    )
    broker.publish("order.created", *({"text": "x" * 10_000} for _ in range(2 * SHOWN_MAX)))
    with pytest.raises(AssertionError, match=f"The last {SHOWN_MAX} of all 21") as failed:
        broker.expect("order.created", {"order": lambda order: order == "3"}, within_s=0)
    assert "<lambda>" in str(failed.value)
    assert len(str(failed.value)) < 10_000


def test_an_event_type_that_is_created_later_is_waited_for(broker: Broker):
    with pytest.raises(AssertionError, match=r"There is no event type of this name\."):
        broker.expect("order.created", within_s=0.1)
    with pytest.raises(NotFound):
        broker.published("order.created")
    creation = threading.Timer(
        0.1, lambda: (broker.create_event_type("order.created"), broker.publish("order.created", {}))
    )
    creation.start()
    assert len(broker.expect("order.created", within_s=60)) == 1
    creation.join()


def test_more_events_than_expected_fail_at_once(broker: Broker):
    broker.create_event_type("order.created")
    broker.publish("order.created", {"order": 1}, {"order": 1})
    with pytest.raises(AssertionError, match=r"Expected 1 event of .*; 2 came"):
        broker.expect("order.created", {"order": 1}, count=1, within_s=60)


def test_no_event_is_waited_for_until_the_time_is_over(broker: Broker):
    broker.create_event_type("order.created")
    assert broker.expect("order.created", count=0, within_s=0.1) == []
    broker.publish("order.created", {"order": 1})
    with pytest.raises(AssertionError, match=r"Expected 0 events .*; 1 came"):
        broker.expect("order.created", count=0, within_s=60)


def test_numbers_keep_their_digits(broker: Broker):
    long, small = Decimal("0.1234567890123456789"), Decimal("1E-400")
    broker.create_event_type("order.created", category="undefined")
    broker.publish("order.created", {"long": long, "small": small, "plain": 1.5})
    assert broker.published("order.created") == [{"long": long, "small": small, "plain": 1.5}]
    assert isinstance(broker.published("order.created")[0]["plain"], float)
    assert broker.expect("order.created", {"long": long}, within_s=0)
    with pytest.raises(AssertionError, match=r'"long": 0\.1234567890123456789, "small": 1E-400, "plain": 1\.5'):
        broker.expect("order.created", {"long": 0.1234567890123456789}, within_s=0)
