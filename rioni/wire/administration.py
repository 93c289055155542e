"""Settings, storages, jobs, rebuilds and the state of the broker."""

from datetime import datetime
from typing import Any

import msgspec

from rioni.wire.access import Attribute
from rioni.wire.base import Model


class Admins(Model):
    """The administrators, readers and writers of the broker itself."""

    admins: list[Attribute] = []
    readers: list[Attribute] = []
    writers: list[Attribute] = []


class Blocked(Model):
    """Blocked event types and applications."""

    event_types: list[str] = []
    apps: list[str] = []


class Blacklist(Model):
    """The applications and event types that are blocked, for publishing and for consuming."""

    producers: Blocked
    consumers: Blocked


class Feature(Model):
    """A switch of the broker."""

    feature: str
    enabled: bool


class Rights(Model):
    """The rights of a client now: `READ`, `WRITE`, `ADMIN`; broker: `HISTORY`; subscription: `STREAM`, `REDRIVE`."""

    subject: str
    broker: list[str]
    event_type: list[str] | None = None
    """The rights on the event type that was named."""
    subscription: list[str] | None = None
    """The rights on the subscription that was named."""
    operations: dict[str, str] = msgspec.field(default_factory=dict)
    """For each operation on the broker, and on what was named, `allowed`, or the cause of its refusal:
    `right`, `scope`, `blacklist` or `read_only`."""


class Storage(Model):
    """A storage of events."""

    id: str
    storage_type: str
    default: bool = False
    kafka_configuration: dict[str, Any] | None = None


class JobReport(Model):
    """A job's report on itself."""

    kind: str
    """`archive`; the broker lists those of `backup`, too."""
    name: str
    """The target that it writes to."""
    state: str
    """The state: `running`, `done` or `failed`; the broker shows a job that stopped reporting as `interrupted`."""
    phase: str = ""
    done: int = 0
    total: int = 0
    """The work that the phase has done, and all of its work."""
    detail: str = ""


class Job(JobReport, kw_only=True):
    """A job, as the broker remembers it."""

    id: str
    started_at: datetime
    updated_at: datetime
    client: str = ""
    """The client that reports it; empty for commands on the host of the broker."""
    realm: str | None = None
    """The realm in which the name of the client is unique; None if it has no realm."""


class Rebuild(Model):
    """A rebuild of the read models, and how far it is."""

    id: str
    state: str
    """`running`, `done`, `failed` or `interrupted`."""
    started_at: datetime
    updated_at: datetime
    phase: str
    done: int
    total: int
    detail: str = ""
    into: str | None = None
    tables: list[str] = []
    position: int = 0
    fold: int = 0


class Check(Model):
    """The state of something that the broker depends on."""

    status: str
    """`ok`, `warning` or `failed`."""
    reason: str = ""
    detail: str = ""
    warnings: list[str] = []


class Health(Model):
    """The state of a worker of the broker."""

    status: str
    """`ok`, `failed` or `stopping`."""
    worker: str = ""
    checks: dict[str, Check] = {}

    @property
    def ok(self) -> bool:
        """Whether all checks passed."""
        return self.status == "ok"


class NodeWorker(Model):
    """A worker process of a node."""

    number: int
    """The number among the workers of the node, from 0."""
    pid: int
    started_at: datetime | None = None
    reported_at: datetime | None = None
    """When it last reported the following values."""
    log_position: int = 0
    """The last entry of the internal log that it has read."""
    connections: int = 0
    streams: int = 0
    requests_per_second: float = 0.0


class Node(Model):
    """A node of the broker."""

    id: str
    """The id of this run of the node."""
    host: str
    port: int
    version: str = ""
    configured_workers: int = 0
    workers: list[NodeWorker] = []
    """The workers that are at work."""


class MetricsSeries(Model):
    """Values of a metric, oldest first."""

    name: str
    labels: dict[str, str] = {}
    values: list[float | None] = []


class MetricsHistory(Model):
    """Metrics of a node in the last hour."""

    step: int
    """Seconds between two values."""
    times: list[datetime] = []
    """The times of the values of each series."""
    series: list[MetricsSeries] = []
    matched: int = 0
    """The number of series, including those that were left out."""


class Metrics(Model):
    """Metrics of a node, each with its name and labels as Prometheus writes them."""

    version: str
    gauges: dict[str, Any] = {}
    counters: dict[str, Any] = {}
    histograms: dict[str, Any] = {}
    meters: dict[str, Any] = {}
    timers: dict[str, Any] = {}
