"""A bounded number of lagging partitions is followed, without breaks in their histories."""

from rioni.domain.subscriptions.lag import FollowedPartitions, Lag, SubscribedPartition
from rioni.domain.timelines.position import EventTypePartition


def lagging(**events):
    """The lags of the partitions of the one subscription `s`, which are named after their event types."""
    return {"s": {EventTypePartition(name, "0"): Lag(count, 1) for name, count in events.items()}}


def followed(partitions, **events):
    found = partitions.lags(lagging(**events), ["s"])
    return {each.partition.event_type: lag.events for each, lag in found.items()}


def test_those_that_lag_are_followed_until_they_have_caught_up_and_after():
    partitions = FollowedPartitions()
    assert followed(partitions) == {}
    assert followed(partitions, a=3) == {"a": 3}
    assert followed(partitions, b=1) == {"a": 0, "b": 1}
    found = partitions.lags(lagging(a=2), ["s"])
    assert found[SubscribedPartition("s", EventTypePartition("a", "0"))] == Lag(2, 1)


def test_with_too_many_the_largest_come_first_and_stay_while_they_lag():
    partitions = FollowedPartitions(2)
    assert followed(partitions, a=1, b=2, c=3) == {"b": 2, "c": 3}
    assert followed(partitions, a=9, b=1, c=1) == {"b": 1, "c": 1}


def test_one_that_has_caught_up_makes_room_only_where_another_one_lags():
    partitions = FollowedPartitions(2)
    followed(partitions, a=1, b=2)
    assert followed(partitions, b=2) == {"a": 0, "b": 2}
    assert followed(partitions, b=2, c=1, d=5) == {"b": 2, "d": 5}


def test_partitions_of_a_deleted_subscription_are_forgotten():
    partitions = FollowedPartitions()
    followed(partitions, a=1)
    assert partitions.lags({}, []) == {}
