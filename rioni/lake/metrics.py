"""The metrics of an archive process, in Prometheus' terms."""

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server


class ArchiveMetrics:
    """All metrics, by event type."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def counter(name: str, about: str) -> Counter:
            return Counter(f"rioni_archive_{name}", about, ["event_type"], registry=self.registry)

        def gauge(name: str, about: str) -> Gauge:
            return Gauge(f"rioni_archive_{name}", about, ["event_type"], registry=self.registry)

        self.events = counter("events", "Events committed to tables")
        self.bytes = counter("bytes", "JSON of the events committed to tables, in bytes")
        self.quarantined = counter("quarantined_events", "Events that did not fit the columns of their table")
        self.lost = counter("lost_events", "Events that the retention time had removed before they were archived")
        self.errors = counter("errors", "Rounds that failed; the log says why")
        self.lag_events = gauge("lag_events", "Events in the broker that are not in the table yet")
        self.lag_seconds = gauge("lag_seconds", "Age of the oldest of these events, 0 if there is none")
        self.retention_seconds = gauge("retention_seconds", "Retention time of the event type in the broker")
        self.last_commit = gauge("last_commit_timestamp_seconds", "Time of the last commit to the table")

    def serve(self, host: str, port: int) -> int:
        """Serve the metrics over HTTP in a thread of its own, and return the port; OSError if it is in use."""
        server, _ = start_http_server(port, host, self.registry)
        return int(server.server_port)
