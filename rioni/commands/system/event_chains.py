"""Records in the internal log how far partitions have got, and their hash chains: the command, and the job for it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from rioni.commands.bus import CommandBus
from rioni.commands.context import Context
from rioni.commands.job_runner import LoggedJobRunner
from rioni.commands.unit_of_work import UnitOfWork
from rioni.domain.ports.event_store import EventStores
from rioni.domain.ports.host import Clock
from rioni.domain.ports.interprocess import Leadership
from rioni.domain.ports.registry import Registry
from rioni.domain.system.event_chains import Chained, ChainHead, EventChainsAnchored, Ranged
from rioni.domain.system.storages import EMBEDDED, StorageEntry


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
        self._anchored: dict[str, dict[tuple[str, int], ChainHead]] = {}
        """The heads that this process has recorded, of storages that do not note that themselves."""

    def tick(self) -> None:
        """Record changed heads, if it is time to. Blocks on disk, database and Kafka.

        A storage that fails, or does not answer before its deadline, does not keep the others from being recorded.
        """
        if self._clock.monotonic() >= self._due_at_s and self._leadership.held():
            self._due_at_s = self._clock.monotonic() + self._every_s
            self._runner.run("recording the heads of partitions", self._anchor_each)

    def anchor(self) -> None:
        """Record the heads that have changed since they were recorded last, of all storages.

        Raises:
            RioniError: a storage, or the database, can't be used now.
        """
        for storage in self._storages():
            self._anchor(storage)

    def _anchor_each(self) -> None:
        for storage in self._storages():
            what = f"recording the heads of partitions of storage {storage.id}"
            self._runner.run(what, partial(self._anchor, storage))

    def _storages(self) -> Sequence[StorageEntry]:
        """All storages; the embedded ones, which answer at once, first."""
        self._registry.refresh()
        return sorted(self._registry.storages(), key=lambda storage: storage.storage_type != EMBEDDED)

    def _anchor(self, storage: StorageEntry) -> bool:
        """Record the heads of a storage; return whether it was queried."""
        if storage.storage_type == EMBEDDED:
            store = self._stores.of(storage.id)
            assert isinstance(store, Chained), "embedded storages have hash chains"
            self._anchor_chains(storage.id, store)
        elif topics := self._topics(storage.id):
            store = self._stores.of(storage.id)
            assert isinstance(store, Ranged), "storages of type kafka have ranges"
            self._anchor_ranges(storage.id, store.ranges(topics))
        else:
            return False
        return True

    def _anchor_chains(self, storage_id: str, store: Chained) -> None:
        for _ in range(ROUNDS_MAX):
            heads = tuple(store.unanchored_heads(HEADS_MAX))
            if not heads:
                return
            self._record(storage_id, heads)
            store.note_anchored(heads)

    def _anchor_ranges(self, storage_id: str, ranges: Sequence[ChainHead]) -> None:
        """Record ranges that this process has not recorded yet: a new leader records all of them once."""
        present = {(head.topic, head.partition): head for head in ranges}
        before = self._anchored.get(storage_id, {})
        anchored = self._anchored[storage_id] = {place: before[place] for place in present if place in before}
        changed = [head for place, head in present.items() if anchored.get(place) != head][: HEADS_MAX * ROUNDS_MAX]
        for first in range(0, len(changed), HEADS_MAX):
            heads = tuple(changed[first : first + HEADS_MAX])
            self._record(storage_id, heads)
            anchored |= {(head.topic, head.partition): head for head in heads}

    def _record(self, storage_id: str, heads: tuple[ChainHead, ...]) -> None:
        self._bus.dispatch(AnchorEventChains(storage_id=storage_id, heads=heads), self._context())

    def _topics(self, storage_id: str) -> list[str]:
        """The readable topics in a storage. PERF: 10,000 event types take some milliseconds of the hub."""
        return [
            timeline.topic
            for event_type in self._registry.event_types()
            for timeline in self._registry.timelines(event_type.name).readable
            if timeline.storage_id == storage_id
        ]
