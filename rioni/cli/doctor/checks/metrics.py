"""The metrics of a broker, looked at twice: what grows between is an error, what grew before may be history."""

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from rioni.cli.doctor.model import ERROR, Finding, NotLookedAt, Site, check, error, source, warning


# --- The metrics of a broker, read twice: their values, and how these change ---


class Series(msgspec.Struct, frozen=True):
    """A value of a metric, and the one that it had at first."""

    name: str
    labels: Mapping[str, str]
    value: float
    before: float

    @property
    def growth(self) -> float:
        """The growth between the two polls; a counter that began anew has grown by its whole value."""
        return self.value - self.before if self.value >= self.before else self.value


class Metrics(msgspec.Struct, frozen=True):
    """All metrics of a node."""

    series: list[Series]
    seconds: float
    """Seconds between the two polls."""
    text: str = ""
    """The second one, as the broker has sent it."""

    def all(self, name: str, **labels: str) -> Iterator[Series]:
        """The series of a metric that have these labels, among others."""
        for each in self.series:
            if each.name == name and labels.items() <= each.labels.items():
                yield each

    def total(self, name: str, **labels: str) -> float:
        """The sum of their values."""
        return sum(each.value for each in self.all(name, **labels))

    def growth(self, name: str, **labels: str) -> float:
        """The sum of their growth."""
        return sum(each.growth for each in self.all(name, **labels))

    def by(self, name: str, label: str) -> dict[str, float]:
        """The sums of the values by a label."""
        found: defaultdict[str, float] = defaultdict(float)
        for each in self.all(name):
            found[each.labels.get(label, "")] += each.value
        return dict(found)


@source
def metrics(site: Site) -> Metrics:
    """Ask for the metrics twice."""
    began_s = time.monotonic()
    first = site.client.monitoring.metrics_text()
    site.pause()
    second = site.client.monitoring.metrics_text()
    return compared(first, second, time.monotonic() - began_s)


def compared(first: str, second: str, seconds: float) -> Metrics:
    """The metrics of two answers in Prometheus' text format; raises NotLookedAt if they are not in that format."""
    before = {_key(name, labels): value for name, labels, value in _samples(first)}
    series = [
        Series(name, labels, value, before.get(_key(name, labels), 0.0)) for name, labels, value in _samples(second)
    ]
    return Metrics(series, seconds, second)


def _samples(text: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                yield sample.name, sample.labels, sample.value
    except ValueError as ex:
        raise NotLookedAt(f"the metrics are not in Prometheus' text format: {ex}") from ex


def _key(name: str, labels: Mapping[str, str]) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


# --- Checks of the broker's metrics: growth between two reads is an error, earlier growth may be history ---

GROUP = "Metrics"
STALL_S = 1.0
"""Streams and requests of a worker wait that long."""
SERVER_ERROR_RATIO = 0.01
REQUESTS_MIN = 100
"""The fewest requests from which shares are computed: fewer prove nothing."""
PUBLISH_S = "1.0"
REQUEST_S = "5.0"
"""Bounds of buckets of the histograms."""
SLOW_RATIO = 0.01
OLDEST_S = 30.0
GREENLETS_MAX = 9_000
"""A worker serves 10,000 connections."""
OPEN_TYPES = "(others)"
_GUIDE = "docs/operating/monitoring.md#what-to-alert-on"
_HANGING = "docs/operating/monitoring.md#threads-that-hang"


@check(GROUP, ERROR)
def server_errors(metrics: Metrics) -> Iterator[Finding]:
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
    statuses = metrics.by(name, "status")
    total, failed = sum(statuses.values()), sum(n for status, n in statuses.items() if status.startswith("5"))
    if not growing and total >= REQUESTS_MIN and failed / total > SERVER_ERROR_RATIO:
        yield warning(
            f"{failed / total:.1%} of {total:,.0f} requests since the start were answered with 5xx; none just now.",
            "The log of the broker says when and why.",
        )


def _is_reported(labels: Mapping[str, str]) -> bool:
    """Whether another check reports the reason of this status; the doctor itself may have made the request."""
    return labels.get("status") == "503" and labels.get("route") in {"/readyz", "/livez", "/log/checkpoint"}


@check(GROUP)
def slow_publishing(metrics: Metrics) -> Iterator[Finding]:
    """Whether more than one of a hundred publish requests takes longer than a second."""
    yield from _slow(metrics, "rioni_publish_seconds", PUBLISH_S, "publish requests")


@check(GROUP)
def slow_requests(metrics: Metrics) -> Iterator[Finding]:
    """Whether more than one of a hundred requests takes longer than five seconds."""
    yield from _slow(metrics, "rioni_http_request_seconds", REQUEST_S, "requests")


def _slow(metrics: Metrics, name: str, bound: str, what: str) -> Iterator[Finding]:
    total, quick = metrics.total(f"{name}_count"), metrics.total(f"{name}_bucket", le=bound)
    if total >= REQUESTS_MIN and (total - quick) / total > SLOW_RATIO:
        yield warning(
            f"{(total - quick) / total:.1%} of {total:,.0f} {what} since the start took more than {float(bound):g} s.",
            "Look at disk, database and Kafka; `rioni bench publish` measures: docs/operating/sizing.md",
        )


@check(GROUP)
def event_loop(metrics: Metrics) -> Iterator[Finding]:
    """The longest time for which one piece of work kept a worker from all others."""
    longest_s = metrics.total("rioni_hub_stall_seconds")
    if longest_s > STALL_S:
        yield warning(
            f"The event loop of a worker was blocked for {longest_s:.1f} s since its start.",
            "The machine was overloaded or swapped, or a request was very large; more workers share the load.",
        )


@check(GROUP, ERROR)
def thread_pools(metrics: Metrics) -> Iterator[Finding]:
    """Whether pools of native threads refuse work, or have tasks that do not end."""
    name = "rioni_pool_rejected_total"
    for each in metrics.all(name):
        pool = each.labels.get("pool", "")
        if each.growth:
            yield error(f"The pool {pool} refused {each.growth:,.0f} tasks just now.", _HANGING)
        elif each.value:
            yield warning(f"The pool {pool} refused {each.value:,.0f} tasks since the start; none just now.", _HANGING)
    for each in metrics.all("rioni_pool_oldest_seconds"):
        if min(each.value, each.before) > OLDEST_S:
            yield warning(
                f"A task of the pool {each.labels.get('pool')} has been running for {each.value:.0f} s.", _HANGING
            )


@check(GROUP)
def connections(metrics: Metrics) -> Iterator[Finding]:
    """Whether the workers are near the number of connections that they can serve."""
    greenlets, workers = metrics.total("rioni_greenlets"), metrics.total("rioni_worker_info")
    if workers and greenlets / workers > GREENLETS_MAX:
        yield warning(
            f"{greenlets:,.0f} connections and background jobs run in {workers:.0f} workers; each serves 10,000.",
            "Raise `workers`, or add nodes: docs/operating/cluster.md#sizing",
        )


@check(GROUP)
def system_events(metrics: Metrics) -> Iterator[Finding]:
    """Whether the broker's own event types keep up with the log: audit log and others."""
    for each in metrics.all("rioni_feed_entries_behind"):
        if min(each.value, each.before) > 0 and each.value >= each.before:
            yield warning(
                f"{each.labels.get('event_type')} is {each.value:,.0f} entries behind the log, and does not catch up.",
                "The log of the broker says why these events can't be published: docs/concepts/own-events.md",
            )


@check(GROUP)
def lost_measurements(metrics: Metrics) -> Iterator[Finding]:
    """Whether measurements for KPI events were dropped."""
    if dropped := metrics.total("rioni_dropped_measurements_total"):
        yield warning(f"{dropped:,.0f} measurements are in no KPI event.", f"Free disk space: {_GUIDE}")


@check(GROUP, ERROR)
def expired_events(metrics: Metrics) -> Iterator[Finding]:
    """Whether retention removed events before streams could read them."""
    name, advice = "rioni_expired_unread_events_total", "Raise the retention time, or add consumers: see the lag below."
    if growing := metrics.growth(name):
        yield error(f"Retention has removed {growing:,.0f} events just now that a stream wanted to read.", advice)
    elif total := metrics.total(name):
        yield warning(
            f"Retention has removed {total:,.0f} events since the start that a stream wanted to read.", advice
        )


@check(GROUP)
def unprocessable_events(metrics: Metrics) -> Iterator[Finding]:
    """Whether consumers failed to process events, which were skipped or became dead letters."""
    for policy, count in sorted(metrics.by("rioni_unprocessable_events_total", "policy").items()):
        if count:
            yield warning(
                f"Consumers failed to process {count:,.0f} events since the start ({policy}).",
                "Look at them: `rioni dead-letters list SUBSCRIPTION`; the log of the broker names those skipped.",
            )


@check(GROUP, ERROR)
def kafka_failures(metrics: Metrics) -> Iterator[Finding]:
    """Whether Kafka failed to store batches, or topics were deleted or truncated by others."""
    name = "rioni_kafka_failed_batches_total"
    advice = "Look at the brokers of Kafka: docs/operating/kafka.md"
    if growing := metrics.growth(name):
        yield error(f"Kafka has not stored {growing:,.0f} batches just now, or not for certain.", advice)
    elif total := metrics.total(name):
        yield warning(f"Kafka has not stored {total:,.0f} batches since the start; none just now.", advice)
    if resyncs := metrics.total("rioni_kafka_topic_resyncs_total"):
        yield warning(
            f"Topics in Kafka were deleted or truncated {resyncs:,.0f} times since the start.",
            "Find the other client that deletes topics or records: docs/operating/kafka.md#loss-of-data-in-kafka",
        )


@check(GROUP)
def kafka_lag(metrics: Metrics) -> Iterator[Finding]:
    """Whether workers keep up with reading from Kafka."""
    for each in metrics.all("rioni_kafka_events_behind"):
        if each.before > 0 and each.value > each.before:
            yield warning(
                f"A worker is {each.value:,.0f} events behind Kafka, {each.growth:,.0f} more than before.",
                "Look at network and CPU of this node; add nodes: docs/operating/cluster.md#sizing",
            )


@check(GROUP)
def counted_event_types(metrics: Metrics) -> Iterator[Finding]:
    """Whether there are more event types than are counted by name."""
    if metrics.total("rioni_published_events_total", event_type=OPEN_TYPES):
        yield warning(
            "There are more event types than the metrics count by name: further ones are counted together.",
            "Raise the setting metrics_event_types_max: docs/operating/configuration.md",
        )
