"""The metrics of the broker, in Prometheus' terms; one text for all worker processes."""

import os

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, values
from prometheus_client.multiprocess import MultiProcessCollector


MULTIPROCESS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable that names the folder in which worker processes share their counts."""

LATENCY_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    """All metrics, created once per process."""

    def __init__(self) -> None:
        if MULTIPROCESS_FOLDER in os.environ:
            # The library looks for the folder when it is imported, which is before the settings are read.
            values.ValueClass = values.get_value_class()  # type: ignore[no-untyped-call]  # left out there
        registry = CollectorRegistry()
        self.requests = Counter(
            "rioni_http_requests",
            "Requests answered",
            ["method", "route", "status"],
            registry=registry,
        )
        self.request_seconds = Histogram(
            "rioni_http_request_seconds",
            "Time to answer, streams left out",
            ["method", "route"],
            buckets=LATENCY_BUCKETS_S,
            registry=registry,
        )
        self.published_events = Counter(
            "rioni_published_events",
            "Events stored",
            ["event_type"],
            registry=registry,
        )
        self.published_bytes = Counter(
            "rioni_published_bytes",
            "Bytes of publish requests whose events were stored",
            ["event_type"],
            registry=registry,
        )
        self.refused_batches = Counter(
            "rioni_refused_batches",
            "Batches of which nothing was stored",
            ["event_type"],
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
        self.hub_stall_seconds = Gauge(
            "rioni_hub_stall_seconds",
            "The longest time that one piece of work has kept a worker from all others, since its start",
            registry=registry,
            multiprocess_mode="livemax",
        )
        self.committed_cursors = Counter(
            "rioni_committed_cursors",
            "Cursors that advanced a subscription",
            registry=registry,
        )
        self._registry = registry

    def text(self) -> bytes:
        """All metrics in Prometheus' text format, summed over the worker processes."""
        if MULTIPROCESS_FOLDER not in os.environ:
            return generate_latest(self._registry)
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]  # prometheus_client leaves it out
        return generate_latest(registry)
