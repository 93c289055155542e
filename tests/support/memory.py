"""Event store and signals in memory, for tests of streams: nothing waits, time passes when somebody would wait."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate

from rioni.domain.errors import NotFound
from rioni.domain.ports import Bounds, Chunk
from tests.support.clock import ManualClock


def chunk(first: int, events: Sequence[bytes], recorded_at_ms: int = 0) -> Chunk:
    ends = [end - 1 for end in accumulate(len(event) + 1 for event in events)]
    return Chunk(first, recorded_at_ms, b",".join(events), ends)


class MemoryEventStore:
    def __init__(self, clock: ManualClock, signals: "MemorySignals | None" = None) -> None:
        self._clock, self._signals = clock, signals
        self._topics: dict[str, list[list[Chunk]]] = {}
        self._oldest: dict[tuple[str, int], int] = {}

    def create_topic(self, topic: str, partitions: int) -> None:
        self._topics.setdefault(topic, [[] for _ in range(partitions)])

    def delete_topic(self, topic: str) -> None:
        self._topics.pop(topic, None)

    def append(self, topic: str, batches: Mapping[int, Sequence[bytes]]) -> Mapping[int, int]:
        firsts = {}
        for partition, events in batches.items():
            firsts[partition] = self.bounds(topic)[partition].newest + 1
            self._partition(topic, partition).append(chunk(firsts[partition], events, self._clock.now_ms()))
        if self._signals:
            self._signals.notify(f"topic:{topic}")
        return firsts

    def read(self, topic: str, partition: int, first: int, bytes_max: int) -> Sequence[Chunk]:
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

    def first_since(self, topic: str, partition: int, recorded_at_ms: int) -> int:
        later = [one.first for one in self._partition(topic, partition) if one.recorded_at_ms >= recorded_at_ms]
        return later[0] if later else self.bounds(topic)[partition].newest + 1

    def expire(self, topic: str, before_ms: int) -> int:
        gone = 0
        for number in range(len(self._topics[topic])):
            oldest = self._oldest.get((topic, number), 0)
            keep = self.first_since(topic, number, before_ms)
            self._oldest[topic, number] = max(oldest, keep)
            gone += self._oldest[topic, number] - oldest
        return gone

    def close(self) -> None:
        pass

    def _partition(self, topic: str, partition: int) -> list[Chunk]:
        self.bounds(topic)
        return self._topics[topic][partition]


class MemorySignals:
    """Who would wait lets the next of `then` happen, and where none is left the time pass."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.then: list[Callable[[], object]] = []
        self.watches: set[MemoryWatch] = set()

    def notify(self, key: str) -> None:
        for watch in self.watches:
            watch.woken |= key in watch.keys

    def watch(self, keys: Iterable[str]) -> "MemoryWatch":
        watch = MemoryWatch(self, frozenset(keys))
        self.watches.add(watch)
        return watch


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
