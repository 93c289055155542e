"""The metrics of the broker, in Prometheus' terms, summed over the worker processes of a node.

Labels come from closed sets: methods and routes of HTTP, and names of our own. What is counted by event type has a
table of fixed size.
"""

import os
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, values
from prometheus_client.multiprocess import MultiProcessCollector

from rioni.domain.ports.store_measurements import StoreMeasurements
from rioni.http.metrics.event_type_counts import EVENT_TYPES_MAX, EventTypeCounts
from rioni.http.metrics.metrics_files import AllocatedDict
from rioni.http.metrics.metrics_slots import MULTIPROCESS_FOLDER, claim_slot


LATENCY_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    """All metrics, created once per process."""

    def __init__(self, event_types_max: int = EVENT_TYPES_MAX) -> None:
        """Create them.

        Args:
            event_types_max: how many event types are counted each by its name; all others are counted together.
        """
        folder = Path(os.environ[MULTIPROCESS_FOLDER]) if MULTIPROCESS_FOLDER in os.environ else None
        slot = 0
        if folder is not None:
            slot = claim_slot(folder)
            # The library looks for the folder when it is imported, which is before the settings are read.
            values.MmapedDict = AllocatedDict  # type: ignore[attr-defined]
            values.ValueClass = values.MultiProcessValue(lambda: slot)  # type: ignore[no-untyped-call]
        registry = CollectorRegistry()
        self.event_types = EventTypeCounts(folder, slot, event_types_max)
        self.worker_info = Gauge(
            "rioni_worker_info",
            "1 for each live worker process, by name and host name",
            ["node", "worker"],
            registry=registry,
            multiprocess_mode="livemax",
        )
        self.requests = Counter(
            "rioni_http_requests",
            "Requests answered",
            ["method", "route", "status"],
            registry=registry,
        )
        self.request_seconds = Histogram(
            "rioni_http_request_seconds",
            "Request duration, streams excluded",
            ["method", "route"],
            buckets=LATENCY_BUCKETS_S,
            registry=registry,
        )
        self.publish_seconds = Histogram(
            "rioni_publish_seconds",
            "Duration of publish requests, by body size",
            ["slo_bucket"],
            buckets=LATENCY_BUCKETS_S,
            registry=registry,
        )
        self.streams = Gauge(
            "rioni_streams",
            "Open streams",
            ["api"],
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.streamed_events = Counter(
            "rioni_streamed_events",
            "Events written to streams",
            ["api"],
            registry=registry,
        )
        self.hidden_events = Counter(
            "rioni_filtered_events",
            "Events skipped by streams: filtered, deleted, for others",
            ["api"],
            registry=registry,
        )
        self.lost_events = Counter(
            "rioni_expired_unread_events",
            "Events that retention has removed before streams could read them",
            ["api"],
            registry=registry,
        )
        self.unprocessable_events = Counter(
            "rioni_unprocessable_events",
            "Events that streams committed because no consumer ever did, kept in the dead letter queue or skipped",
            ["policy"],
            registry=registry,
        )
        self.redriven_events = Counter(
            "rioni_redriven_events",
            "Dead letters that were published again",
            registry=registry,
        )
        self.hub_stall_seconds = Gauge(
            "rioni_hub_stall_seconds",
            "Longest time that the event loop of a worker was blocked since its start",
            registry=registry,
            multiprocess_mode="livemax",
        )
        self.pool_busy_threads = Gauge(
            "rioni_pool_busy_threads",
            "Busy native threads, by pool",
            ["pool"],
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.pool_queue = Gauge(
            "rioni_pool_queue",
            "Tasks queued for a native thread, by pool",
            ["pool"],
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.pool_oldest_seconds = Gauge(
            "rioni_pool_oldest_seconds",
            "Running time of the oldest task, by pool",
            ["pool"],
            registry=registry,
            multiprocess_mode="livemax",
        )
        self.pool_rejected = Counter(
            "rioni_pool_rejected",
            "Tasks rejected because no native thread was free, by pool",
            ["pool"],
            registry=registry,
        )
        self.greenlets = Gauge(
            "rioni_greenlets",
            "Live greenlets: one for each connection, others for background work",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.committed_cursors = Counter(
            "rioni_committed_cursors",
            "Cursors that advanced a subscription",
            registry=registry,
        )
        self.feed_entries_behind = Gauge(
            "rioni_feed_entries_behind",
            "Lag of system event publishing behind the internal log, by event type, in entries",
            ["event_type"],
            registry=registry,
            multiprocess_mode="livemax",
        )
        self.dropped_measurements = Counter(
            "rioni_dropped_measurements",
            "Measurements that no KPI event reports, for lack of room or because a power failure has damaged them",
            registry=registry,
        )
        self.store_append_seconds = Histogram(
            "rioni_kafka_append_seconds",
            "Time until Kafka acknowledges a group of batches",
            buckets=LATENCY_BUCKETS_S,
            registry=registry,
        )
        self.store_failed_batches = Counter(
            "rioni_kafka_failed_batches",
            "Batches that Kafka did not store, or whose outcome is unknown",
            registry=registry,
        )
        self.store_loaded_bytes = Counter(
            "rioni_kafka_loaded_bytes",
            "Bytes of events read from Kafka after a cache miss",
            registry=registry,
        )
        self.store_events_behind = Gauge(
            "rioni_kafka_events_behind",
            "Lag of the tail consumer of a worker, in events",
            registry=registry,
            multiprocess_mode="livemax",
        )
        self.store_begun_anew = Counter(
            "rioni_kafka_topic_resyncs",
            "Topics whose tail a worker resynchronised because the topic was replaced or truncated",
            registry=registry,
        )
        self.store_settled_batches = Counter(
            "rioni_kafka_recovered_batches",
            "Interrupted batches whose outcome was recovered from Kafka",
            registry=registry,
        )
        registry.register(self.event_types)
        self._registry = registry

    def of_store(self) -> StoreMeasurements:
        """Store measurements recorded as metrics."""
        return StoreMeasurements(
            append_seconds=self.store_append_seconds.observe,
            failed_batches=self.store_failed_batches.inc,
            loaded_bytes=self.store_loaded_bytes.inc,
            events_behind=self.store_events_behind.set,
            topic_resyncs=self.store_begun_anew.inc,
            recovered_batches=self.store_settled_batches.inc,
        )

    def registry(self) -> CollectorRegistry:
        """All metrics of all worker processes."""
        if MULTIPROCESS_FOLDER not in os.environ:
            return self._registry
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]  # prometheus_client leaves it out
        registry.register(self.event_types)
        return registry
