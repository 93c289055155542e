"""A broker without HTTP: bus, log, projections and embedded adapters in a directory of the test."""

import contextlib
import itertools
import tempfile
import uuid
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from rioni.commands.authorization import AccessPolicy
from rioni.commands.background.background_jobs import BackgroundJobs
from rioni.commands.background.orphan_cleanup import OrphanCleaner
from rioni.commands.background.retention import Retention
from rioni.commands.bus import CommandBus
from rioni.commands.context import Context, Outside
from rioni.commands.event_types import CreateEventType
from rioni.commands.publishing.avro_publisher import AvroPublisher
from rioni.commands.publishing.publisher import Publisher
from rioni.commands.publishing.timeline_appender import TimelineAppender
from rioni.commands.subscriptions.cursor_commits import Committer
from rioni.commands.subscriptions.initial_cursors import CursorInitializer
from rioni.commands.system.kpi_publisher import KpiFeed
from rioni.commands.system.log_consumers import LogConsumer, LogConsumers
from rioni.commands.system.storages import CreateStorage
from rioni.commands.system.system_event_publisher import SystemEventPublisher
from rioni.commands.system.system_event_types import SystemEventTypes
from rioni.commands.timelines.timeline_switch import TimelineSwitcher
from rioni.commands.timelines.timelines import StartSwitch
from rioni.domain.access.authorization import BROKER, Attribute, Subject
from rioni.domain.aggregates import TOPICS
from rioni.domain.event_types.event_type import EventTypeSpec
from rioni.domain.limits import Limits
from rioni.domain.ports.event_log import EventLog
from rioni.domain.ports.event_store import EventStore
from rioni.domain.ports.event_stores import EventStores
from rioni.domain.ports.spool import Spools
from rioni.domain.ports.thread_pool import direct, in_place
from rioni.domain.system.storages import DEFAULT_STORAGE, EMBEDDED, KAFKA, StorageEntry
from rioni.domain.system.system_event_types import Ownership, audit_log, kpis
from rioni.domain.timelines.timeline import Timeline
from rioni.domain.timelines.topic_creation import TopicCreation
from rioni.domain.timestamps import rfc3339
from rioni.projections.avro_schemas import CompiledAvroSchemas
from rioni.projections.checkpointed_log import SqlCheckpointedLogReader
from rioni.projections.projector import Projector
from rioni.projections.registry import MemoryRegistry
from rioni.storage.embedded.coordination.coordinator import EmbeddedCoordinator
from rioni.storage.embedded.data_directory import DataDirectory
from rioni.storage.embedded.events.event_store import EmbeddedEventStore
from rioni.storage.embedded.leadership import FileLeadership
from rioni.storage.embedded.signals import EmbeddedSignals
from rioni.storage.embedded.spool import FileSpool
from rioni.storage.event_stores import EventStoreRegistry
from rioni.storage.log.event_log import SqlEventLog
from rioni.storage.sql import engines
from rioni.storage.sql.migration import upgrade
from tests.support.builders import context
from tests.support.clock import ManualClock


IDEMPOTENCY_WINDOW_S = 3_600
COMPACTION_LAG_S = 600
RETENTION_INTERVAL_S = 60
DEFAULT_ADMIN = Attribute("service", "stups_nakadi")
OWNERSHIP = Ownership(readers=DEFAULT_ADMIN, admins=DEFAULT_ADMIN)


class Broker:
    """All parts of a broker, and short ways to use them."""

    def __init__(self, directory: DataDirectory, database: str | None = None) -> None:
        self._directory = directory
        self.clock = ManualClock(now_ms=1_700_000_000_000)
        if database is None and not directory.registry.exists():
            directory.registry.write_bytes(_empty_registry())
        self.engine = engines.create_engine(database or f"sqlite:///{directory.registry}")
        upgrade(self.engine)
        self.log = SqlEventLog(self.engine, TOPICS)
        self.signals = EmbeddedSignals(directory.signals)
        self.stores = EventStoreRegistry(self._storage, {EMBEDDED: self._open}, in_place)
        self.coordinator = EmbeddedCoordinator(directory.coordination, clock=self.clock, signals=self.signals)
        self.limits = Limits()
        self.projector = Projector()
        self.bus = self.bus_on(self.log)
        self.registry = MemoryRegistry(self.log, self.limits, direct, direct)
        self.access = AccessPolicy(self.registry, DEFAULT_ADMIN)
        self.cursor_initializer = CursorInitializer(
            self.registry,
            self.access,
            self.bus,
            stores=self.stores,
            coordinator=self.coordinator,
            reset_timeout_s=1,
        )
        self.timeline = TimelineAppender(self.registry, self.stores, self.signals, self.clock, wait_max_s=0)
        found_closed = self.timeline.found_closed
        self.timeline_switcher = TimelineSwitcher(self.registry, self.bus, self.signals, self.clock, found_closed)
        self.publisher = Publisher(
            self.registry, self.access, self.timeline, self.clock, Random(0), self.limits, direct
        )
        schemas = CompiledAvroSchemas(self._read, direct, self.limits.event_bytes_max)
        self.avro_publisher = AvroPublisher(
            self.registry,
            self.access,
            self.timeline,
            self.clock,
            Random(0),
            self.limits,
            schemas=schemas,
            pool=direct,
        )
        self.system_event_types = SystemEventTypes(
            [audit_log(OWNERSHIP, self.limits), *kpis(OWNERSHIP, self.limits)],
            self.registry,
            self.bus,
            lambda: rfc3339(self.clock.now_ms()),
        )
        self.own_publisher = SystemEventPublisher(self.registry, self.stores, self.clock, Random(0))
        self.committer = Committer(self.registry, self.access, self.coordinator)
        self._seconds = itertools.count()
        self.do(CreateStorage(storage=StorageEntry(id=DEFAULT_STORAGE, storage_type=EMBEDDED, default=True)))

    @property
    def store(self) -> EventStore:
        """The store of the default storage."""
        return self.stores.of(DEFAULT_STORAGE)

    def stores_without(self, storage_id: str) -> EventStores:
        """The same, where one can't be opened."""

        def find(wanted: str) -> StorageEntry | None:
            found = self._storage(wanted)
            return msgspec.structs.replace(found, storage_type=KAFKA) if found and wanted == storage_id else found

        return EventStoreRegistry(find, {EMBEDDED: self._open}, in_place)

    def bus_on(self, log: EventLog, stores: EventStores | None = None) -> CommandBus:
        """A bus with connections of its own to the log; `stores` in place of the broker's own."""
        return CommandBus(
            log,
            self.projector,
            stores=stores or self.stores,
            coordinator=self.coordinator,
            limits=self.limits,
            default_admin=DEFAULT_ADMIN,
        )

    def do(self, command: Any, subject: Subject = BROKER) -> Any:
        """Run a command; each one has an id of its own and comes a second after the one before."""
        return self.bus.dispatch(command, self.context(subject))

    def start_creation(self, spec: EventTypeSpec) -> TopicCreation:
        """Create an event type until its topic is about to be created, and no further."""
        context = self.context()
        outside = self.bus.transact(CreateEventType(spec=spec, is_schema_checked=True), context)
        assert isinstance(outside, Outside)
        self.registry.refresh()
        (creation,) = [each for each in self.registry.topic_creations() if each.topic == context.topic]
        return creation

    def start_switch(self, event_type: str, storage_id: str = DEFAULT_STORAGE) -> Timeline:
        """Switch until that is recorded, and no further; return the next timeline, whose topic does not exist."""
        command = StartSwitch(event_type=event_type, storage_id=storage_id, can_be_used=True)
        self.bus.transact(command, self.context())
        self.registry.refresh()
        switch = self.registry.timelines(event_type).switch
        assert switch is not None
        return switch.timeline

    def context(self, subject: Subject = BROKER) -> Context:
        """The circumstances of the next command."""
        second = next(self._seconds)
        now = f"2026-11-20T10:{second // 60:02}:{second % 60:02}.000Z"
        return context(subject, command_id=str(uuid.uuid4()), recorded_at=now)

    def background_jobs(self, stores: EventStores | None = None) -> BackgroundJobs:
        """Whoever does the jobs; `stores` in place of the broker's own."""
        return BackgroundJobs(
            self.registry,
            self.coordinator,
            self.clock,
            retention=Retention(
                self.registry,
                stores or self.stores,
                self.bus,
                self.clock,
                idempotency_window_s=IDEMPOTENCY_WINDOW_S,
                compaction_lag_s=COMPACTION_LAG_S,
                every_s=RETENTION_INTERVAL_S,
            ),
            cursor_initializer=self.cursor_initializer,
            timeline_switcher=self.timeline_switcher,
            orphan_cleaner=OrphanCleaner(self.registry, stores or self.stores, self.coordinator, self.bus),
            context=self.context,
        )

    def _read(self, query: Callable[..., Any], *args: Any) -> Any:
        with engines.reading(self.engine) as connection:
            return query(connection, *args)

    def feeds(self, *feeds: LogConsumer) -> LogConsumers:
        """What follows the log, as a process that has just started."""
        trail = SqlCheckpointedLogReader(
            self.log, partial(engines.reading, self.engine), partial(engines.writing, self.engine)
        )
        leadership = FileLeadership(self._directory.leadership)
        return LogConsumers(feeds, trail, leadership, self.system_event_types, self.own_publisher, direct)

    def spools(self) -> Spools:
        """Those of a process that has just started."""
        return Spools(*(FileSpool(self._directory.spools, kind) for kind in Spools._fields))

    def kpi_feed(self, spools: Spools, dropped: Callable[[int], None]) -> KpiFeed:
        """What publishes from spools."""
        return KpiFeed(
            spools,
            self.system_event_types,
            self.own_publisher,
            self.clock,
            direct,
            salt="salt",
            streams_every_s=30,
            dropped=dropped,
        )

    def events(self, event_type: str) -> list[dict[str, Any]]:
        """All events of an event type, partition by partition, without deletions and what compaction has removed."""
        self.registry.refresh()
        timeline = self.registry.timelines(event_type).active
        store = self.stores.of(timeline.storage_id)
        chunks = [
            chunk
            for partition in range(timeline.partitions)
            for chunk in store.read(timeline.topic, partition, 0, 2**30)
        ]
        texts = [chunk.cut(place, place + 1) for chunk in chunks for place in range(chunk.first, chunk.next)]
        return [msgspec.json.decode(text) for text in texts if text]

    def topics(self, after: int = 0) -> list[str]:
        """The topics of the log's entries behind a position."""
        return [entry.event.TOPIC for entry in self.log.entries(after, 10_000)]

    def _storage(self, storage_id: str) -> StorageEntry | None:
        self.registry.refresh()
        return self.registry.storage(storage_id)

    def _open(self, storage: StorageEntry) -> EventStore:
        return EmbeddedEventStore(self._directory.events_in(storage.id), clock=self.clock, signals=self.signals)

    def close(self) -> None:
        """Close all files."""
        self.coordinator.close()
        self.stores.close()
        self.signals.close()
        self.log.close()


@cache
def _empty_registry() -> bytes:
    """A migrated database file without entries.

    PERF: migrating one for each test took most of the time that a broker needs, 92 ms of CPU in place of 24.
    """
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "registry.db"
        engine = engines.create_engine(f"sqlite:///{path}")
        upgrade(engine)
        engine.dispose()
        return path.read_bytes()


@contextlib.contextmanager
def running_broker(path: Path, *, database: str | None = None) -> Iterator[Broker]:
    """A broker in a directory, or with its registry in a database; closed with the block."""
    with DataDirectory(path) as directory, contextlib.closing(Broker(directory, database)) as broker:
        yield broker
