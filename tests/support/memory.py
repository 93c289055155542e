"""Event store and signals in memory, for tests of streams: nothing blocks, waiting advances the clock."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import accumulate

from rioni.domain.errors import IdempotencyKeyReused, NotFound, PartiallyStored, TopicClosed
from rioni.domain.ports.event_store import Appended, Chunk, EventStore
from rioni.domain.publishing.headers import NO_HEADERS, Headers, IdempotencyClaim
from rioni.domain.timelines.position import Bounds
from tests.support.clock import ManualClock


def chunk(
    first: int, events: Sequence[bytes], recorded_at_ms: int = 0, headers: Sequence[Headers] | None = None
) -> Chunk:
    ends = [end - 1 for end in accumulate(len(event) + 1 for event in events)]
    if headers is not None and all(each == NO_HEADERS for each in headers):
        headers = None
    return Chunk(first, recorded_at_ms, b",".join(events), ends, headers)


class MemoryEventStore:
    def __init__(self, clock: ManualClock, signals: "MemorySignals | None" = None) -> None:
        self._clock, self._signals = clock, signals
        self._topics: dict[str, list[list[Chunk]]] = {}
        self._closed: set[str] = set()
        self._oldest: dict[tuple[str, int], int] = {}
        self._claims: dict[str, tuple[str, int]] = {}
        self._ids: dict[str, int] = {}

    def create_topic(self, topic: str, partitions: int) -> None:
        self._topics.setdefault(topic, [[] for _ in range(partitions)])

    def extend_topic(self, topic: str, partitions: int) -> None:
        missing = partitions - len(self.bounds(topic))
        self._topics[topic] += [[] for _ in range(missing)]

    def close_topic(self, topic: str) -> Sequence[Bounds]:
        bounds = self.bounds(topic)
        self._closed.add(topic)
        return bounds

    def delete_topic(self, topic: str) -> None:
        self._topics.pop(topic, None)
        self._closed.discard(topic)

    def append(
        self,
        topic: str,
        batches: Mapping[int, Sequence[bytes]],
        *,
        headers: Mapping[int, Sequence[Headers]] | None = None,
        ids: Mapping[int, Sequence[str]] | None = None,
        claim: IdempotencyClaim | None = None,
    ) -> Appended:
        if topic in self._closed:
            raise TopicClosed(topic)
        firsts = Appended()
        if claim is not None and (digest := self.claimed(claim.id)) is not None:
            if digest != claim.digest:
                raise IdempotencyKeyReused
            firsts.duplicates = sum(map(len, batches.values()))
            return firsts
        for partition, events in batches.items():
            kept = self._new(range(len(events)), (ids or {}).get(partition))
            beside = (headers or {}).get(partition)
            firsts.duplicates += len(events) - len(kept)
            if kept:
                first = firsts[partition] = self.bounds(topic)[partition].newest + 1
                some = beside and [beside[index] for index in kept]
                one = chunk(first, [events[index] for index in kept], self._clock.now_ms(), some)
                self._partition(topic, partition).append(one)
        if claim is not None:
            self._claims[claim.id] = claim.digest, self._clock.now_ms()
        if self._signals:
            self._signals.notify(f"topic:{topic}")
        return firsts

    def claimed(self, claim_id: str) -> str | None:
        return self._claims[claim_id][0] if claim_id in self._claims else None

    def existing_ids(self, ids: Collection[str]) -> Collection[str]:
        return set(ids) & set(self._ids)

    def expire_ids(self, before_ms: int) -> None:
        self._claims = {name: claim for name, claim in self._claims.items() if claim[1] >= before_ms}
        self._ids = {name: at_ms for name, at_ms in self._ids.items() if at_ms >= before_ms}

    def _new(self, indices: Sequence[int], ids: Sequence[str] | None) -> Sequence[int]:
        """The indices of the events whose ids are new, or all without ids; records new ids."""
        if ids is None:
            return indices
        kept = []
        for index in indices:
            if ids[index] not in self._ids:
                self._ids[ids[index]] = self._clock.now_ms()
                kept.append(index)
        return kept

    def read(
        self,
        topic: str,
        partition: int,
        first: int,
        bytes_max: int,
        beside: Callable[[], Mapping[int, int]] = dict,  # noqa: ARG002 - of the port
    ) -> Sequence[Chunk]:
        found: list[Chunk] = []
        for one in self._partition(topic, partition):
            if one.next <= first or one.next <= self._oldest.get((topic, partition), 0):
                continue
            if found and sum(len(each.data) for each in found) + len(one.data) > bytes_max:
                break
            found.append(one)
        return found

    def bounds(self, topic: str) -> Sequence[Bounds]:
        if topic not in self._topics:
            raise NotFound(f"topic {topic} does not exist")
        return [
            Bounds(self._oldest.get((topic, number), 0), chunks[-1].next - 1 if chunks else -1)
            for number, chunks in enumerate(self._topics[topic])
        ]

    def newest(self, topic: str, partitions: int = 1) -> Sequence[int]:  # noqa: ARG002 - of the port
        return [bounds.newest for bounds in self.bounds(topic)]

    def offset_at_time(self, topic: str, partition: int, recorded_at_ms: int) -> int:
        later = [one.first for one in self._partition(topic, partition) if one.recorded_at_ms >= recorded_at_ms]
        return later[0] if later else self.bounds(topic)[partition].newest + 1

    def recorded_at_ms(self, topic: str, partition: int, first: int) -> int | None:
        chunks = self.read(topic, partition, first, 1)
        return chunks[0].recorded_at_ms if chunks else None

    def delete_before(self, topic: str, before_ms: int) -> int:
        gone = 0
        for number in range(len(self._topics[topic])):
            oldest = self._oldest.get((topic, number), 0)
            keep = self.offset_at_time(topic, number, before_ms)
            self._oldest[topic, number] = max(oldest, keep)
            gone += self._oldest[topic, number] - oldest
        return gone

    def close(self) -> None:
        pass

    def _partition(self, topic: str, partition: int) -> list[Chunk]:
        self.bounds(topic)
        return self._topics[topic][partition]


class SingleStore:
    """The port `EventStores` where all storages are the same store."""

    def __init__(self, store: EventStore) -> None:
        self._store = store

    def of(self, _storage_id: str) -> EventStore:
        return self._store

    def close(self) -> None:
        self._store.close()


class DiesAfterAppend:
    """A store that dies between writing and answering."""

    def __init__(self, store):
        self._store = store

    def append(self, topic, batches, **options):
        self._store.append(topic, batches, **options)
        raise PartiallyStored(dict.fromkeys(batches, "timed out"))

    def __getattr__(self, name):
        return getattr(self._store, name)


class MemorySignals:
    """Waiting runs the next callback of `then`, and where none is left advances the clock."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.then: list[Callable[[], object]] = []
        self.watches: set[MemoryWatch] = set()
        self._generations: Counter[str] = Counter()

    def notify(self, *keys: str) -> None:
        self._generations.update(keys)
        for watch in self.watches:
            watch.woken |= not watch.keys.isdisjoint(keys)

    def watch(self, keys: Iterable[str]) -> "MemoryWatch":
        watch = MemoryWatch(self, frozenset(keys))
        self.watches.add(watch)
        return watch

    def version(self, key: str) -> int:
        return self._generations[key]


class MemoryWatch:
    def __init__(self, signals: MemorySignals, keys: frozenset[str]) -> None:
        self._signals, self.keys, self.woken = signals, keys, False

    def wait(self, timeout_s: float) -> bool:
        if not self.woken and timeout_s > 0:
            if self._signals.then:
                self._signals.then.pop(0)()
            else:
                self._signals.clock.advance(max(1, round(timeout_s * 1000)))
        woken, self.woken = self.woken, False
        return woken

    def close(self) -> None:
        self._signals.watches.discard(self)
