"""Per-process read cache shared by streams: after a notification the first stream reads for all."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from rioni.domain.errors import Unavailable
from rioni.domain.ports.clock import Clock
from rioni.domain.ports.event_store import Chunk
from rioni.domain.ports.event_stores import EventStores
from rioni.domain.ports.notifier import Notifier
from rioni.domain.subscriptions.cursor import TimelinePosition
from rioni.domain.timelines.timeline import Timelines
from rioni.projections.queries.timeline_reader import newest_of, read_after


T = TypeVar("T")

HOLDS_S = 1.0
"""How long an answer is good for without a notification: these may be lost."""

LOADING_WAIT_S = 75.0
"""How long one waits for what another one reads, whose own deadlines are shorter."""

SHARED_BYTES_MAX = 65_536
"""What was read is kept for the others up to this length: where streams meet, at the end of a partition, it is short.
"""


class CachedUntilNotified(Generic[T]):
    """An answer that is good until the next notification of a key, and for a second at most."""

    __slots__ = ("_answer", "_ask", "_clock", "_generation", "_key", "_signals", "_until_s")

    def __init__(self, ask: Callable[[], T], key: str, signals: Notifier, clock: Clock) -> None:
        """Nothing has been asked yet.

        Args:
            ask: answers anew.
            key: whoever calls watches it.
            signals: of this process.
            clock: says when the answer is too old.
        """
        self._ask, self._key, self._signals, self._clock = ask, key, signals, clock
        self._generation, self._until_s = -1, 0.0
        self._answer: T

    def __call__(self) -> T:
        """The answer as of the last notification, or later; the very same as long as it is not asked anew."""
        generation, now_s = self._signals.generation(self._key), self._clock.monotonic()
        if generation == self._generation and now_s < self._until_s:
            return self._answer
        # Only when it is there, so that nobody goes on with the old one meanwhile.
        answer = self._ask()
        self._answer, self._generation, self._until_s = answer, generation, now_s + HOLDS_S
        return answer


class PartitionTail:
    """Where an event type ends, and what comes last in it."""

    __slots__ = ("__weakref__", "_kept", "_loading", "_stores", "newest", "timelines")

    def __init__(self, timelines: Timelines, stores: EventStores, signals: Notifier, clock: Clock) -> None:
        """Nothing is known yet; the arguments are those of `TailCache`."""
        self.timelines = timelines
        self._stores = stores
        key = topic_key(timelines)
        self.newest = CachedUntilNotified(lambda: newest_of(timelines, stores), key, signals, clock)
        """The places of the last event of every partition, by number; does not block, and raises as `newest_of`."""
        self._kept: dict[
            int, tuple[Sequence[TimelinePosition], TimelinePosition, int, tuple[int, Sequence[Chunk]]]
        ] = {}
        """What was read last of each partition: at which end, behind which place, how many bytes."""
        self._loading: dict[tuple[int, TimelinePosition], threading.Event] = {}

    def read(
        self,
        number: int,
        after: TimelinePosition,
        bytes_max: int,
        beside: Callable[[], Mapping[int, TimelinePosition]] = dict,
    ) -> tuple[int, Sequence[Chunk]]:
        """The next chunks of a partition; see `read_after`. Who wants the same as another one at the same time waits.

        PERF: streams that the append of another process had woken kept each other waiting in the offload.
        """
        while True:
            newest = self.newest()
            if kept := self._kept.get(number):
                known, begin, size, found = kept
                if begin == after and known is newest and size <= bytes_max:
                    return found
            if loaded := self._loading.get((number, after)):
                if not loaded.wait(LOADING_WAIT_S):
                    raise Unavailable(
                        "Timed out waiting for another stream's read of the same events. Try again later."
                    )
                continue
            self._loading[number, after] = loaded = threading.Event()
            try:
                found = read_after(self.timelines, self._stores, number, after, bytes_max, beside)
            finally:
                del self._loading[number, after]
                loaded.set()
            size = sum([len(chunk.data) for chunk in found[1]])
            if 0 < size <= SHARED_BYTES_MAX:
                self._kept[number] = newest, after, size, found
            return found


class TailCache:
    """The tails of the event types that this process streams; each is forgotten with its last stream."""

    def __init__(self, stores: EventStores, signals: Notifier, clock: Clock) -> None:
        """Begin.

        Args:
            stores: of the storages.
            signals: told `topic:<topic>` after every append.
            clock: of this process.
        """
        self._ports = stores, signals, clock
        self._tails: WeakValueDictionary[str, PartitionTail] = WeakValueDictionary()

    def of(self, timelines: Timelines) -> PartitionTail:
        """The tail of an event type, given its timelines."""
        tail = self._tails.get(timelines.active.topic)
        if tail is None or tail.timelines is not timelines:
            tail = self._tails[timelines.active.topic] = PartitionTail(timelines, *self._ports)
        return tail


def topic_key(timelines: Timelines) -> str:
    """The signal that something was appended to an event type, or that it was deleted."""
    return f"topic:{timelines.active.topic}"
