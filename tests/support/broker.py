"""A broker without HTTP: bus, log, projections and embedded adapters in a directory of the test."""

import contextlib
import itertools
import uuid
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from rioni.commands.bus import Bus
from rioni.commands.cursors import Committer
from rioni.commands.gate import Gate
from rioni.commands.publishing import Publisher
from rioni.commands.storages import CreateStorage
from rioni.domain.aggregates import TOPICS
from rioni.domain.authorization import BROKER, Attribute, Subject
from rioni.domain.limits import Limits
from rioni.domain.storage_entry import StorageEntry
from rioni.projections.projector import Projector
from rioni.projections.registry import MemoryRegistry
from rioni.storage import sql
from rioni.storage.embedded.coordination import EmbeddedCoordinator
from rioni.storage.embedded.data_directory import DataDirectory
from rioni.storage.embedded.events import EmbeddedEventStore, direct
from rioni.storage.embedded.signals import EmbeddedSignals
from rioni.storage.event_log import SqlEventLog
from rioni.storage.migration import upgrade
from tests.support.builders import context
from tests.support.clock import ManualClock


DEFAULT_ADMIN = Attribute("service", "stups_nakadi")


class Broker:
    """All parts of a broker, and short ways to use them."""

    def __init__(self, directory: DataDirectory) -> None:
        self.clock = ManualClock(now_ms=1_700_000_000_000)
        self.engine = sql.create_engine(f"sqlite:///{directory.registry}")
        upgrade(self.engine)
        self.log = SqlEventLog(self.engine, TOPICS)
        self.signals = EmbeddedSignals(directory.signals)
        self.store = EmbeddedEventStore(directory.events, clock=self.clock, signals=self.signals)
        self.coordinator = EmbeddedCoordinator(directory.coordination, clock=self.clock, signals=self.signals)
        self.limits = Limits()
        self.projector = Projector()
        self.bus = Bus(
            self.log,
            self.projector,
            store=self.store,
            coordinator=self.coordinator,
            limits=self.limits,
            default_admin=DEFAULT_ADMIN,
        )
        self.registry = MemoryRegistry(self.log, self.limits, direct)
        self.gate = Gate(self.registry, DEFAULT_ADMIN)
        self.publisher = Publisher(self.registry, self.gate, self.store, self.clock, Random(0), self.limits)
        self.committer = Committer(self.registry, self.gate, self.coordinator)
        self._seconds = itertools.count()
        self.do(CreateStorage(storage=StorageEntry(id="default", storage_type="embedded", default=True)))

    def do(self, command: Any, subject: Subject = BROKER) -> Any:
        """Run a command; each one has an id of its own and comes a second after the one before."""
        second = next(self._seconds)
        now = f"2026-11-20T10:{second // 60:02}:{second % 60:02}.000Z"
        return self.bus.dispatch(command, context(subject, command_id=str(uuid.uuid4()), recorded_at=now))

    def topics(self, after: int = 0) -> list[str]:
        """The topics of the log's entries behind a position."""
        return [entry.event.TOPIC for entry in self.log.entries(after, 10_000)]

    def close(self) -> None:
        """Let go of all files."""
        self.coordinator.close()
        self.store.close()
        self.signals.close()
        self.log.close()


@contextlib.contextmanager
def running_broker(path: Path) -> Iterator[Broker]:
    """A broker in a directory; closed with the block."""
    with DataDirectory(path) as directory, contextlib.closing(Broker(directory)) as broker:
        yield broker
