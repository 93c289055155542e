"""Processes of one broker, all within the test: each hears of the log by itself, and may be stopped anywhere."""

from collections.abc import Callable
from typing import Any

from rioni.commands.active_timeline import ActiveTimeline
from rioni.commands.bus import Bus
from rioni.commands.switching import Switcher
from rioni.domain.coordination_ports import Coordinator
from rioni.domain.ports import EventStore, EventStores, direct
from rioni.projections.projector import Projector
from rioni.projections.registry import MemoryRegistry
from tests.support.broker import DEFAULT_ADMIN, Broker


class Died(BaseException):
    """The process is no more: it does not tidy up."""


class Process:
    """What one process has, and a hook into whatever it does outside."""

    def __init__(self, broker: Broker, coordinator: Coordinator, stores: EventStores | None = None) -> None:
        """Share log, clock and signals with others; `stores` in place of the broker's own."""
        self.step: Callable[[], None] = lambda: None
        """Called before and after each command, and each call of a store that belongs to one."""
        self.decides = False
        """Whether a command is being run: no other one can be meanwhile."""
        self.coordinator = coordinator
        self.stores = stores or broker.stores
        self.registry = MemoryRegistry(broker.log, broker.limits, direct)
        self.registry.refresh()
        stepped = _SteppedStores(self)
        bus = Bus(
            broker.log,
            Projector(),
            stores=stepped,
            coordinator=coordinator,
            limits=broker.limits,
            default_admin=DEFAULT_ADMIN,
        )
        self.bus: Any = _Stepped(bus, self, decides=True)
        self.switcher = Switcher(
            self.registry, self.bus, stepped, coordinator=coordinator, signals=broker.signals, offload=direct
        )
        self.timeline = ActiveTimeline(self.registry, self.stores, broker.signals, broker.clock, wait_max_s=0)


class _Stepped:
    """Passes calls on, with a step before and one after each."""

    def __init__(self, target: Any, process: Process, *, decides: bool = False) -> None:
        self._target, self._process, self._decides = target, process, decides

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            process, before = self._process, self._process.decides
            process.step()
            process.decides |= self._decides
            try:
                result = getattr(self._target, name)(*args, **kwargs)
            finally:
                process.decides = before
            process.step()
            return result

        return call


class _SteppedStores:
    def __init__(self, process: Process) -> None:
        self._process = process

    def of(self, storage_id: str) -> EventStore:
        store: Any = _Stepped(self._process.stores.of(storage_id), self._process)
        return store
