"""Takes samples of the metrics of a node: rates of counters, lags, and the durations of publishing."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client.core import Metric
from prometheus_client.samples import Sample

from rioni.domain.subscriptions.lag import Lag, SubscribedPartition
from rioni.http.metrics.collectors import Metrics
from rioni.http.metrics.history_table import Series
from rioni.http.metrics.shared_tables import OTHERS


QUANTILES = (0.5, 0.99)

PUBLISHED_EVENTS, PUBLISHED_BYTES = "published_events", "published_bytes"
STREAMED_EVENTS, STREAMS = "streamed_events", "streams"
REQUESTS, CLIENT_ERRORS, SERVER_ERRORS = "requests", "client_errors", "server_errors"
LAG_EVENTS, LAG_SECONDS = "lag_events", "lag_seconds"
PARTITION_LAG_EVENTS, PARTITION_LAG_SECONDS = "partition_lag_events", "partition_lag_seconds"
PUBLISH_SECONDS = "publish_seconds"
PARTITION = "partition"
"""The label of series of partitions: subscription, event type and partition, separated by `SEPARATOR`."""
SEPARATOR = "/"

NAMES: Mapping[str, tuple[str, str]] = {
    PUBLISHED_EVENTS: ("event_type", "Events stored, per second"),
    PUBLISHED_BYTES: ("event_type", "Bytes of publish requests whose events were stored, per second"),
    STREAMED_EVENTS: ("api", "Events written to streams, per second"),
    STREAMS: ("api", "Open streams"),
    REQUESTS: ("", "Requests answered, per second"),
    CLIENT_ERRORS: ("", "Requests answered with 4xx, per second"),
    SERVER_ERRORS: ("", "Requests answered with 5xx, per second"),
    PUBLISH_SECONDS: ("quantile", "Duration of publish requests"),
    LAG_EVENTS: ("subscription", "Unconsumed events"),
    LAG_SECONDS: ("subscription", "Age of the first unconsumed event"),
    PARTITION_LAG_EVENTS: (PARTITION, "Unconsumed events of a partition of a subscription"),
    PARTITION_LAG_SECONDS: (PARTITION, "Age of the first of them"),
}
"""All names of series, with their label and their meaning."""
RATES = frozenset((PUBLISHED_EVENTS, PUBLISHED_BYTES, STREAMED_EVENTS, REQUESTS, CLIENT_ERRORS, SERVER_ERRORS))
"""The metrics that are rates; of several samples their mean counts, of the other metrics the maximum."""
PARTS = ("event_type", "api", "subscription")
"""Labels whose series are parts of a series without a label."""


class Sampler:
    """Samples metrics, and remembers earlier counts in order to compute rates. Nothing blocks."""

    def __init__(self, metrics: Metrics, partitions: Callable[[], Mapping[SubscribedPartition, Lag]] = dict) -> None:
        """Know nothing yet.

        Args:
            metrics: the metrics of the node.
            partitions: answers the lags of single partitions.
        """
        self._metrics, self._partitions = metrics, partitions
        self._before: dict[Series, float] = {}
        self._buckets: dict[float, float] = {}
        self._at_s: float | None = None

    def sample(self, now_ms: int, now_s: float) -> dict[Series, float]:
        """The current values; rates are since the last call. Unknown values are NaN: rates in the first call.

        PERF: 7 ms with 1,000 event types and as many subscriptions; 19 ms if their tables are read twice.

        Args:
            now_ms: the time from which ages are computed.
            now_s: the time on the monotonic clock.
        """
        families = {family.name: family for family in self._metrics.without_tables().collect()}
        counts, buckets = dict(self._counts(families)), _buckets(families.get("rioni_publish_seconds"))
        values = dict(self._gauges(families, now_ms))
        more: dict[float, float] = {}
        if self._at_s is not None and now_s > self._at_s:
            seconds = now_s - self._at_s
            values |= {each: max(0.0, count - self._before.get(each, 0.0)) / seconds for each, count in counts.items()}
            more = {le: max(0.0, count - self._buckets.get(le, 0.0)) for le, count in buckets.items()}
        else:
            values |= dict.fromkeys(counts, math.nan)
        for quantile in QUANTILES:
            duration_s = quantile_of(more, quantile)
            values[Series(PUBLISH_SECONDS, "quantile", str(quantile))] = math.nan if duration_s is None else duration_s
        self._before, self._buckets, self._at_s = counts, buckets, now_s
        return values | _totals(values)

    def _counts(self, families: Mapping[str, Metric]) -> Iterator[tuple[Series, float]]:
        for event_type, (events, size, *_) in self._metrics.event_types.totals().items():
            yield Series(PUBLISHED_EVENTS, "event_type", event_type), events
            yield Series(PUBLISHED_BYTES, "event_type", event_type), size
        yield from _by_api(families.get("rioni_streamed_events"), STREAMED_EVENTS)
        requests: defaultdict[str, float] = defaultdict(float)
        for sample in _samples(families.get("rioni_http_requests")):
            if sample.name.endswith("_total"):
                requests[sample.labels["status"][:1]] += sample.value
        yield Series(REQUESTS), sum(requests.values())
        yield Series(CLIENT_ERRORS), requests["4"]
        yield Series(SERVER_ERRORS), requests["5"]

    def _gauges(self, families: Mapping[str, Metric], now_ms: int) -> Iterator[tuple[Series, float]]:
        yield from _by_api(families.get("rioni_streams"), STREAMS)
        shown = self._metrics.lags.read()
        others = {} if shown.others is None else {OTHERS: shown.others}
        for subscription_id, lag in {**shown.lags, **others}.items():
            yield Series(LAG_EVENTS, "subscription", subscription_id), lag.events
            yield Series(LAG_SECONDS, "subscription", subscription_id), lag.seconds(now_ms) or 0
        for (subscription_id, (event_type, partition)), lag in self._partitions().items():
            value = SEPARATOR.join((subscription_id, event_type, partition))
            yield Series(PARTITION_LAG_EVENTS, PARTITION, value), lag.events
            yield Series(PARTITION_LAG_SECONDS, PARTITION, value), lag.seconds(now_ms) or 0


def _totals(values: Mapping[Series, float]) -> dict[Series, float]:
    """The totals of the parts: the sum of counts and rates, and the largest age.

    Not from sums of counts, which fall when an event type is deleted.
    """
    totals: defaultdict[Series, float] = defaultdict(float)
    for series, value in values.items():
        if series.label in PARTS:
            total = Series(series.name)
            totals[total] = max(totals[total], value) if series.name == LAG_SECONDS else totals[total] + value
    return dict(totals)


def quantile_of(buckets: Mapping[float, float], quantile: float) -> float | None:
    """The value below which a share of observations lies, assumed to be spread evenly within a bucket.

    Args:
        buckets: how many observations are at most as large as each bound.
        quantile: the share.

    Returns:
        None without observations; the largest finite bound if it lies beyond that.
    """
    bounds = sorted(buckets)
    total = buckets[bounds[-1]] if bounds else 0
    if not total:
        return None
    below, lower = 0.0, 0.0
    for upper in bounds:
        if buckets[upper] >= quantile * total:
            if math.isinf(upper):
                return lower
            return lower + (upper - lower) * (quantile * total - below) / (buckets[upper] - below)
        below, lower = buckets[upper], upper
    raise AssertionError("the last bucket holds all")


def _by_api(family: Metric | None, name: str) -> Iterator[tuple[Series, float]]:
    for sample in _samples(family):
        if not sample.name.endswith("_created"):
            yield Series(name, "api", sample.labels["api"]), sample.value


def _buckets(family: Metric | None) -> dict[float, float]:
    """The number of publish requests of any size by the longest duration, in seconds, as cumulative buckets."""
    buckets: defaultdict[float, float] = defaultdict(float)
    for sample in _samples(family):
        if sample.name.endswith("_bucket"):
            buckets[float(sample.labels["le"])] += sample.value
    return dict(buckets)


def _samples(family: Metric | None) -> Sequence[Sample]:
    return family.samples if family is not None else ()
