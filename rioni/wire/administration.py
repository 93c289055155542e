"""Settings, storages, jobs, rebuilds and the state of the broker."""

from datetime import datetime
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from rioni.wire.base import Model, note


Realm = Annotated[
    str | None, note("The realm in which the name of the client is unique; absent if the client has no realm.")
]


class Blocked(Model):
    """Blocked event types and applications."""

    event_types: list[str] = []
    apps: list[str] = []


class Blacklist(Model):
    """The applications and event types that are blocked, for publishing and for consuming."""

    producers: Blocked
    consumers: Blocked

    def entries(self) -> list[tuple[str, str]]:
        """The type and name of each block, as they are blocked and unblocked."""
        lists = {
            "PRODUCER_APP": self.producers.apps,
            "PRODUCER_ET": self.producers.event_types,
            "CONSUMER_APP": self.consumers.apps,
            "CONSUMER_ET": self.consumers.event_types,
        }
        return [(kind, name) for kind, names in lists.items() for name in names]


class Feature(Model):
    """A switch of the broker."""

    COMPONENT: ClassVar[str] = "FeatureSwitch"

    feature: Annotated[str, note("The name of the feature.", literal="FeatureName")]
    enabled: Annotated[bool, note("Whether the feature is on.")]


class Rights(Model):
    """The rights of a client now."""

    subject: Annotated[str, note("The name of the client.")]
    broker: list[Annotated[str, note(literal="BrokerRight")]]
    event_type: Annotated[
        list[Annotated[str, note(literal="EventTypeRight")]] | None,
        note("The rights to the event type that was named."),
    ] = None
    subscription: Annotated[
        list[Annotated[str, note(literal="SubscriptionRight")]] | None,
        note("The rights to the subscription that was named."),
    ] = None
    operations: Annotated[
        dict[str, Annotated[str, note(literal="Outcome")]],
        note("For each operation on the broker, and on what was named, `allowed` or the cause of its refusal."),
    ] = msgspec.field(default_factory=dict)


class Storage(Model):
    """A storage of events."""

    id: Annotated[str, note("Letters, digits, `.`, `_` and `-`, at most 36.")]
    storage_type: Annotated[str, note("The kind of storage.")]
    default: Annotated[bool, note("Whether new event types begin in this storage.")] = False
    kafka_configuration: Annotated[
        dict[str, Any] | None,
        note(
            "The addresses of a cluster and its options: `bootstrap_servers`, `topic_prefix`, `replication_factor`, "
            "`min_insync_replicas`; without servers, the brokers of the setting `kafka`. `exhibitor_address`, "
            "`exhibitor_port`, `zk_address`, `zk_path` and `zookeeper_connection` are kept as well; other members, and "
            "users in addresses, are not."
        ),
    ] = None


Count = Annotated[int, Meta(ge=0, le=2**53)]
Name = Annotated[str, Meta(max_length=500)]


class JobReport(Model):
    """The report of a job on itself."""

    COMPONENT: ClassVar[str] = "SubmittedJob"

    kind: Annotated[str, note("`archive`; the broker lists the jobs of `backup`, too.", literal="SubmittedJobKind")]
    name: Annotated[str, Meta(min_length=1, max_length=500), note("The target that the job writes to.")]
    state: Annotated[str, note("A job that stops reporting becomes `interrupted`.", literal="SubmittedJobState")]
    phase: Annotated[Name, note("The step that the job is at.")] = ""
    done: Annotated[Count, note("The work of the phase that is done.")] = 0
    total: Annotated[Count, note("All work of the phase.")] = 0
    detail: Annotated[str, Meta(max_length=1_000), note("The result, or the reason of a failure.")] = ""


class Job(JobReport, kw_only=True):
    """A job, as the broker remembers it."""

    id: str
    kind: Annotated[str, note(literal="JobKind")]
    name: Annotated[str, note("The target that the job writes to.")]
    state: Annotated[str, note("A job that stops reporting becomes `interrupted`.", literal="JobState")]
    phase: Annotated[str, note("The step that the job is at.")] = ""
    done: Annotated[int, note("The work of the phase that is done.")] = 0
    total: Annotated[int, note("All work of the phase.")] = 0
    detail: Annotated[str, note("The result, or the reason of a failure.")] = ""
    started_at: datetime
    updated_at: datetime
    client: Annotated[str, note("The client that reports it; empty for commands on the host of the broker.")] = ""
    realm: Realm = None


class Rebuild(Model):
    """A rebuild of the read models, and its progress."""

    id: str
    state: Annotated[str, note(literal="RebuildState")]
    started_at: datetime
    updated_at: datetime
    phase: Annotated[str, note("The step that the rebuild is at.")]
    done: Annotated[int, note("The work of the phase that is done.")]
    total: Annotated[int, note("All work of the phase.")]
    detail: Annotated[str, note("The result, or the reason of a failure.")] = ""
    into: Annotated[
        str | None, note("The prefix of the tables that are built; null for the live tables.", nullable=True)
    ] = None
    tables: Annotated[list[str], note("The tables that are rebuilt.")] = []
    position: Annotated[int, note("The last position of the log that is folded.")] = 0
    fold: Annotated[int, note("The version of the fold functions.")] = 0


class Check(Model):
    """The state of something that the broker depends on."""

    status: Annotated[str, note(literal="CheckStatus")]
    reason: Annotated[str, note("The reason why the check failed.", required=False)] = ""
    detail: Annotated[str, note(required=False)] = ""
    warnings: Annotated[list[str], note("Problems that do not fail the check.", required=False)] = []


class Health(Model):
    """The state of a worker of the broker."""

    status: Annotated[str, note("`ok`, `failed` or `stopping`.")]
    worker: Annotated[str, note("The unique name of the process.")] = ""
    checks: dict[str, Check] = {}

    @property
    def ok(self) -> bool:
        """Whether all checks passed."""
        return self.status == "ok"


class NodeWorker(Model):
    """A worker process of a node."""

    COMPONENT: ClassVar[str] = "Worker"

    number: Annotated[int, note("The number among the workers of the node, from 0.")]
    pid: int
    started_at: Annotated[datetime | None, note(required=True)] = None
    reported_at: Annotated[
        datetime | None, note("The time of the report from which the following members are.", required=True)
    ] = None
    log_position: Annotated[int, note("The last entry of the internal log that the worker has read.")] = 0
    connections: Annotated[int, note("The number of open connections.")] = 0
    streams: Annotated[int, note("The number of open streams.")] = 0
    requests_per_second: Annotated[float, note("The rate since the previous report.")] = 0.0


class Node(Model):
    """A node of the broker."""

    id: Annotated[str, note("The id of this run of the node.")]
    host: str
    port: int
    version: str = ""
    configured_workers: int = 0
    workers: Annotated[list[NodeWorker], note("The workers that report.")] = []


class MetricsSeries(Model):
    """Values of a metric, oldest first."""

    COMPONENT: ClassVar[str] = "MetricSeries"

    name: Annotated[str, note(literal="MetricName")]
    labels: dict[str, str] = {}
    values: list[Annotated[float | None, note(nullable=True)]] = []


class MetricsHistory(Model):
    """Metrics of a node in the last hour."""

    step: Annotated[int, note("Seconds between two values.")]
    times: Annotated[list[datetime], note("The times of the values, oldest first.")] = []
    series: list[MetricsSeries] = []
    matched: Annotated[int, note("The number of series, including those that were left out.")] = 0


class Metrics(Model):
    """Metrics of a node, each with its name and labels as Prometheus writes them."""

    version: str
    gauges: dict[str, Any] = {}
    counters: dict[str, Any] = {}
    histograms: dict[str, Any] = {}
    meters: dict[str, Any] = {}
    timers: dict[str, Any] = {}


class Version(Model):
    """The version of the broker."""

    version: str
    scm_source: Annotated[dict[str, Any] | None, note("Null: the broker does not know it.", nullable=True)] = None
