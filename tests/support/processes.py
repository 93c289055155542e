"""Simulated processes of one broker: each has its own copy of the registry, and can be stopped at any step."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from rioni.commands.bus import CommandBus
from rioni.commands.routes import ROUTES
from rioni.commands.timeline_appender import TimelineAppender
from rioni.commands.timelines.timeline_switch import TimelineSwitcher
from rioni.domain.compiled_cache import CompiledCache
from rioni.domain.ports.coordinator import Coordinator
from rioni.domain.ports.event_log import EventLog, LogTransaction
from rioni.domain.ports.event_store import EventStore, EventStores
from rioni.domain.ports.host import direct
from rioni.projections.projector import Projector
from rioni.projections.registry import MemoryRegistry
from tests.support.broker import DEFAULT_ADMIN, Broker


class ProcessDied(BaseException):
    """The process has died: nothing is cleaned up."""


class Process:
    """The parts of one process, with a hook into the steps of its commands."""

    def __init__(self, broker: Broker, coordinator: Coordinator, stores: EventStores | None = None) -> None:
        """Share log, clock and signals with others; `stores` replaces the broker's own."""
        self.step: Callable[[], None] = lambda: None
        """Called before and after each transaction of a command, and each call of a store that belongs to one."""
        self.confirms_topics = False
        """Whether creating a topic fails if others delete it before the call ends, as in Kafka."""
        self.coordinator = coordinator
        self.stores = stores or broker.stores
        self.registry = MemoryRegistry(broker.log, broker.limits, direct, direct, CompiledCache(10_000_000))
        self.registry.refresh()
        log: Any = _SteppedLog(broker.log, self)
        self.bus = CommandBus(
            log,
            Projector(),
            ROUTES,
            stores=_SteppedStores(self),
            coordinator=coordinator,
            limits=broker.limits,
            default_admin=DEFAULT_ADMIN,
        )
        self.timeline_switcher = TimelineSwitcher(self.registry, self.bus, broker.signals, broker.clock)
        self.timeline = TimelineAppender(self.registry, self.stores, broker.signals, broker.clock, wait_max_s=0)


class _SteppedLog:
    def __init__(self, log: EventLog, process: Process) -> None:
        self._log, self._process = log, process

    @contextlib.contextmanager
    def transaction(self) -> Iterator[LogTransaction]:
        self._process.step()
        with self._log.transaction() as transaction:
            yield transaction
        self._process.step()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


class _SteppedStores:
    def __init__(self, process: Process) -> None:
        self._process = process

    def of(self, storage_id: str) -> EventStore:
        store: Any = _SteppedStore(self._process.stores.of(storage_id), self._process)
        return store

    def close(self) -> None:
        self._process.stores.close()


class _SteppedStore:
    def __init__(self, store: EventStore, process: Process) -> None:
        self._store, self._process = store, process

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self._process.step()
            result = getattr(self._store, name)(*args, **kwargs)
            self._process.step()
            if name == "create_topic" and self._process.confirms_topics:
                self._store.bounds(args[0])
            return result

        return call
