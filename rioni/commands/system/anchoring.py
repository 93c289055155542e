"""Records in the internal log how far partitions have got, and digests of closed topics: commands and jobs."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import structlog

from rioni.commands.bus import CommandBus
from rioni.commands.job_runner import LoggedJobRunner
from rioni.commands.unit_of_work import CommandContext, UnitOfWork
from rioni.config.logs import FailureLog
from rioni.domain.errors import EventTypeNotFound, NotFound, RioniError
from rioni.domain.ports.event_log import Registry
from rioni.domain.ports.event_store import EventStores
from rioni.domain.ports.host import Clock, Leadership
from rioni.domain.system.anchors import Chained, ChainHead, EventChainsAnchored, Ranged
from rioni.domain.system.storages import EMBEDDED, KAFKA, StorageEntry
from rioni.domain.timelines.timeline import Timeline, TimelineDigested
from rioni.domain.timelines.topics import DigestedBlock, DigestsTopics


# Records in the internal log how far partitions have got, and their hash chains: the command, and the job for it.

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
        context: Callable[[], CommandContext],
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


# --- Records digests of closed topics in the internal log: the command, and the job that reads the topics ---

_log = structlog.get_logger("rioni.topics")

_FAILED = "could not make digests of closed topics; trying again in a minute"

BLOCK_POSITIONS, BLOCK_BYTES = 10_000, 2**24
"""Maximum size of a block. What retention has left of one can't be verified any more, so blocks are small."""

BLOCKS_MAX = 100
"""Maximum number of blocks in one entry of the log: about 15 kB. A new leader reads as many again, at most."""

BUSY_S = 0.1
"""How long a tick begins further blocks. It bounds the rate to some MB and some 10,000 records for each tick."""

LOOK_EVERY_S = 60.0
"""Seconds between two searches for closed topics without digests; a storage that failed is tried again then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordDigests:
    """Record digests of the next blocks of a closed timeline."""

    event_type: str
    order: int
    since: tuple[int, ...]
    """The positions up to which there were digests when they were made; empty if there were none."""
    next: tuple[int, ...]
    """The positions up to which there are digests now."""
    blocks: tuple[DigestedBlock, ...]


def record_digests(command: RecordDigests, unit_of_work: UnitOfWork) -> None:
    """Record digests; no-op if another process has, or if the timeline was removed meanwhile.

    Raises:
        EventTypeNotFound: it was deleted meanwhile.
    """
    timelines = unit_of_work.timelines(command.event_type)
    for timeline in timelines.readable[:-1]:
        if timeline.order == command.order and timelines.digested.get(command.order, ()) == command.since:
            unit_of_work.record(
                TimelineDigested(
                    event_type=command.event_type,
                    order=command.order,
                    storage=timeline.storage_id,
                    topic=timeline.topic,
                    blocks=command.blocks,
                    next=command.next,
                )
            )


@dataclass(slots=True)
class _TopicReading:
    """A topic that is being read."""

    timeline: Timeline
    since: tuple[int, ...]
    """The positions at which the log's digests end, by partition."""
    next: list[int]
    """The next positions to read, by partition."""
    ends: list[int]
    """The ends of the partitions: those at which they were closed, unless events were lost since."""
    blocks: list[DigestedBlock] = field(default_factory=list)


class TopicDigests:
    """Reads closed topics, block by block, in the process that is the leader, and records their digests.

    The log shows what was read, so another leader continues at the same place. Topics that do not
    exist any more are left out, and those of compacted event types, whose records Kafka removes.
    """

    def __init__(
        self,
        registry: Registry,
        stores: EventStores,
        bus: CommandBus,
        clock: Clock,
        leadership: Leadership,
        context: Callable[[], CommandContext],
    ) -> None:
        self._registry, self._stores, self._bus, self._clock = registry, stores, bus, clock
        self._leadership, self._context = leadership, context
        self._runner, self._failures = LoggedJobRunner(), FailureLog(_log)
        self._look_at_s = clock.monotonic()
        self._waiting: deque[tuple[str, int]] = deque()
        """Event type and order of timelines that are to be read."""
        self._failed: set[str] = set()
        """The storages that have failed since the last search for timelines."""
        self._gone: set[str] = set()
        """Topics that do not exist; asking for one takes seconds, so it is done once."""
        self._reading: _TopicReading | None = None

    def tick(self) -> None:
        """Read some blocks, if there are closed topics without digests; failures are logged. Blocks on the stores."""
        if self._leadership.held():
            self._runner.run("making digests of closed topics", self._work)

    def _work(self) -> bool:
        """Whether there was something to do."""
        if self._reading is None and not self._waiting:
            if self._clock.monotonic() < self._look_at_s:
                return False
            self._look_at_s = self._clock.monotonic() + LOOK_EVERY_S
            self._failed.clear()
            self._look()
        until_s = self._clock.monotonic() + BUSY_S
        while (self._reading is not None or self._waiting) and self._clock.monotonic() < until_s:
            self._step()
        return True

    def _look(self) -> None:
        """Find the timelines to read. PERF: 10,000 event types take some milliseconds of the hub."""
        self._registry.refresh()
        kafka = {storage.id for storage in self._registry.storages() if storage.storage_type == KAFKA}
        if not kafka:
            return
        for event_type in self._registry.event_types():
            if event_type.cleanup_policy == "delete":
                timelines = self._registry.timelines(event_type.name)
                for timeline in timelines.readable[:-1]:
                    readable = timeline.storage_id in kafka and timeline.topic not in self._gone
                    if readable and timelines.undigested(timeline):
                        self._waiting.append((event_type.name, timeline.order))

    def _step(self) -> None:
        """Begin a topic, or read its next block; a failure ends the topic, and its storage until the next look."""
        reading = self._reading
        try:
            if reading is None:
                self._begin(*self._waiting.popleft())
            else:
                self._read_block(reading)
        except (EventTypeNotFound, NotFound):
            self._reading = None
        except RioniError as ex:
            if self._reading is None:
                raise
            storage = self._reading.timeline.storage_id
            self._failed.add(storage)
            self._reading = None
            self._failures.failed(_FAILED, ex, of=storage, storage=storage)

    def _begin(self, name: str, order: int) -> None:
        timelines = self._registry.timelines(name)
        timeline = next((each for each in timelines.readable[:-1] if each.order == order), None)
        if timeline is None or timeline.storage_id in self._failed:
            return
        self._reading = _TopicReading(timeline, timelines.digested.get(order, ()), [], [])
        left = timelines.undigested(timeline)
        try:
            found = self._stores.of(timeline.storage_id).bounds(timeline.topic)
        except NotFound:
            self._gone.add(timeline.topic)
            raise
        for number, (latest, bounds) in enumerate(zip(timeline.latest_position or (), found, strict=False)):
            first = left[number].start if number in left else latest + 1
            # Expired records get no digest.
            self._reading.next.append(min(max(first, bounds.oldest), latest + 1))
            self._reading.ends.append(min(latest, bounds.newest) + 1)

    def _read_block(self, reading: _TopicReading) -> None:
        timeline, ends = reading.timeline, reading.ends
        number = next((number for number, first in enumerate(reading.next) if first < ends[number]), None)
        if number is None:
            self._record(reading)
            self._reading = None
            return
        store = self._stores.of(timeline.storage_id)
        assert isinstance(store, DigestsTopics), "storages of type kafka make digests"
        first = reading.next[number]
        block = store.digest(timeline.topic, number, first, min(first + BLOCK_POSITIONS, ends[number]), BLOCK_BYTES)
        self._failures.succeeded(_FAILED, of=timeline.storage_id, storage=timeline.storage_id)
        if block is None:
            # Retention was faster: the next round finds the rest.
            self._record(reading)
            self._reading = None
            return
        reading.next[number] = block.next
        reading.blocks.append(block)
        if len(reading.blocks) == BLOCKS_MAX:
            self._record(reading)

    def _record(self, reading: _TopicReading) -> None:
        name, order, next_ = reading.timeline.event_type, reading.timeline.order, tuple(reading.next)
        if next_ != reading.since:
            command = RecordDigests(
                event_type=name, order=order, since=reading.since, next=next_, blocks=tuple(reading.blocks)
            )
            self._bus.dispatch(command, self._context())
        reading.since, reading.blocks = next_, []
