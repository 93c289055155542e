"""Samples of metrics: reference operations#metrics-history."""

import math
from uuid import uuid4

import pytest

from rioni.domain.subscriptions.lag import Lag, SubscribedPartition
from rioni.domain.timelines.position import EventTypePartition
from rioni.http.metrics.collectors import Metrics
from rioni.http.metrics.history_table import Series
from rioni.http.metrics.sampler import Sampler, quantile_of


NOW_MS = 1_700_000_000_000


@pytest.fixture
def metrics():
    return Metrics()


@pytest.fixture
def sampler(metrics):
    sampler = Sampler(metrics)
    metrics.event_types.add("before", events=100, bytes_=1_000)
    sampler.sample(NOW_MS, 0.0)
    return sampler


def test_counters_become_rates(metrics, sampler):
    metrics.event_types.add("before", events=20, bytes_=200)
    metrics.event_types.add("new", events=5)
    metrics.streamed_events.labels("subscription").inc(40)
    for status, count in (("200", 10), ("404", 4), ("503", 2)):
        metrics.requests.labels("GET", "/version", status).inc(count)
    found = sampler.sample(NOW_MS, 2.0)
    assert found[Series("published_events", "event_type", "before")] == 10
    assert found[Series("published_bytes", "event_type", "before")] == 100
    assert found[Series("published_events", "event_type", "new")] == 2.5
    assert found[Series("streamed_events", "api", "subscription")] == 20
    assert [found[Series(name)] for name in ("requests", "client_errors", "server_errors")] == [8, 2, 1]
    assert sampler.sample(NOW_MS, 3.0)[Series("published_events", "event_type", "before")] == 0


def test_the_first_sample_knows_no_rates(metrics):
    metrics.event_types.add("before", events=100)
    found = Sampler(metrics).sample(NOW_MS, 0.0)
    for series in (Series("requests"), Series("published_events"), Series("published_events", "event_type", "before")):
        assert math.isnan(found[series])


def test_quantiles_are_those_of_the_publish_requests_since_the_last_sample(metrics, sampler):
    for _ in range(98):
        metrics.publish_seconds.labels("<5K").observe(0.003)
    metrics.publish_seconds.labels(">50K").observe(4)
    metrics.publish_seconds.labels(">50K").observe(4)
    found = sampler.sample(NOW_MS, 1.0)
    assert 0.0025 < found[Series("publish_seconds", "quantile", "0.5")] <= 0.005
    assert 2.5 < found[Series("publish_seconds", "quantile", "0.99")] <= 5
    assert math.isnan(sampler.sample(NOW_MS, 2.0)[Series("publish_seconds", "quantile", "0.5")])


def test_lags_and_open_streams_are_as_they_are(metrics, sampler):
    lagging, idle = str(uuid4()), str(uuid4())
    metrics.lags.write({lagging: Lag(7, NOW_MS - 3_000), idle: Lag(0)}, 7, NOW_MS, 0.0)
    metrics.streams.labels("subscription").set(3)
    found = sampler.sample(NOW_MS, 1.0)
    assert found[Series("lag_events", "subscription", lagging)] == 7
    assert found[Series("lag_seconds", "subscription", lagging)] == 3
    assert found[Series("lag_events", "subscription", idle)] == 0
    assert found[Series("streams", "api", "subscription")] == 3


def test_lags_of_partitions_have_no_total(metrics):
    subscription = str(uuid4())
    partition = SubscribedPartition(subscription, EventTypePartition("orders", "7"))
    found = Sampler(metrics, lambda: {partition: Lag(7, NOW_MS - 3_000)}).sample(NOW_MS, 0.0)
    named = {each.name: value for each, value in found.items() if each.name.startswith("partition_")}
    assert named == {"partition_lag_events": 7, "partition_lag_seconds": 3}
    assert Series("partition_lag_events", "partition", f"{subscription}/orders/7") in found


def test_parts_have_a_total_and_the_largest_age(metrics, sampler):
    first, second = str(uuid4()), str(uuid4())
    metrics.lags.write({first: Lag(7, NOW_MS - 3_000), second: Lag(4, NOW_MS - 9_000)}, 11, NOW_MS, 0.0)
    metrics.event_types.add("before", events=20)
    metrics.event_types.add("new", events=5)
    metrics.streams.labels("subscription").set(3)
    metrics.streams.labels("low-level").set(1)
    found = sampler.sample(NOW_MS, 1.0)
    assert found[Series("published_events")] == 25
    assert (found[Series("lag_events")], found[Series("lag_seconds")]) == (11, 9)
    assert found[Series("streams")] == 4


@pytest.mark.parametrize(
    ("buckets", "quantile", "value"),
    [
        ({}, 0.5, None),
        ({1: 0, math.inf: 0}, 0.5, None),
        ({1: 10, 2: 10, math.inf: 10}, 0.5, 0.5),
        ({1: 0, 2: 10, math.inf: 10}, 0.5, 1.5),
        ({1: 5, 2: 10, math.inf: 10}, 0.5, 1.0),
        ({1: 0, 2: 0, math.inf: 10}, 0.5, 2),
    ],
)
def test_a_quantile_lies_within_its_bucket(buckets, quantile, value):
    assert quantile_of(buckets, quantile) == value
