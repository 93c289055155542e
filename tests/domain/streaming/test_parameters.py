"""The parameters of streams, row by row.

Source: reference low-level-streams#parameters, streams#parameters, with the rulings of 14.
"""

import pytest

from rioni.domain.errors import Invalid, Malformed
from rioni.domain.streaming.parameters import (
    StreamLimits,
    check_partitions,
    low_level_parameters,
    subscription_parameters,
)
from rioni.domain.timelines.position import EventTypePartition
from tests.support.tables import rows


LIMITS = StreamLimits(stream_timeout_default_s=3333)
INT32_MAX = 2**31 - 1


@pytest.mark.parametrize(
    ("given", "name", "value"),
    rows(
        ("batch_limit", {}, "batch_limit", 1),
        ("stream_limit", {}, "stream_limit", 0),
        ("stream_limit 0", {"stream_limit": 0, "batch_limit": 5}, "stream_limit", 0),
        ("batch_flush_timeout", {}, "batch_flush_timeout_s", 30),
        ("batch_flush_timeout 0", {"batch_flush_timeout": 0}, "batch_flush_timeout_s", 30),
        ("stream_timeout", {}, "stream_timeout_s", 3333),
        ("stream_timeout 0", {"stream_timeout": 0}, "stream_timeout_s", 3333),
        ("stream_timeout below 0", {"stream_timeout": -1}, "stream_timeout_s", 3333),
        ("stream_timeout of the largest", {"stream_timeout": 4200}, "stream_timeout_s", 4200),
        ("stream_timeout above it", {"stream_timeout": 4201}, "stream_timeout_s", 3333),
        ("stream_keep_alive_limit", {}, "stream_keep_alive_limit", 0),
        ("events_per_second_limit", {}, "events_per_second_limit", 0),
        ("events_per_second_limit as text", {"events_per_second_limit": "7"}, "events_per_second_limit", 7),
        ("memory", {}, "memory_bytes_max", 50_000_000),
        ("nothing is committed", {"max_uncommitted_events": 7}, "max_uncommitted_events", 0),
    ),
)
def test_parameters_of_low_level_streams(given, name, value):
    """Reference low-level-streams#stream-timeout."""
    assert getattr(low_level_parameters(given, LIMITS), name) == value


@pytest.mark.parametrize(
    ("given", "name", "value"),
    rows(
        ("max_uncommitted_events", {}, "max_uncommitted_events", 10),
        ("batch_limit", {}, "batch_limit", 1),
        ("stream_limit", {}, "stream_limit", 0),
        ("batch_flush_timeout", {}, "batch_flush_timeout_s", 30),
        ("batch_flush_timeout 0", {"batch_flush_timeout": 0}, "batch_flush_timeout_s", 30),
        ("batch_timespan", {}, "batch_timespan_s", 0),
        ("batch_timespan in a query", {"batch_timespan": "5"}, "batch_timespan_s", 5),
        ("stream_timeout", {}, "stream_timeout_s", 3333),
        ("stream_timeout 0", {"stream_timeout": 0}, "stream_timeout_s", 3333),
        ("stream_timeout below 0", {"stream_timeout": -1}, "stream_timeout_s", 3333),
        ("stream_timeout above 4200", {"stream_timeout": 4201}, "stream_timeout_s", 3333),
        (
            "stream_timeout below batch_flush_timeout",
            {"stream_timeout": 2, "batch_flush_timeout": 600},
            "stream_timeout_s",
            2,
        ),
        ("stream_keep_alive_limit", {}, "stream_keep_alive_limit", 0),
        ("commit_timeout", {}, "commit_timeout_s", 60),
        ("commit_timeout 0", {"commit_timeout": 0}, "commit_timeout_s", 60),
        ("commit_timeout of the longest", {"commit_timeout": 60}, "commit_timeout_s", 60),
        ("partitions", {}, "partitions", ()),
        ("partitions []", {"partitions": []}, "partitions", ()),
        ("partitions null", {"partitions": None}, "partitions", ()),
    ),
)
def test_parameters_of_streams_of_subscriptions(given, name, value):
    assert getattr(subscription_parameters(given, LIMITS), name) == value


@pytest.mark.parametrize("parse", [low_level_parameters, subscription_parameters])
def test_limits_are_taken_as_they_are_given(parse):
    """Reference low-level-streams#parameters, streams#parameters."""
    given = {"batch_limit": 20, "stream_limit": 20, "stream_keep_alive_limit": INT32_MAX, "batch_flush_timeout": 1}
    parameters = parse({**given, "stream_timeout": 1}, StreamLimits(stream_timeout_default_s=9, memory_bytes_max=5))
    assert parameters.batch_limit == parameters.stream_limit == 20
    assert parameters.stream_keep_alive_limit == INT32_MAX
    assert parameters.batch_flush_timeout_s == parameters.stream_timeout_s == 1
    assert parameters.memory_bytes_max == 5


@pytest.mark.parametrize("parse", [low_level_parameters, subscription_parameters])
def test_numbers_have_32_bits(parse):
    for number in (INT32_MAX + 1, -INT32_MAX - 1):
        with pytest.raises(Malformed, match=r"^stream_limit must be an integer of 32 bits$"):
            parse({"stream_limit": number}, LIMITS)


def test_one_uncommitted_event_is_enough():
    assert subscription_parameters({"max_uncommitted_events": 1}, LIMITS).max_uncommitted_events == 1


@pytest.mark.parametrize("value", ["7", 7, 7.0], ids=repr)
@pytest.mark.parametrize("parse", [low_level_parameters, subscription_parameters])
def test_numbers_may_be_given_as_text_and_with_a_fraction_of_zero(parse, value):
    assert repr(parse({"batch_limit": value}, LIMITS).batch_limit) == "7"


@pytest.mark.parametrize("value", ["x", "", "1.5", 2.5, True, [], 2**31, "9" * 30])
@pytest.mark.parametrize("parse", [low_level_parameters, subscription_parameters])
def test_invalid_numbers_are_malformed(parse, value):
    with pytest.raises(Malformed, match="batch_limit"):
        parse({"batch_limit": value}, LIMITS)


@pytest.mark.parametrize(
    ("query", "text"),
    rows(
        ("batch_limit", {"batch_limit": 0}, "batch_limit can't be lower than 1"),
        ("batch_limit below 0", {"batch_limit": -1}, "batch_limit can't be lower than 1"),
        ("stream_limit", {"stream_limit": 1, "batch_limit": 2}, "stream_limit can't be lower than batch_limit"),
        (
            "stream_timeout",
            {"stream_timeout": 5, "batch_flush_timeout": 6},
            "stream_timeout can't be lower than batch_flush_timeout",
        ),
        (
            "a batch_flush_timeout above every stream_timeout",
            {"batch_flush_timeout": 3334},
            "stream_timeout can't be lower than batch_flush_timeout",
        ),
        (
            "stream_limit first",
            {"stream_limit": -1, "stream_timeout": 1, "batch_limit": 0},
            "stream_limit can't be lower than batch_limit",
        ),
        (
            "then stream_timeout",
            {"stream_timeout": 1, "batch_limit": 0},
            "stream_timeout can't be lower than batch_flush_timeout",
        ),
    ),
)
def test_invalid_parameters_of_low_level_streams(query, text):
    """Reference low-level-streams#parameter-errors."""
    with pytest.raises(Invalid) as caught:
        low_level_parameters(query, LIMITS)
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("body", "text"),
    rows(
        ("max_uncommitted_events", {"max_uncommitted_events": 0}, "max_uncommitted_events can't be lower than 1"),
        ("batch_limit", {"batch_limit": 0}, "batch_limit can't be lower than 1"),
        ("stream_limit", {"stream_limit": 1, "batch_limit": 2}, "stream_limit can't be lower than batch_limit"),
        ("commit_timeout above 60", {"commit_timeout": 61}, "commit_timeout can not be more than 60"),
        ("commit_timeout below 0", {"commit_timeout": -1}, "commit_timeout can not be less than 0"),
    ),
)
def test_invalid_parameters_of_streams_of_subscriptions(body, text):
    """Reference streams#parameter-errors."""
    with pytest.raises(Invalid) as caught:
        subscription_parameters(body, LIMITS)
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("partitions", "text"),
    [
        ("0", "partitions must be a list"),
        ([1], "each of partitions must have event_type and partition, both of them text"),
        ([{"event_type": "a"}], "each of partitions must have event_type and partition, both of them text"),
        (
            [{"event_type": "a", "partition": 0}],
            "each of partitions must have event_type and partition, both of them text",
        ),
    ],
)
def test_malformed_partitions(partitions, text):
    with pytest.raises(Malformed, match=f"^{text}$"):
        subscription_parameters({"partitions": partitions}, LIMITS)


def test_requested_partitions():
    body = {"partitions": [{"event_type": "a", "partition": "0"}, {"event_type": "b", "partition": "0"}]}
    got = subscription_parameters(body, LIMITS).partitions
    assert got == (EventTypePartition("a", "0"), EventTypePartition("b", "0"))
    with pytest.raises(Invalid) as caught:
        check_partitions(got, {EventTypePartition("a", "0"): None})
    assert str(caught.value) == (
        "Wrong partitions specified - some partitions don't belong to subscription: "
        "EventTypePartition{eventType='b', partition='0'}"
    )
    check_partitions(got[:1], {EventTypePartition("a", "0"): None})


@pytest.mark.parametrize(
    ("requested", "text"),
    [
        (["9", "9"], "Duplicated partition specified"),
        (["0", "9"], "some partitions don't belong to subscription: EventTypePartition{eventType='a', partition='9'}"),
    ],
    ids=["twice", "foreign"],
)
def test_requested_partitions_are_different_ones_of_the_subscription(requested, text):
    with pytest.raises(Invalid) as caught:
        check_partitions(tuple(EventTypePartition("a", each) for each in requested), [EventTypePartition("a", "0")])
    assert text in str(caught.value)
