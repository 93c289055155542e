"""Builds one worker process: infrastructure, services, jobs and application (composition root)."""

import contextlib
import random
import socket
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from rioni.bootstrap.consistency.anchoring import StoreMarks
from rioni.bootstrap.database import cluster_identity, database_lease
from rioni.bootstrap.from_config import attributes, default_admin, demands, log_feeds, own_event_types
from rioni.bootstrap.infrastructure import Infrastructure, build_infrastructure
from rioni.bootstrap.memory import trim_memory
from rioni.bootstrap.pools import Pools
from rioni.bootstrap.readiness import readiness
from rioni.bootstrap.watchdog import Watchdog
from rioni.commands.authorization import AccessPolicy
from rioni.commands.background.background_jobs import BackgroundJobs
from rioni.commands.background.orphan_cleanup import OrphanCleaner
from rioni.commands.background.retention import Retention
from rioni.commands.background.watchdog import JobWatchdog
from rioni.commands.publishing.avro_publisher import AvroPublisher
from rioni.commands.publishing.publisher import Publisher
from rioni.commands.publishing.timeline_appender import TimelineAppender
from rioni.commands.subscriptions.cursor_commits import Committer
from rioni.commands.subscriptions.dead_letters import DeadLetterQueue, DeadLetterRedriver
from rioni.commands.subscriptions.initial_cursors import CursorInitializer
from rioni.commands.system.client_activity import ActivityTracker
from rioni.commands.system.kpi_publisher import KpiFeed
from rioni.commands.system.log_consumers import LogConsumers
from rioni.commands.system.system_event_publisher import SystemEventPublisher
from rioni.commands.system.system_event_types import SystemEventTypes
from rioni.commands.system.usage_metrics import UsageRecorder
from rioni.commands.timelines.timeline_switch import TimelineSwitcher
from rioni.config.settings import Config
from rioni.domain.ports.notifier import LOG_KEY
from rioni.domain.ports.spool import Spools
from rioni.domain.ports.thread_pool import ThreadPool
from rioni.domain.timestamps import rfc3339
from rioni.http.app import create_app
from rioni.http.bodies.reading import BodyBudget
from rioni.http.dependencies import STOPPING_KEY, Dependencies
from rioni.http.health_checks import HealthChecker
from rioni.http.metrics.collectors import Metrics
from rioni.http.middleware.authentication import Authentication
from rioni.http.streaming.shared_reads import CachedUntilNotified
from rioni.http.streaming.slots import StreamQuota
from rioni.http.streaming.stream_context import StreamMemory, StreamPorts
from rioni.projections.avro_schemas import CompiledAvroSchemas
from rioni.projections.checkpointed_log import SqlCheckpointedLogReader
from rioni.storage.clock import ExpiryClock
from rioni.storage.embedded.data_directory import DataDirectory
from rioni.storage.embedded.spool import FileSpool
from rioni.storage.sql import engines
from rioni.storage.sql.activity import opened_activity
from rioni.storage.sql.database_lease import DatabaseLease
from rioni.storage.tokens.sources import sources_of_tokens


OCCUPIED_WAIT_S = 10.0
"""Other brokers can only have come since the master process checked; and it ends a worker not started after 30 s."""


class Worker(NamedTuple):
    """The application and the jobs of one worker process."""

    app: Any
    """The WSGI application."""
    stop: Callable[[], None]
    """Ends all streams gracefully."""
    run_background_jobs: Callable[[], None]
    """Runs the periodic jobs."""
    close: Callable[[], None]
    """Releases all resources, so that other processes can take over at once."""
    metrics: Metrics
    watchdog: Watchdog


class _SystemEvents(NamedTuple):
    """Services by which the broker publishes events of its own."""

    event_types: SystemEventTypes
    publisher: SystemEventPublisher
    spools: Spools


def worker(config: Config, directory: DataDirectory, pools: Pools) -> Worker:
    """Build a worker; call it in the worker process.

    Args:
        config: the settings.
        directory: locked by the master process.
        pools: of this process.

    Raises:
        Unavailable: a server can't be reached, or other brokers use the database.
    """
    metrics = Metrics(config.metrics_event_types_max)
    lease = database_lease(config, cluster_identity(config, directory.broker))
    held = lease.acquire(min(OCCUPIED_WAIT_S, config.database_lock_timeout_s))
    base = build_infrastructure(config, directory, pools.worker_pools(), metrics.of_store())
    system_events = _system_events(base)
    job_watchdog = JobWatchdog(base.clock)
    watchdog = Watchdog(pools, metrics)
    dependencies = _dependencies(base, system_events, metrics, job_watchdog, held, watchdog)
    marks = StoreMarks(base)

    def stop() -> None:
        dependencies.stopping.set()
        base.adapters.signals.notify(STOPPING_KEY)

    def close() -> None:
        with contextlib.closing(held), contextlib.closing(base):
            marks.note(everything=True)

    metrics.worker_info.labels(socket.gethostname(), base.adapters.coordinator.worker).set(1)
    jobs = _jobs(base, dependencies, system_events, metrics)

    def do_jobs() -> None:
        jobs()
        marks.tick()

    run_background_jobs = job_watchdog.watched(do_jobs)
    return Worker(create_app(dependencies, metrics), stop, run_background_jobs, close, metrics, watchdog)


def _system_events(base: Infrastructure) -> _SystemEvents:
    event_types = own_event_types(base.config, base.limits)
    return _SystemEvents(
        SystemEventTypes(event_types, base.registry, base.bus, lambda: rfc3339(base.clock.now_ms())),
        SystemEventPublisher(base.registry, base.adapters.stores, base.clock, _rng()),
        Spools(FileSpool(base.directory.spools, "requests"), FileSpool(base.directory.spools, "streams")),
    )


def _rng() -> random.Random:
    """Random number generator for partitions chosen at random; need not be unpredictable."""
    return random.Random()  # noqa: S311 - as the docstring says


def _dependencies(
    base: Infrastructure,
    system_events: _SystemEvents,
    metrics: Metrics,
    job_watchdog: JobWatchdog,
    held: DatabaseLease,
    watchdog: Watchdog,
) -> Dependencies:
    config, limits, clock, pools = base.config, base.limits, base.clock, base.pools
    registry, bus, adapters = base.registry, base.bus, base.adapters
    stores, coordinator, signals = adapters.stores, adapters.coordinator, adapters.signals
    administrator = default_admin(config)
    access = AccessPolicy(registry, administrator, attributes(config.all_data_access))
    timeline = TimelineAppender(registry, stores, signals, clock, wait_max_s=config.timeline_switch_timeout_s)
    policy = demands(config)
    tokens = sources_of_tokens(
        config,
        ExpiryClock(),
        policy,
        pools.tokens,
        only_remote=lambda: "remote_tokeninfo" in registry.settings.features,
    )
    return Dependencies(
        config=config,
        limits=limits,
        default_admin=administrator,
        authentication=Authentication(policy, tokens, ExpiryClock()),
        clock=clock,
        database_pool=pools.database,
        compute_pool=pools.definitions,
        bus=bus,
        cursor_initializer=CursorInitializer(
            registry,
            access,
            bus,
            stores=stores,
            coordinator=coordinator,
            reset_timeout_s=config.commit_timeout_max_s + 1,
        ),
        activity=ActivityTracker(opened_activity(base.log.engine, base.directory.activity), clock, _activity(base)),
        timeline_switcher=TimelineSwitcher(registry, bus, signals, clock, timeline.found_closed),
        access=access,
        avro_publisher=AvroPublisher(
            registry,
            access,
            timeline,
            clock,
            _rng(),
            limits,
            schemas=CompiledAvroSchemas(base.read, pools.database, limits.event_bytes_max),
            pool=pools.computing,
        ),
        publisher=Publisher(registry, access, timeline, clock, _rng(), limits, pools.computing),
        system_event_types=system_events.event_types,
        usage=UsageRecorder(registry, system_events.spools, metrics.dropped_measurements.inc),
        committer=Committer(registry, access, coordinator),
        dead_letters=DeadLetterRedriver(registry, access, bus, stores=stores, timeline=timeline),
        dead_letter_queue=DeadLetterQueue(system_events.event_types, system_events.publisher, clock),
        registry=registry,
        stores=stores,
        coordinator=coordinator,
        bodies=BodyBudget(config.bodies_bytes_max, config.bodies_bytes_per_client_max),
        stream_quota=StreamQuota(
            adapters.quota,
            per_client_max=config.streams_per_client_max,
            per_partition_max=config.streams_per_partition_max,
        ),
        streams=StreamPorts(
            clock=clock,
            stores=stores,
            timelines=registry.timelines,
            signals=signals,
            coordinator=coordinator,
            memory=StreamMemory(config.worker_stream_memory_bytes_max),
        ),
        refresh_streams=CachedUntilNotified(registry.catch_up, LOG_KEY, signals, clock),
        signals=signals,
        read=base.read,
        live=HealthChecker({"housekeeping": job_watchdog.health, "threads": watchdog.health}, clock),
        ready=HealthChecker(readiness(base, held), clock),
        stopping=threading.Event(),
    )


def _activity(base: Infrastructure) -> ThreadPool:
    """Return the pool for writing client activity: in a separate file, or in the database."""
    return base.pools.activity if base.log.engine.dialect.name == "sqlite" else base.pools.database


def _jobs(
    base: Infrastructure, dependencies: Dependencies, system_events: _SystemEvents, metrics: Metrics
) -> Callable[[], None]:
    """Return a function that runs all periodic jobs, one after the other."""
    config, adapters, clock, pools = base.config, base.adapters, base.clock, base.pools
    background_jobs = BackgroundJobs(
        base.registry,
        adapters.coordinator,
        clock,
        retention=Retention(
            base.registry,
            adapters.stores,
            base.bus,
            clock,
            idempotency_window_s=config.idempotency_window_s,
            compaction_lag_s=config.compaction_lag_s,
            every_s=config.retention_interval_s,
        ),
        cursor_initializer=dependencies.cursor_initializer,
        timeline_switcher=dependencies.timeline_switcher,
        orphan_cleaner=OrphanCleaner(base.registry, adapters.stores, adapters.coordinator, base.bus),
        context=base.system_context,
    )
    engine = base.log.engine
    consumers = LogConsumers(
        log_feeds(config),
        SqlCheckpointedLogReader(base.log, partial(engines.reading, engine), partial(engines.writing, engine)),
        adapters.leadership,
        system_events.event_types,
        system_events.publisher,
        pools.database,
    )
    kpis = KpiFeed(
        system_events.spools,
        system_events.event_types,
        system_events.publisher,
        clock,
        pools.files,
        salt=config.pseudonym_salt,
        streams_every_s=config.kpi_streams_interval_s,
        dropped=metrics.dropped_measurements.inc,
    )

    def run_jobs() -> None:
        background_jobs.tick()
        dependencies.activity.tick()
        consumers.tick()
        kpis.tick()
        adapters.publish_position(base.registry.position)
        for event_type, entries in consumers.behind().items():
            metrics.feed_entries_behind.labels(event_type).set(entries)
        metrics.event_types.forget_deleted(base.registry.event_type)
        if dependencies.bodies.has_released_large():
            base.pools.computing(trim_memory)

    return run_jobs
