import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.cli.registry.subscription_lag import BARS, LagHistory, LagRow, lags_of, summed, total_events
from rioni.wire.subscriptions import PartitionStatistics, Subscription, SubscriptionStatistics


def lag(subscription="1", event_type="a", partition="0", events=None, seconds=None, streams=(), errors=()):
    return LagRow(subscription, "shop", "default", event_type, partition, events, seconds, frozenset(streams), errors)


def test_the_lag_of_each_partition_is_in_the_order_of_their_numbers():
    subscription = Subscription(id="1", owning_application="shop", event_types=["a"])
    partitions = [
        PartitionStatistics(
            partition="10", state="assigned", stream_id="s", unconsumed_events=3, consumer_lag_seconds=5
        ),
        PartitionStatistics(partition="2", state="unassigned", cursor_error="beyond"),
    ]
    assert lags_of(subscription, [SubscriptionStatistics(event_type="a", partitions=partitions)]) == [
        lag(partition="2", errors=("beyond",)),
        lag(partition="10", events=3, seconds=5, streams=["s"]),
    ]


def test_lags_are_summed_by_what_is_asked_for():
    lags = [
        lag(events=1, seconds=2, streams=["s"]),
        lag(partition="1", events=2, seconds=1, streams=["s", "t"], errors=("x",)),
        lag(event_type="b"),
        lag(subscription="2", events=4),
    ]
    assert summed(lags, "partition") == lags
    assert summed(lags, "event-type") == [
        lag(partition=None, events=3, seconds=2, streams=["s", "t"], errors=("x",)),
        lag(event_type="b", partition=None),
        lag(subscription="2", partition=None, events=4),
    ]
    by_subscription = summed(lags, "subscription")
    assert [(each.subscription, each.event_type, each.events) for each in by_subscription] == [
        ("1", None, 3),
        ("2", None, 4),
    ]
    assert total_events(by_subscription) == total_events(lags) == 7


@given(values=st.lists(st.integers(0, 10**12), max_size=300), width=st.integers(1, 40))
def test_a_sparkline_has_a_bar_for_each_of_the_last_samples(values, width):
    history = LagHistory()
    for at_s, value in enumerate(values):
        history.add(float(at_s), value)
    bars = history.sparkline(width)
    assert len(bars) == min(len(values), width, 120)
    shown = values[-width:][-120:]
    for bar, value in zip(bars, shown, strict=True):
        # Nothing and something look different, the greatest has the highest bar.
        assert (bar == BARS[0]) == (value == 0)
        assert value < max(shown) or value == 0 or bar == BARS[-1]


def test_the_change_is_that_of_the_last_minute():
    history = LagHistory()
    assert history.change_per_s is None
    for at_s, events in ((0.0, 5_000), (50.0, 1_000), (100.0, 500), (105.0, None), (110.0, 400)):
        history.add(at_s, events)
    assert history.change_per_s == pytest.approx(-10)
    assert history.empty_in_s == pytest.approx(40)


def test_a_lag_that_grows_or_stays_is_never_empty():
    history = LagHistory()
    history.add(0.0, 1)
    assert history.empty_in_s is None
    history.add(0.0, 1)
    assert history.change_per_s is None
    history.add(1.0, 3)
    assert (history.change_per_s, history.empty_in_s) == (2.0, None)
