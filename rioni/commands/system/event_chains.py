"""Records the hash chains of published events in the internal log: the command, and the job that issues it."""

from collections.abc import Callable
from dataclasses import dataclass

from rioni.commands.bus import CommandBus
from rioni.commands.context import Context
from rioni.commands.job_runner import LoggedJobRunner
from rioni.commands.unit_of_work import UnitOfWork
from rioni.domain.ports.clock import Clock
from rioni.domain.ports.event_stores import EventStores
from rioni.domain.ports.leadership import Leadership
from rioni.domain.ports.registry import Registry
from rioni.domain.system.event_chains import Chained, ChainHead, EventChainsAnchored
from rioni.domain.system.storages import EMBEDDED


HEADS_MAX = 500
"""Maximum number of heads in one entry of the log: about 80 kB."""
ROUNDS_MAX = 200
"""Maximum number of entries for one storage in a run; the rest follows in the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorEventChains:
    """Record heads of hash chains."""

    storage_id: str
    heads: tuple[ChainHead, ...]


def anchor_event_chains(command: AnchorEventChains, unit_of_work: UnitOfWork) -> None:
    """Record heads; without any, nothing changes."""
    if command.heads:
        unit_of_work.record(EventChainsAnchored(storage=command.storage_id, heads=command.heads))


class ChainAnchoring:
    """Records all heads that have changed, at an interval, in the process that is the leader; failures are logged."""

    def __init__(
        self,
        registry: Registry,
        stores: EventStores,
        bus: CommandBus,
        clock: Clock,
        leadership: Leadership,
        context: Callable[[], Context],
        every_s: int,
    ) -> None:
        self._registry, self._stores, self._bus, self._clock = registry, stores, bus, clock
        self._leadership, self._context, self._every_s = leadership, context, every_s
        self._due_at_s = clock.monotonic() + every_s
        self._runner = LoggedJobRunner()

    def tick(self) -> None:
        """Record what has changed, if it is time to. Blocks on disk and database."""
        if self._clock.monotonic() >= self._due_at_s and self._leadership.held():
            self._due_at_s = self._clock.monotonic() + self._every_s
            self._runner.run("recording the hash chains of events", self.anchor)

    def anchor(self) -> None:
        """Record the heads that have changed since they were recorded last, of all storages.

        Raises:
            RioniError: a storage, or the database, can't be used now.
        """
        self._registry.refresh()
        for storage in self._registry.storages():
            if storage.storage_type == EMBEDDED:
                store = self._stores.of(storage.id)
                assert isinstance(store, Chained), "embedded storages have hash chains"
                self._anchor(storage.id, store)

    def _anchor(self, storage_id: str, store: Chained) -> None:
        for _ in range(ROUNDS_MAX):
            heads = tuple(store.unanchored_heads(HEADS_MAX))
            if not heads:
                return
            self._bus.dispatch(AnchorEventChains(storage_id=storage_id, heads=heads), self._context())
            store.note_anchored(heads)
