"""Wires the services of a process that need no HTTP: publishing, cursors, timelines, projections, sessions."""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from random import Random
from typing import NamedTuple, TypeVar

from sqlalchemy import Engine

from rioni.commands.authorization import AccessPolicy
from rioni.commands.job_runner import LoggedJobRunner
from rioni.commands.maintenance import BackgroundJobs, OrphanCleaner, Retention
from rioni.commands.publisher import AvroPublisher, Publisher
from rioni.commands.subscriptions.cursors import CursorCommitter
from rioni.commands.subscriptions.initial_cursors import CursorInitializer
from rioni.commands.system.anchoring import ChainAnchoring, TopicDigests
from rioni.commands.system.kpis import KpiFeed, UsageRecorder
from rioni.commands.system.system_events import LogConsumer, LogConsumers, SystemEventPublisher, SystemEventTypes
from rioni.commands.timeline_appender import TimelineAppender
from rioni.commands.timelines.timeline_switch import TimelineSwitcher
from rioni.commands.unit_of_work import CommandContext
from rioni.console.sessions import HOLDER_CHARACTERS, SessionsUnavailable
from rioni.domain.errors import Unavailable
from rioni.domain.ports.event_store import EventStores
from rioni.domain.ports.host import ThreadPool
from rioni.domain.timestamps import rfc3339
from rioni.installation.from_config import auditors, default_admin, parse_attributes, system_event_types
from rioni.installation.infrastructure import Infrastructure
from rioni.projections.custom import installed
from rioni.projections.custom_tables import CustomProjector
from rioni.projections.projector import SqlCheckpointedLogReader
from rioni.projections.registry import CompiledAvroSchemas
from rioni.storage.sql import engines
from rioni.storage.sql.access_tables import SqlEndedSessions
from rioni.storage.sql.engines import reading


# Wires the services of a process that need no HTTP: publishing, cursors, timelines, system events, background jobs.


class Services(NamedTuple):
    """The services of a process."""

    access: AccessPolicy
    timeline: TimelineAppender
    publisher: Publisher
    avro_publisher: AvroPublisher
    committer: CursorCommitter
    cursor_initializer: CursorInitializer
    timeline_switcher: TimelineSwitcher
    system_event_types: SystemEventTypes
    system_publisher: SystemEventPublisher


def build_services(base: Infrastructure, rng: Callable[[], Random] = Random) -> Services:
    """Wire the services; neither blocks nor opens anything.

    Args:
        base: the infrastructure of this process.
        rng: makes generators for partitions that are chosen at random; they need not be unpredictable.
    """
    config, limits, clock, pools = base.config, base.limits, base.clock, base.pools
    registry, bus = base.registry, base.bus
    stores, coordinator, signals = base.adapters.stores, base.adapters.coordinator, base.adapters.signals
    access = AccessPolicy(
        registry,
        default_admin(config),
        parse_attributes(config.all_data_access),
        parse_attributes(config.audit_readers),
        auditors(config),
    )
    timeline = TimelineAppender(registry, stores, signals, clock, wait_max_s=config.timeline_switch_timeout_s)
    schemas = CompiledAvroSchemas(base.read, pools.database, limits.event_bytes_max, base.compiled)
    return Services(
        access=access,
        timeline=timeline,
        publisher=Publisher(registry, access, timeline, clock, rng(), limits, pools.computing),
        avro_publisher=AvroPublisher(
            registry, access, timeline, clock, rng(), limits, schemas=schemas, pool=pools.computing
        ),
        committer=CursorCommitter(registry, access, coordinator),
        cursor_initializer=CursorInitializer(
            registry,
            access,
            bus,
            stores=stores,
            coordinator=coordinator,
            reset_timeout_s=config.commit_timeout_max_s + 1,
        ),
        timeline_switcher=TimelineSwitcher(registry, bus, signals, clock, timeline.found_closed),
        system_event_types=SystemEventTypes(
            system_event_types(config, limits), registry, bus, lambda: rfc3339(clock.now_ms())
        ),
        system_publisher=SystemEventPublisher(registry, stores, clock, rng()),
    )


def build_background_jobs(
    base: Infrastructure, services: Services, context: Callable[[], CommandContext], stores: EventStores | None = None
) -> BackgroundJobs:
    """Wire the periodic jobs.

    Args:
        base: the infrastructure of this process.
        services: the services of this process.
        context: makes the context of a command that a job issues.
        stores: the stores in which events expire and orphans are searched; None for those of `base`.
    """
    registry, adapters, bus, config = base.registry, base.adapters, base.bus, base.config
    stores = stores or adapters.stores
    return BackgroundJobs(
        registry,
        adapters.coordinator,
        base.clock,
        retention=Retention(
            registry,
            stores,
            bus,
            base.clock,
            idempotency_window_s=config.idempotency_window_s,
            compaction_lag_s=config.compaction_lag_s,
            every_s=config.retention_interval_s,
        ),
        cursor_initializer=services.cursor_initializer,
        timeline_switcher=services.timeline_switcher,
        orphan_cleaner=OrphanCleaner(registry, stores, adapters.coordinator, bus),
        context=context,
    )


def build_chain_anchoring(base: Infrastructure, context: Callable[[], CommandContext]) -> ChainAnchoring:
    """Wire the recording of ranges and hash chains in the log; `context` makes the context of its commands."""
    adapters, every_s = base.adapters, base.config.events_anchor_interval_s
    return ChainAnchoring(base.registry, adapters.stores, base.bus, base.clock, adapters.leadership, context, every_s)


def build_topic_digests(base: Infrastructure, context: Callable[[], CommandContext]) -> TopicDigests:
    """Wire the recording of digests of closed topics in the log; `context` makes the context of its commands."""
    adapters = base.adapters
    return TopicDigests(base.registry, adapters.stores, base.bus, base.clock, adapters.leadership, context)


def build_log_consumers(base: Infrastructure, services: Services, consumers: Iterable[LogConsumer]) -> LogConsumers:
    """Wire the publishing of system events from the log."""
    engine = base.log.engine
    return LogConsumers(
        list(consumers),
        SqlCheckpointedLogReader(base.log, partial(engines.reading, engine), partial(engines.writing, engine)),
        base.adapters.leadership,
        services.system_event_types,
        services.system_publisher,
        base.pools.database,
    )


def build_kpi_feed(base: Infrastructure, services: Services, usage: UsageRecorder) -> KpiFeed:
    """Wire the publishing of KPIs from spools.

    Args:
        base: the infrastructure of this process.
        services: the services of this process.
        usage: records the measurements of requests and streams.
    """
    return KpiFeed(
        usage,
        services.system_event_types,
        services.system_publisher,
        base.clock,
        base.pools.files,
        salt=base.config.pseudonym_salt,
        streams_every_s=base.config.kpi_streams_interval_s,
    )


# Brings users' projections that lag behind the log up to date: new ones, and those of nodes that lacked them.

ENTRIES_PER_TRANSACTION = 200
"""The log is locked meanwhile: some hundredths of a second."""
TRANSACTIONS_PER_TICK = 5


class CustomProjections:
    """Does so in the process that is the leader, a little at a time; failures are logged."""

    def __init__(self, base: Infrastructure) -> None:
        self._base, self._runner = base, LoggedJobRunner()
        self._projector = CustomProjector(installed())

    def tick(self) -> None:
        """Fold some entries; blocks on the database."""
        if installed() and self._base.adapters.leadership.held():
            self._runner.run("bringing custom projections up to date", self.catch_up)

    def catch_up(self, transactions_max: int = TRANSACTIONS_PER_TICK) -> None:
        """Fold some entries into each projection that lags behind.

        Raises:
            Unavailable: the database can't be used.
        """
        for _ in range(transactions_max):
            if not self._base.pools.database(self._fold_some):
                return

    def _fold_some(self) -> bool:
        with reading(self._base.log.engine) as connection:
            behind = self._projector.behind(connection, self._base.log.head().position)
        for shown in behind:
            self._fold(shown)
        return bool(behind)

    def _fold(self, shown: int) -> None:
        with self._base.log.transaction() as transaction:
            entries = list(islice(transaction.entries(shown), ENTRIES_PER_TRANSACTION))
            self._projector.apply(transaction.connection, entries)


# Gives the console the sessions that have ended: in the registry database, through the pool that waits for it.

T = TypeVar("T")


class StoredEndedSessions:
    """The console's port `EndedSessionStore`.

    Args:
        engine: the engine of a migrated database; closed by its owner.
        pool: runs calls that block on the database.
    """

    def __init__(self, engine: Engine, pool: ThreadPool) -> None:
        self._store, self._pool = SqlEndedSessions(engine, HOLDER_CHARACTERS), pool

    def end(self, session_id: str, until_s: int, now_s: int) -> None:
        """Keep that a session has ended; see the port."""
        self._call(self._store.end, session_id, until_s, now_s)

    def has_ended(self, session_id: str) -> bool:
        """Whether a session has ended; see the port."""
        return self._call(self._store.has_ended, session_id)

    def _call(self, function: Callable[..., T], *args: object) -> T:
        try:
            return self._pool(function, *args)
        except Unavailable as ex:
            raise SessionsUnavailable from ex
