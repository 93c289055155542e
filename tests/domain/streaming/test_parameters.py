import pytest

from rioni.domain.errors import Invalid, Malformed
from rioni.domain.ports import EventTypePartition
from rioni.domain.streaming.parameters import (
    StreamLimits,
    check_partitions,
    low_level_parameters,
    subscription_parameters,
)


LIMITS = StreamLimits(stream_timeout_default_s=3333)


def test_defaults_of_a_low_level_stream():
    got = low_level_parameters({}, LIMITS)
    assert (got.batch_limit, got.stream_limit, got.batch_flush_timeout_s) == (1, 0, 30)
    assert (got.stream_timeout_s, got.stream_keep_alive_limit, got.max_uncommitted_events) == (3333, 0, 0)


def test_defaults_of_a_subscription_stream():
    got = subscription_parameters({}, LIMITS)
    assert (got.batch_limit, got.stream_limit, got.batch_flush_timeout_s, got.batch_timespan_s) == (1, 0, 30, 0)
    assert (got.stream_timeout_s, got.max_uncommitted_events, got.commit_timeout_s) == (3333, 10, 60)
    assert got.partitions == ()


def test_numbers_may_be_text():
    assert low_level_parameters({"batch_limit": "7"}, LIMITS).batch_limit == 7


@pytest.mark.parametrize("value", ["x", "", "1.5", 2.5, True, [], 2**31, "9" * 30])
@pytest.mark.parametrize("parse", [low_level_parameters, subscription_parameters])
def test_what_is_no_number_is_malformed(parse, value):
    with pytest.raises(Malformed, match="batch_limit"):
        parse({"batch_limit": value}, LIMITS)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ({"batch_limit": 0}, "batch_limit can't be lower than 1"),
        ({"stream_limit": 1, "batch_limit": 2}, "stream_limit can't be lower than batch_limit"),
        (
            {"stream_timeout": 5, "batch_flush_timeout": 6},
            "stream_timeout can't be lower than batch_flush_timeout",
        ),
        ({"stream_limit": -1, "stream_timeout": 1, "batch_limit": 0}, "stream_limit can't be lower than batch_limit"),
        ({"stream_timeout": 1, "batch_limit": 0}, "stream_timeout can't be lower than batch_flush_timeout"),
    ],
)
def test_what_a_low_level_stream_refuses(query, text):
    with pytest.raises(Invalid) as caught:
        low_level_parameters(query, LIMITS)
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"batch_limit": 0}, "batch_limit can't be lower than 1"),
        ({"stream_limit": 1, "batch_limit": 2}, "stream_limit can't be lower than batch_limit"),
        ({"max_uncommitted_events": 0}, "max_uncommitted_events can't be lower than 1"),
        ({"commit_timeout": 61}, "commit_timeout can not be more than 60"),
        ({"commit_timeout": -1}, "commit_timeout can not be less than 0"),
        ({"partitions": [{"event_type": "a", "partition": "0"}] * 2}, "Duplicated partition specified"),
    ],
)
def test_what_a_subscription_stream_refuses(body, text):
    with pytest.raises(Invalid) as caught:
        subscription_parameters(body, LIMITS)
    assert str(caught.value) == text


@pytest.mark.parametrize("partitions", ["0", [1], [{"event_type": "a"}], [{"event_type": "a", "partition": 0}]])
def test_malformed_partitions(partitions):
    with pytest.raises(Malformed):
        subscription_parameters({"partitions": partitions}, LIMITS)


@pytest.mark.parametrize("value", [0, -1, 4201, None])
def test_no_or_too_long_a_stream_timeout_is_the_random_one(value):
    assert subscription_parameters({"stream_timeout": value}, LIMITS).stream_timeout_s == 3333
    assert low_level_parameters({"stream_timeout": value}, LIMITS).stream_timeout_s == 3333


def test_zero_is_the_default_of_timeouts():
    got = subscription_parameters({"batch_flush_timeout": 0, "commit_timeout": 0}, LIMITS)
    assert (got.batch_flush_timeout_s, got.commit_timeout_s) == (30, 60)


def test_a_subscription_stream_may_be_shorter_than_its_flush_timeout():
    got = subscription_parameters({"stream_timeout": 2, "batch_flush_timeout": 600}, LIMITS)
    assert (got.stream_timeout_s, got.batch_flush_timeout_s) == (2, 600)


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
