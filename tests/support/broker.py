"""A broker without HTTP: bus, log, projections and embedded adapters in a directory of the test."""

import contextlib
import itertools
import tempfile
import uuid
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from rioni.commands.bus import CommandBus
from rioni.commands.event_types import CreateEventType
from rioni.commands.maintenance import BackgroundJobs
from rioni.commands.routes import ROUTES
from rioni.commands.system.kpis import KpiFeed, UsageRecorder
from rioni.commands.system.system_events import LogConsumer, LogConsumers
from rioni.commands.timelines.timelines import StartSwitch
from rioni.commands.unit_of_work import CommandContext, Outside
from rioni.config.settings import Config
from rioni.domain.access.authorization import BROKER, Attribute, Subject
from rioni.domain.aggregates import TOPICS
from rioni.domain.event_types.event_type import EventTypeSpec
from rioni.domain.ports.event_log import EventLog
from rioni.domain.ports.event_store import EventStore, EventStores
from rioni.domain.ports.host import Spools, in_place
from rioni.domain.system.storages import DEFAULT_STORAGE, EMBEDDED, KAFKA, StorageEntry
from rioni.domain.timelines.timeline import Timeline
from rioni.domain.timelines.topics import TopicCreation
from rioni.installation.infrastructure import build_infrastructure
from rioni.projections.projector import Projector
from rioni.server.services import (
    build_background_jobs,
    build_kpi_feed,
    build_log_consumers,
    build_services,
)
from rioni.storage.embedded.coordination.workers import FileLeadership
from rioni.storage.embedded.data_directory import DataDirectory
from rioni.storage.embedded.events.event_store import EmbeddedEventStore
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


class Broker:
    """All parts of a broker, wired as in a worker process, and short ways to use them."""

    def __init__(self, directory: DataDirectory, database: str | None = None) -> None:
        self._directory = directory
        self.clock = ManualClock(now_ms=1_700_000_000_000)
        if database is None and not directory.registry.exists():
            directory.registry.write_bytes(empty_registry())
        config = Config(
            data=directory.path,
            database=database,
            idempotency_window_s=IDEMPOTENCY_WINDOW_S,
            compaction_lag_s=COMPACTION_LAG_S,
            retention_interval_s=RETENTION_INTERVAL_S,
            timeline_switch_timeout_s=0,
            commit_timeout_max_s=0,
            pseudonym_salt="salt",
            kpi_streams_interval_s=30,
        )
        if database is not None:
            with contextlib.closing(SqlEventLog(engines.create_engine(database), TOPICS)) as log:
                upgrade(log.engine)
        self.base = base = build_infrastructure(config, directory, clock=self.clock)
        self.services = services = build_services(base, lambda: Random(0))
        self.log, self.engine, self.limits = base.log, base.log.engine, base.limits
        self.registry, self.bus, self.projector = base.registry, base.bus, Projector()
        self.stores, self.coordinator, self.signals = (
            base.adapters.stores,
            base.adapters.coordinator,
            base.adapters.signals,
        )
        self.access, self.timeline, self.committer = services.access, services.timeline, services.committer
        self.publisher, self.avro_publisher = services.publisher, services.avro_publisher
        self.cursor_initializer, self.timeline_switcher = services.cursor_initializer, services.timeline_switcher
        self.system_event_types = services.system_event_types
        self._seconds = itertools.count(1)

    @property
    def store(self) -> EventStore:
        """The store of the default storage."""
        return self.stores.of(DEFAULT_STORAGE)

    def stores_without(self, storage_id: str) -> EventStores:
        """All stores, except that one storage can't be opened."""

        def find(wanted: str) -> StorageEntry | None:
            found = self._storage(wanted)
            return msgspec.structs.replace(found, storage_type=KAFKA) if found and wanted == storage_id else found

        return EventStoreRegistry(find, {EMBEDDED: self._open}, in_place)

    def bus_on(self, log: EventLog, stores: EventStores | None = None) -> CommandBus:
        """A bus with its own connections to the log; `stores` replaces the broker's own."""
        return CommandBus(
            log,
            self.projector,
            ROUTES,
            stores=stores or self.stores,
            coordinator=self.coordinator,
            limits=self.limits,
            default_admin=DEFAULT_ADMIN,
        )

    def do(self, command: Any, subject: Subject = BROKER) -> Any:
        """Run a command; each one has its own id and comes a second after the previous one."""
        return self.bus.dispatch(command, self.context(subject))

    def start_creation(self, spec: EventTypeSpec) -> TopicCreation:
        """Start creating an event type, and stop when its topic is about to be created."""
        context = self.context()
        outside = self.bus.transact(CreateEventType(spec=spec, is_schema_checked=True), context)
        assert isinstance(outside, Outside)
        self.registry.refresh()
        (creation,) = [each for each in self.registry.topic_creations() if each.topic == context.topic]
        return creation

    def start_switch(self, event_type: str, storage_id: str = DEFAULT_STORAGE) -> Timeline:
        """Start a switch, and stop when it is recorded; return the next timeline, whose topic does not exist yet."""
        command = StartSwitch(event_type=event_type, storage_id=storage_id, can_be_used=True)
        self.bus.transact(command, self.context())
        self.registry.refresh()
        switch = self.registry.timelines(event_type).switch
        assert switch is not None
        return switch.timeline

    def context(self, subject: Subject = BROKER) -> CommandContext:
        """The context of the next command."""
        second = next(self._seconds)
        now = f"2026-11-20T10:{second // 60:02}:{second % 60:02}.000Z"
        return context(subject, command_id=str(uuid.uuid4()), recorded_at=now)

    def background_jobs(self, stores: EventStores | None = None) -> BackgroundJobs:
        """The background jobs of a process; `stores` replaces the broker's own."""
        return build_background_jobs(self.base, self.services, self.context, stores)

    def feeds(self, *feeds: LogConsumer) -> LogConsumers:
        """The log consumers of a process that has just started."""
        base = self.base._replace(
            adapters=self.base.adapters._replace(leadership=FileLeadership(self._directory.leadership))
        )
        return build_log_consumers(base, self.services, feeds)

    def spools(self) -> Spools:
        """The spools of a process that has just started."""
        return Spools(*(FileSpool(self._directory.spools, kind) for kind in Spools._fields))

    def kpi_feed(self, usage: UsageRecorder) -> KpiFeed:
        """The publisher of KPI events from what was measured."""
        return build_kpi_feed(self.base, self.services, usage)

    def events(self, event_type: str) -> list[dict[str, Any]]:
        """All events of an event type, partition by partition, without tombstones and compacted events."""
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
        """The topics of the log's entries after a position."""
        return [entry.event.TOPIC for entry in self.log.entries(after, 10_000)]

    def _storage(self, storage_id: str) -> StorageEntry | None:
        self.registry.refresh()
        return self.registry.storage(storage_id)

    def _open(self, storage: StorageEntry) -> EventStore:
        return EmbeddedEventStore(self._directory.events_in(storage.id), clock=self.clock, signals=self.signals)

    def close(self) -> None:
        """Close all files."""
        self.base.close()


@cache
def empty_registry() -> bytes:
    """A migrated database file without entries.

    PERF: migrating one for each test took most of the time that a broker needs, 92 ms of CPU instead of 24.
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
