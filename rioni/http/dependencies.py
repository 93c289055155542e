"""Dependencies of the API's resources, built once per process by bootstrap, and the resources' base."""

import threading  # threads: an event that is only set and checked
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Concatenate, ParamSpec, TypeVar

from rioni.commands.authorization import AccessPolicy
from rioni.commands.bus import CommandBus
from rioni.commands.publisher import AvroPublisher, Publisher
from rioni.commands.subscriptions.cursors import CursorCommitter
from rioni.commands.subscriptions.dead_letter_queue import DeadLetterQueue
from rioni.commands.subscriptions.dead_letters import DeadLetterRedriver
from rioni.commands.subscriptions.initial_cursors import CursorInitializer
from rioni.commands.system.checkpoint_signer import CheckpointSigner
from rioni.commands.system.client_activity import ActivityTracker, DeniedRequests
from rioni.commands.system.job_records import JobRecords
from rioni.commands.system.kpis import UsageRecorder
from rioni.commands.system.system_events import SystemEventTypes
from rioni.commands.timelines.timeline_switch import TimelineSwitcher
from rioni.config.settings import Config
from rioni.domain.access.authorization import Attribute
from rioni.domain.limits import Limits
from rioni.domain.ports.coordinator import Coordinator
from rioni.domain.ports.event_log import Registry
from rioni.domain.ports.event_store import EventStores
from rioni.domain.ports.host import Clock, Notifier, ThreadPool
from rioni.http.answer_budget import AnswerBudget
from rioni.http.bodies.reading import BodyBudget
from rioni.http.health_checks import HealthChecker
from rioni.http.metrics.collectors import Metrics
from rioni.http.middleware.authentication import Authentication
from rioni.http.quotas import Quotas, StreamQuota
from rioni.http.streaming.stream_context import CachedUntilNotified, StreamPorts
from rioni.http.streaming.stream_tickets import Resumption, StreamTickets


# --- Dependencies of the API's resources, built once per process by bootstrap ---

P = ParamSpec("P")
T = TypeVar("T")

STOPPING_KEY = "stopping"
"""The key notified when a process is asked to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """Dependencies of the API in one worker process."""

    config: Config
    limits: Limits
    default_admin: Attribute
    authentication: Authentication
    metrics: Metrics
    clock: Clock
    database_pool: ThreadPool
    """Thread pool for database calls."""
    compute_pool: ThreadPool
    """Thread pool for slow computations."""
    evaluation_pool: ThreadPool
    """Thread pool for filters that clients try."""
    bus: CommandBus
    access: AccessPolicy
    publisher: Publisher
    avro_publisher: AvroPublisher
    system_event_types: SystemEventTypes
    usage: UsageRecorder
    committer: CursorCommitter
    dead_letters: DeadLetterRedriver
    dead_letter_queue: DeadLetterQueue
    cursor_initializer: CursorInitializer
    activity: ActivityTracker
    checkpoint_signer: CheckpointSigner
    denied: DeniedRequests
    jobs: JobRecords
    timeline_switcher: TimelineSwitcher
    registry: Registry
    stores: EventStores
    coordinator: Coordinator
    bodies: BodyBudget
    answers: AnswerBudget
    stream_quota: StreamQuota
    quotas: Quotas
    resumption: Resumption
    stream_tickets: StreamTickets
    streams: StreamPorts
    """Dependencies of all streams."""
    refresh_streams: CachedUntilNotified[None]
    """Refreshes the registry, once for all streams that a notification wakes."""
    signals: Notifier
    read: Callable[..., Any]
    """`read(query, ...)` calls `query(connection, ...)` with a connection to the read models."""
    live: HealthChecker
    """Health checks of this process."""
    ready: HealthChecker
    """Health checks of the dependencies of requests."""
    stopping: threading.Event = field(default_factory=threading.Event)
    """Set when the process is asked to end: streams end with a final batch then."""

    def query(self, query: Callable[Concatenate[Any, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a query of `rioni.projections` off the hub."""
        result: T = self.database_pool(self.read, query, *args, **kwargs)
        return result


# --- Base of the API's resources ---


class Resource:
    """A resource, which uses the dependencies of its process."""

    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies
