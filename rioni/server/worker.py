"""Builds one worker process: infrastructure, services, jobs and application (composition root)."""

import contextlib
import encodings.unicode_escape  # noqa: F401 - of the compiler of schemas; see `load_filters`
import socket
import threading  # threads: an event that is only set and checked
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from rioni.commands.job_runner import JobWatchdog
from rioni.commands.subscriptions.dead_letter_queue import DeadLetterQueue
from rioni.commands.subscriptions.dead_letters import DeadLetterRedriver
from rioni.commands.system.client_activity import ActivityTracker, DeniedRequests
from rioni.commands.system.job_records import JobRecords
from rioni.commands.system.kpis import UsageRecorder
from rioni.config.settings import Config
from rioni.domain.ports.host import LOG_KEY, Clock, Spools
from rioni.domain.subscriptions.event_filter import load_filters
from rioni.http.answer_budget import AnswerBudget, released_when_sent
from rioni.http.app import create_app
from rioni.http.bodies.reading import BodyBudget
from rioni.http.dependencies import STOPPING_KEY, Dependencies
from rioni.http.health_checks import HealthChecker
from rioni.http.metrics.collectors import Metrics
from rioni.http.middleware.authentication import Authentication
from rioni.http.middleware.base_path import below_base_path
from rioni.http.quotas import NAMES as QUOTAS
from rioni.http.quotas import Quotas, SharedBuckets, StreamQuota
from rioni.http.streaming.stream_context import CachedUntilNotified, SharedCall, StreamMemory, StreamPorts
from rioni.http.streaming.stream_tickets import Resumption, StreamTickets
from rioni.installation.anchoring import StoreMarks
from rioni.installation.database import cluster_identity, database_lease
from rioni.installation.from_config import default_admin, log_consumers, token_policy
from rioni.installation.infrastructure import Infrastructure, build_infrastructure, shared_secret
from rioni.installation.pools import Pools
from rioni.server.console import with_console
from rioni.server.log_tree import KeyRecorder, TileBuilder, build_checkpoint_signer
from rioni.server.memory import trim_memory
from rioni.server.readiness import readiness
from rioni.server.reporting import Lags, MetricsHistory, RebuildGauges, WorkerReporter
from rioni.server.services import (
    CustomProjections,
    Services,
    build_background_jobs,
    build_chain_anchoring,
    build_kpi_feed,
    build_log_consumers,
    build_services,
    build_topic_digests,
)
from rioni.server.watchdog import Watchdog
from rioni.storage.clock import ExpiryClock, SystemClock
from rioni.storage.embedded.coordination.workers import FileLeadership
from rioni.storage.embedded.data_directory import DataDirectory
from rioni.storage.embedded.expendable import EmbeddedActivity, EmbeddedJobs
from rioni.storage.embedded.spool import FileSpool
from rioni.storage.sql.access_tables import SqlDenials
from rioni.storage.tokens.sources import sources_of_tokens


OCCUPIED_WAIT_S = 10.0
"""Other brokers can only have started since the master process checked; and it ends a worker not started after 30 s."""


class Worker(NamedTuple):
    """The application and the jobs of one worker process."""

    app: Any
    """The WSGI application."""
    stop: Callable[[], None]
    """Ends all streams gracefully."""
    wake: Callable[[], None]
    """Lets all streams check the time and pending changes at once."""
    run_background_jobs: Callable[[], None]
    """Runs the periodic jobs."""
    follow_lags: Callable[[], None]
    """Keeps the lags of subscriptions up to date; call it every `TICK_S` of `rioni.server.reporting`."""
    report: Callable[[int, int], None]
    """Tells the other workers about this one; see `WorkerReporter`."""
    close: Callable[[], None]
    """Releases all resources, so that other processes can take over at once."""
    metrics: Metrics
    watchdog: Watchdog


def shared_buckets() -> SharedBuckets:
    """The used quotas of clients at all workers of this node; call it before they are forked."""
    return SharedBuckets(len(QUOTAS))


def worker(
    config: Config,
    directory: DataDirectory,
    pools: Pools,
    clock: Clock | None = None,
    buckets: SharedBuckets | None = None,
) -> Worker:
    """Build a worker; call it in the worker process.

    Args:
        config: the settings.
        directory: locked by the master process.
        pools: the pools of this process.
        clock: the clock for everything, the expiry of tokens as well; by default those of the machine.
        buckets: the buckets of the node; by default this worker has its own.

    Raises:
        Unavailable: a server can't be reached, or other brokers use the database.
    """
    load_filters()
    metrics = Metrics(
        config.metrics_event_types_max, config.metrics_subscriptions_max, config.metrics_history_series_max
    )
    lease = database_lease(config, cluster_identity(config, directory.broker))
    held = lease.acquire(min(OCCUPIED_WAIT_S, config.database_lock_timeout_s))
    base = build_infrastructure(
        config, directory, pools.worker_pools(), metrics.of_store(), SystemClock() if clock is None else clock
    )
    services = build_services(base)
    spools = Spools(FileSpool(directory.spools, "requests"), FileSpool(directory.spools, "streams"))
    job_watchdog = JobWatchdog(base.clock)
    watchdog = Watchdog(pools, metrics)
    expiry = ExpiryClock() if clock is None else clock
    quotas = Quotas(
        config, shared_buckets() if buckets is None else buckets, lambda name: metrics.quota_refusals.labels(name).inc()
    )
    live = HealthChecker({"housekeeping": job_watchdog.health, "threads": watchdog.health}, base.clock)
    ready = HealthChecker(readiness(base, held), base.clock)
    dependencies = _dependencies(base, services, spools, metrics, expiry, live, ready, quotas)
    marks = StoreMarks(base)

    def wake() -> None:
        base.adapters.signals.notify(STOPPING_KEY)

    def stop() -> None:
        dependencies.stopping.set()
        wake()

    # Elected among the workers of this node, for work that one of them does for all.
    elected = FileLeadership(directory.scratch / "elected")
    lags = Lags(base, metrics, elected)

    def close() -> None:
        lags.close()
        elected.close()
        with contextlib.closing(held), contextlib.closing(base):
            dependencies.activity.close()
            marks.note(everything=True)

    metrics.worker_info.labels(socket.gethostname(), base.adapters.coordinator.worker).set(1)
    jobs = _jobs(base, services, dependencies, metrics)

    history = MetricsHistory(base, metrics, elected, lags)

    def do_jobs() -> None:
        jobs()
        history.tick()
        marks.tick()

    run_background_jobs = job_watchdog.watched(do_jobs)
    report = WorkerReporter(base, metrics).report
    return Worker(
        _application(dependencies, base),
        stop,
        wake,
        run_background_jobs,
        lags.tick,
        report,
        close,
        metrics,
        watchdog,
    )


def _application(dependencies: Dependencies, base: Infrastructure) -> Any:
    app, config = create_app(dependencies), dependencies.config
    if config.console:
        app = with_console(app, dependencies, base)
    return released_when_sent(below_base_path(app, config))


def _dependencies(
    base: Infrastructure,
    services: Services,
    spools: Spools,
    metrics: Metrics,
    expiry: Clock,
    live: HealthChecker,
    ready: HealthChecker,
    quotas: Quotas,
) -> Dependencies:
    config, limits, clock, pools = base.config, base.limits, base.clock, base.pools
    registry, bus, adapters = base.registry, base.bus, base.adapters
    stores, coordinator, signals = adapters.stores, adapters.coordinator, adapters.signals
    policy = token_policy(config)
    tokens = sources_of_tokens(
        config,
        expiry,
        policy,
        pools.tokens,
        only_remote=lambda: "remote_tokeninfo" in registry.settings.features,
    )
    secret = partial(pools.files, shared_secret, config, base.directory)
    return Dependencies(
        config=config,
        limits=limits,
        default_admin=default_admin(config),
        authentication=Authentication(policy, tokens, expiry),
        metrics=metrics,
        clock=clock,
        database_pool=pools.database,
        compute_pool=pools.definitions,
        evaluation_pool=pools.evaluations,
        bus=bus,
        cursor_initializer=services.cursor_initializer,
        activity=_activity_tracker(base),
        checkpoint_signer=build_checkpoint_signer(base),
        denied=DeniedRequests(SqlDenials(base.log.engine), clock, pools.database),
        jobs=_job_records(base),
        timeline_switcher=services.timeline_switcher,
        access=services.access,
        avro_publisher=services.avro_publisher,
        publisher=services.publisher,
        system_event_types=services.system_event_types,
        usage=UsageRecorder(registry, spools, metrics.dropped_measurements.inc),
        committer=services.committer,
        dead_letters=DeadLetterRedriver(
            registry,
            services.access,
            bus,
            stores=stores,
            timeline=services.timeline,
            compute=pools.definitions,
        ),
        dead_letter_queue=DeadLetterQueue(services.system_event_types, services.system_publisher, clock),
        registry=registry,
        stores=stores,
        coordinator=coordinator,
        bodies=BodyBudget(config.bodies_bytes_max, config.bodies_bytes_per_client_max),
        answers=AnswerBudget(config.answers_bytes_max, config.answers_bytes_per_client_max),
        stream_quota=StreamQuota(
            adapters.quota,
            per_client_max=config.streams_per_client_max,
            per_partition_max=config.streams_per_partition_max,
        ),
        quotas=quotas,
        resumption=Resumption(secret),
        stream_tickets=StreamTickets(secret, adapters.quota, clock),
        streams=StreamPorts(
            clock=clock,
            stores=stores,
            timelines=registry.timelines,
            signals=signals,
            coordinator=coordinator,
            memory=StreamMemory(config.worker_stream_memory_bytes_max),
        ),
        refresh_streams=CachedUntilNotified(SharedCall(registry.catch_up), LOG_KEY, signals, clock),
        signals=signals,
        read=base.read,
        live=live,
        ready=ready,
        stopping=threading.Event(),
    )


def _activity_tracker(base: Infrastructure) -> ActivityTracker:
    """Return the tracker of client activity: in the log's database on PostgreSQL, in a separate file on SQLite."""
    engine, pools = base.log.engine, base.pools
    if engine.dialect.name == "sqlite":
        return ActivityTracker(EmbeddedActivity(base.directory.activity), base.clock, pools.activity)
    # PERF: it imports the dialect of PostgreSQL, for 20 ms.
    from rioni.storage.sql.expendable_tables import SqlActivity  # noqa: PLC0415

    return ActivityTracker(SqlActivity(engine), base.clock, pools.database)


def _job_records(base: Infrastructure) -> JobRecords:
    """Archives and backups: in the log's database on PostgreSQL, in a separate file on SQLite."""
    engine, pools = base.log.engine, base.pools
    if engine.dialect.name == "sqlite":
        return JobRecords(EmbeddedJobs(base.directory.jobs), base.clock, pools.database)
    # PERF: it imports the dialect of PostgreSQL, for 20 ms.
    from rioni.storage.sql.expendable_tables import SqlJobs  # noqa: PLC0415

    return JobRecords(SqlJobs(engine), base.clock, pools.database)


def _jobs(base: Infrastructure, services: Services, dependencies: Dependencies, metrics: Metrics) -> Callable[[], None]:
    """Return a function that runs all periodic jobs in order."""
    background_jobs = build_background_jobs(base, services, base.system_context)
    consumers = build_log_consumers(base, services, log_consumers(base.config))
    tiles = TileBuilder(base)
    keys = KeyRecorder(base, dependencies.checkpoint_signer)
    rebuilds = RebuildGauges(base, metrics)
    custom = CustomProjections(base)
    chains = build_chain_anchoring(base, base.system_context)
    digests = build_topic_digests(base, base.system_context)
    kpis = build_kpi_feed(base, services, dependencies.usage)

    def run_jobs() -> None:
        background_jobs.tick()
        dependencies.activity.tick()
        dependencies.denied.tick()
        keys.tick()
        consumers.tick()
        kpis.tick()
        chains.tick()
        digests.tick()
        tiles.tick()
        rebuilds.tick()
        custom.tick()
        base.adapters.publish_position(base.registry.position)
        for event_type, entries in consumers.behind().items():
            metrics.feed_entries_behind.labels(event_type).set(entries)
        metrics.event_types.forget_deleted(base.registry.event_type)
        metrics.answer_bytes.set(dependencies.answers.held)
        if dependencies.bodies.has_released_large():
            base.pools.computing(trim_memory)

    return run_jobs
