"""The metrics of a broker, read twice: what grows between is an error, what grew before may be history."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, groupby
from typing import NamedTuple

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from rioni.cli.doctor.diagnosis import (
    ERROR,
    WARNING,
    DoctorCheck,
    DoctorFinding,
    NotLookedAt,
    Site,
    check,
    error,
    source,
    warning,
)


# --- The metrics of a broker, read twice: their values, and how these change ---


class SampledSeries(msgspec.Struct, frozen=True):
    """A value of a metric, and the one that it had at first."""

    name: str
    labels: Mapping[str, str]
    value: float
    before: float

    @property
    def growth(self) -> float:
        """The growth between the two polls; a counter that began anew has grown by its whole value."""
        return self.value - self.before if self.value >= self.before else self.value


class MetricSamples(msgspec.Struct, frozen=True):
    """All metrics of a node."""

    series: list[SampledSeries]
    seconds: float
    """Seconds between the two polls."""

    def all(self, name: str, **labels: str) -> Iterator[SampledSeries]:
        """The series of a metric that have these labels, among others."""
        for each in self.series:
            if each.name == name and labels.items() <= each.labels.items():
                yield each

    def total(self, name: str, **labels: str) -> float:
        """The sum of their values."""
        return sum(each.value for each in self.all(name, **labels))


@source
def metrics(site: Site) -> MetricSamples:
    """Ask for the metrics twice."""
    began_s = time.monotonic()
    first = site.client.monitoring.metrics_text()
    site.pause()
    second = site.client.monitoring.metrics_text()
    return compared(first, second, time.monotonic() - began_s)


def compared(first: str, second: str, seconds: float) -> MetricSamples:
    """The metrics of two answers in Prometheus' text format; raises NotLookedAt if they are not in that format."""
    before = {(name, frozenset(labels.items())): value for name, labels, value in _samples(first)}
    return MetricSamples(
        [
            SampledSeries(name, labels, value, before.get((name, frozenset(labels.items())), 0.0))
            for name, labels, value in _samples(second)
        ],
        seconds,
    )


def _samples(text: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                yield sample.name, sample.labels, sample.value
    except ValueError as ex:
        raise NotLookedAt(f"the metrics are not in Prometheus' text format: {ex}") from ex


# --- Checks of several metrics, and rows for those of a single one ---

GROUP = "Metrics"
GREENLETS_MAX = 9_000
"""A worker serves 10,000 connections."""
REQUESTS_MIN = 100
"""The fewest requests from which shares are computed: fewer prove nothing."""
OLDEST_S = 30.0
SLOW_RATIO = 0.01
SERVER_ERROR_RATIO = 0.01
_GUIDE = "docs/operating/monitoring.md#alerts"
_HANGING = "docs/operating/monitoring.md#threads-that-hang"


@check(GROUP, ERROR)
def server_errors(metrics: MetricSamples) -> Iterator[DoctorFinding]:
    """The share of requests that are answered with 5xx, now and since the start."""
    name = "rioni_http_requests_total"
    routes = {
        f"{each.labels.get('method')} {each.labels.get('route')} ({each.labels.get('status')})": each.growth
        for each in metrics.all(name)
        if each.labels.get("status", "").startswith("5") and each.growth and not _is_reported(each.labels)
    }
    if growing := sum(routes.values()):
        most = max(routes, key=lambda route: routes[route])
        yield error(
            f"{growing:,.0f} requests were answered with 5xx within {metrics.seconds:.0f} s, most of them {most}.",
            f"Look at the other findings, then at the log of the broker: {_GUIDE}",
        )
    requests = metrics.total(name)
    failed = sum(each.value for each in metrics.all(name) if each.labels.get("status", "").startswith("5"))
    if not growing and requests >= REQUESTS_MIN and failed / requests > SERVER_ERROR_RATIO:
        yield warning(
            f"{failed / requests:.1%} of {requests:,.0f} requests since the start were answered with 5xx; none just "
            "now.",
            "The log of the broker contains the time and the reason.",
        )


def _is_reported(labels: Mapping[str, str]) -> bool:
    """Whether another check reports the reason of this status; the doctor itself may have made the request."""
    return labels.get("status") == "503" and labels.get("route") in {"/readyz", "/livez", "/log/checkpoint"}


@check(GROUP)
def slow_publishing(metrics: MetricSamples) -> Iterator[DoctorFinding]:
    """Whether more than one of a hundred publish requests takes longer than a second."""
    yield from _slow(metrics, "rioni_publish_seconds", "1.0", "publish requests")


@check(GROUP)
def slow_requests(metrics: MetricSamples) -> Iterator[DoctorFinding]:
    """Whether more than one of a hundred requests takes longer than five seconds."""
    yield from _slow(metrics, "rioni_http_request_seconds", "5.0", "requests")


def _slow(metrics: MetricSamples, name: str, bound: str, what: str) -> Iterator[DoctorFinding]:
    """Compare a bucket of a histogram with all of its values."""
    number, quick = metrics.total(f"{name}_count"), metrics.total(f"{name}_bucket", le=bound)
    if number >= REQUESTS_MIN and (number - quick) / number > SLOW_RATIO:
        yield warning(
            f"{(number - quick) / number:.1%} of {number:,.0f} {what} since the start took more than {float(bound):g} "
            "s.",
            "Look at disk, database and Kafka; `rioni bench publish` measures: docs/operating/sizing.md",
        )


@check(GROUP)
def connections(metrics: MetricSamples) -> Iterator[DoctorFinding]:
    """Whether the workers are near the number of connections that they can serve."""
    greenlets, workers = metrics.total("rioni_greenlets"), metrics.total("rioni_worker_info")
    if workers and greenlets / workers > GREENLETS_MAX:
        yield warning(
            f"{greenlets:,.0f} connections and background jobs run in {workers:.0f} workers; each serves 10,000.",
            "Raise `workers`, or add nodes: docs/operating/cluster.md#sizing",
        )


class Row(NamedTuple):
    """A check of one metric.

    Args:
        check: its name.
        looks_at: its subject.
        metric: the name of the metric.
        text: of the finding; `{n}` is the sum of the values, `{more}` the growth, `{by}` the value of the label `by`.
        advice: of the finding.
        above: the largest sum that is in order.
        by: the label by whose values series are summed; all of them are without it.
        where: the series that are looked at.
        growing: the text of an error, if the series grow just now.
    """

    check: str
    looks_at: str
    metric: str
    text: str
    advice: str
    above: float = 0
    by: str = ""
    where: Callable[[SampledSeries], bool] = lambda _: True
    growing: str = ""

    def find(self, metrics: MetricSamples) -> Iterator[DoctorFinding]:
        """The findings about the metric."""
        series: defaultdict[str, list[SampledSeries]] = defaultdict(list)
        for each in filter(self.where, metrics.all(self.metric)):
            series[each.labels.get(self.by, "")].append(each)
        for by, members in sorted(series.items()):
            n, more = sum(each.value for each in members), sum(each.growth for each in members)
            if self.growing and more > 0:
                yield error(self.growing.format(n=more, by=by), self.advice)
            elif n > self.above:
                yield warning(self.text.format(n=n, more=more, by=by), self.advice)


ROWS = (
    Row(
        "event-loop",
        "The longest time for which one piece of work kept a worker from all others.",
        "rioni_hub_stall_seconds",
        "The event loop of a worker was blocked for {n:.1f} s since its start.",
        "The machine was overloaded or swapped, or a request was very large; more workers share the load.",
        above=1.0,
    ),
    Row(
        "thread-pools",
        "Whether pools of native threads refuse work, or have tasks that do not end.",
        "rioni_pool_rejected_total",
        "The pool {by} refused {n:,.0f} tasks since the start; none just now.",
        _HANGING,
        by="pool",
        growing="The pool {by} refused {n:,.0f} tasks just now.",
    ),
    Row(
        "thread-pools",
        "",
        "rioni_pool_oldest_seconds",
        "A task of the pool {by} has been running for {n:.0f} s.",
        _HANGING,
        by="pool",
        above=OLDEST_S,
        where=lambda each: each.before > OLDEST_S,
    ),
    Row(
        "system-events",
        "Whether the broker's own event types keep up with the log: audit log and others.",
        "rioni_feed_entries_behind",
        "{by} is {n:,.0f} entries behind the log, and does not catch up.",
        "The log of the broker contains the reason why these events can't be published: docs/concepts/own-events.md",
        by="event_type",
        where=lambda each: 0 < each.before <= each.value,
    ),
    Row(
        "lost-measurements",
        "Whether measurements for KPI events were dropped.",
        "rioni_dropped_measurements_total",
        "{n:,.0f} measurements are in no KPI event.",
        f"Free disk space: {_GUIDE}",
    ),
    Row(
        "expired-events",
        "Whether retention removed events before streams could read them.",
        "rioni_expired_unread_events_total",
        "Retention has removed {n:,.0f} events since the start that a stream wanted to read.",
        "Raise the retention time, or add consumers: see the lag below.",
        growing="Retention has removed {n:,.0f} events just now that a stream wanted to read.",
    ),
    Row(
        "unprocessable-events",
        "Whether consumers failed to process events, which were skipped or became dead letters.",
        "rioni_unprocessable_events_total",
        "Consumers failed to process {n:,.0f} events since the start ({by}).",
        "Look at them: `rioni dead-letters list SUBSCRIPTION`; the log of the broker names those skipped.",
        by="policy",
    ),
    Row(
        "kafka-failures",
        "Whether Kafka failed to store batches, or topics were deleted or truncated by others.",
        "rioni_kafka_failed_batches_total",
        "Kafka has not stored {n:,.0f} batches since the start; none just now.",
        "Look at the brokers of Kafka: docs/operating/kafka.md",
        growing="Kafka has not stored {n:,.0f} batches just now, or not for certain.",
    ),
    Row(
        "kafka-failures",
        "",
        "rioni_kafka_topic_resyncs_total",
        "Topics in Kafka were deleted or truncated {n:,.0f} times since the start.",
        "Find the other client that deletes topics or records: docs/operating/kafka.md#loss-of-data-in-kafka",
    ),
    Row(
        "kafka-lag",
        "Whether workers keep up with reading from Kafka.",
        "rioni_kafka_events_behind",
        "A worker is {n:,.0f} events behind Kafka, {more:,.0f} more than before.",
        "Look at network and CPU of this node; add nodes: docs/operating/cluster.md#sizing",
        where=lambda each: 0 < each.before < each.value,
    ),
    Row(
        "counted-event-types",
        "Whether there are more event types than are counted by name.",
        "rioni_published_events_total",
        "There are more event types than the metrics count by name: further ones are counted together.",
        "Raise the setting metrics_event_types_max: docs/operating/configuration.md",
        where=lambda each: each.labels.get("event_type") == "(others)",
    ),
)


def _of_rows(rows: Iterable[Row]) -> DoctorCheck:
    """The check that these rows, which have the same name, are parts of."""
    rows = tuple(rows)

    def find(metrics: MetricSamples) -> Iterator[DoctorFinding]:
        return chain.from_iterable(each.find(metrics) for each in rows)

    severity = ERROR if any(each.growing for each in rows) else WARNING
    return DoctorCheck(rows[0].check, GROUP, severity, rows[0].looks_at, ("metrics",), find)


CHECKS = tuple(_of_rows(rows) for _, rows in groupby(ROWS, key=lambda each: each.check))
