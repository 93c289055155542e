"""The metrics of the broker, in Prometheus' terms, summed over the worker processes of a node.

Labels come from closed sets: methods and routes of HTTP, and names of our own. What is counted by event type has a
table of fixed size.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args, get_type_hints

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from rioni.domain.ports.event_store import StoreMeasurements
from rioni.http.metrics.history_table import SERIES_MAX, HistoryTable
from rioni.http.metrics.shared_tables import (
    EVENT_TYPES_MAX,
    MULTIPROCESS_FOLDER,
    SUBSCRIPTIONS_MAX,
    EventTypeCounts,
    LagTable,
    claim_slot,
)
from rioni.patches.prometheus_client import use_slot


LATENCY_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class _About(NamedTuple):
    """The description of a metric for Prometheus."""

    name: str
    help: str
    labels: Sequence[str] = ()
    combine: str = "all"
    """How the values that the worker processes have of a gauge are combined; see prometheus_client."""


class Metrics:
    """All metrics, created once per process."""

    worker_info: Annotated[
        Gauge,
        _About(
            "rioni_worker_info",
            "1 for each live worker process, by name and host name",
            ("node", "worker"),
            combine="livemax",
        ),
    ]
    requests: Annotated[Counter, _About("rioni_http_requests", "Requests answered", ("method", "route", "status"))]
    denied_requests: Annotated[
        Counter, _About("rioni_denied_requests", "Requests refused with 401 or 403, by status", ("status",))
    ]
    quota_refusals: Annotated[
        Counter,
        _About("rioni_quota_refusals", "Requests refused because a quota of the client is used up", ("quota",)),
    ]
    request_seconds: Annotated[
        Histogram, _About("rioni_http_request_seconds", "Request duration, streams excluded", ("method", "route"))
    ]
    publish_seconds: Annotated[
        Histogram, _About("rioni_publish_seconds", "Duration of publish requests, by body size", ("slo_bucket",))
    ]
    connections: Annotated[Gauge, _About("rioni_connections", "Open connections of clients", combine="livesum")]
    answer_bytes: Annotated[
        Gauge, _About("rioni_answer_bytes", "Large answers that clients have not read yet", combine="livesum")
    ]
    streams: Annotated[Gauge, _About("rioni_streams", "Open streams", ("api",), combine="livesum")]
    streamed_events: Annotated[Counter, _About("rioni_streamed_events", "Events written to streams", ("api",))]
    filter_failures: Annotated[
        Counter, _About("rioni_filter_failures", "Events for which a stream's filter could not be evaluated", ("api",))
    ]
    filtered_events: Annotated[
        Counter, _About("rioni_filtered_events", "Events skipped by streams: filtered, deleted, for others", ("api",))
    ]
    expired_unread_events: Annotated[
        Counter,
        _About(
            "rioni_expired_unread_events", "Events that retention has removed before streams could read them", ("api",)
        ),
    ]
    unprocessable_events: Annotated[
        Counter,
        _About(
            "rioni_unprocessable_events",
            "Events that streams committed because no consumer ever did, kept in the dead letter queue or skipped",
            ("policy",),
        ),
    ]
    redriven_events: Annotated[Counter, _About("rioni_redriven_events", "Dead letters that were published again")]
    hub_stall_seconds: Annotated[
        Gauge,
        _About(
            "rioni_hub_stall_seconds",
            "Longest time that the event loop of a worker was blocked since its start",
            combine="livemax",
        ),
    ]
    pool_busy_threads: Annotated[
        Gauge, _About("rioni_pool_busy_threads", "Busy native threads, by pool", ("pool",), combine="livesum")
    ]
    pool_queue: Annotated[
        Gauge, _About("rioni_pool_queue", "Tasks queued for a native thread, by pool", ("pool",), combine="livesum")
    ]
    pool_oldest_seconds: Annotated[
        Gauge,
        _About("rioni_pool_oldest_seconds", "Running time of the oldest task, by pool", ("pool",), combine="livemax"),
    ]
    pool_rejected: Annotated[
        Counter, _About("rioni_pool_rejected", "Tasks rejected because no native thread was free, by pool", ("pool",))
    ]
    greenlets: Annotated[
        Gauge,
        _About(
            "rioni_greenlets", "Live greenlets: one for each connection, others for background work", combine="livesum"
        ),
    ]
    committed_cursors: Annotated[Counter, _About("rioni_committed_cursors", "Cursors that advanced a subscription")]
    feed_entries_behind: Annotated[
        Gauge,
        _About(
            "rioni_feed_entries_behind",
            "Lag of system event publishing behind the internal log, by event type, in entries",
            ("event_type",),
            combine="livemax",
        ),
    ]
    rebuild_running: Annotated[
        Gauge, _About("rioni_rebuild_running", "Whether a rebuild runs, or was interrupted", combine="livemax")
    ]
    rebuild_phase_ratio: Annotated[
        Gauge,
        _About("rioni_rebuild_phase_ratio", "Completed part of the present phase of a rebuild", combine="livemax"),
    ]
    dropped_measurements: Annotated[
        Counter,
        _About(
            "rioni_dropped_measurements",
            "Measurements that no KPI event reports, for lack of room or because a power failure has damaged them",
        ),
    ]
    store_append_seconds: Annotated[
        Histogram, _About("rioni_kafka_append_seconds", "Time until Kafka acknowledges a group of batches")
    ]
    store_failed_batches: Annotated[
        Counter, _About("rioni_kafka_failed_batches", "Batches that Kafka did not store, or whose outcome is unknown")
    ]
    store_loaded_bytes: Annotated[
        Counter, _About("rioni_kafka_loaded_bytes", "Bytes of events read from Kafka after a cache miss")
    ]
    store_events_behind: Annotated[
        Gauge, _About("rioni_kafka_events_behind", "Lag of the tail consumer of a worker, in events", combine="livemax")
    ]
    store_topic_resyncs: Annotated[
        Counter,
        _About(
            "rioni_kafka_topic_resyncs",
            "Topics whose tail a worker resynchronised because the topic was replaced or truncated",
        ),
    ]
    store_recovered_batches: Annotated[
        Counter, _About("rioni_kafka_recovered_batches", "Interrupted batches whose outcome was recovered from Kafka")
    ]

    def __init__(
        self,
        event_types_max: int = EVENT_TYPES_MAX,
        subscriptions_max: int = SUBSCRIPTIONS_MAX,
        history_series_max: int = SERIES_MAX,
    ) -> None:
        """Create them.

        Args:
            event_types_max: how many event types are counted each by its name; all others are counted together.
            subscriptions_max: the same of subscriptions, for their lags.
            history_series_max: how many series have a history.
        """
        folder = Path(os.environ[MULTIPROCESS_FOLDER]) if MULTIPROCESS_FOLDER in os.environ else None
        slot = 0
        if folder is not None:
            slot = claim_slot(folder)
            use_slot(slot)
        registry = CollectorRegistry()
        self.event_types = EventTypeCounts(folder, slot, event_types_max)
        self.lags = LagTable(folder, subscriptions_max)
        self.history = HistoryTable(folder, history_series_max)
        for attribute, hint in get_type_hints(Metrics, include_extras=True).items():
            kind, about = get_args(hint)
            setattr(self, attribute, _metric(kind, about, registry))
        self._registry = registry

    def of_store(self) -> StoreMeasurements:
        """Store measurements recorded as metrics."""
        return StoreMeasurements(
            append_seconds=self.store_append_seconds.observe,
            failed_batches=self.store_failed_batches.inc,
            loaded_bytes=self.store_loaded_bytes.inc,
            events_behind=self.store_events_behind.set,
            topic_resyncs=self.store_topic_resyncs.inc,
            recovered_batches=self.store_recovered_batches.inc,
        )

    def registry(self) -> CollectorRegistry:
        """All metrics of all worker processes."""
        registry = CollectorRegistry()
        for collector in (self.without_tables(), self.event_types, self.lags):
            registry.register(collector)
        return registry

    def without_tables(self) -> Collector:
        """The metrics, except `event_types` and `lags`, which have tables."""
        if MULTIPROCESS_FOLDER not in os.environ:
            return self._registry
        return MultiProcessCollector(None)  # type: ignore[no-untyped-call]  # prometheus_client leaves it out


def total(metric: Counter | Gauge) -> float:
    """The sum of a metric over its labels, of this process alone."""
    samples = [sample for family in metric.collect() for sample in family.samples]
    return sum(sample.value for sample in samples if not sample.name.endswith("_created"))


def _metric(kind: type[Counter | Gauge | Histogram], about: _About, registry: CollectorRegistry) -> Any:
    options: dict[str, Any] = {}
    if kind is Gauge:
        options["multiprocess_mode"] = about.combine
    elif kind is Histogram:
        options["buckets"] = LATENCY_BUCKETS_S
    return kind(about.name, about.help, about.labels, registry=registry, **options)
