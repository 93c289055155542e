"""What the streams of a process share: after a notification the first of them reads for all."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from rioni.domain.errors import Unavailable
from rioni.domain.ports.clock import Clock
from rioni.domain.ports.event_store import Chunk
from rioni.domain.ports.event_stores import EventStores
from rioni.domain.ports.notifier import TOPIC, Notifier
from rioni.domain.timelines.position import TimelinePosition
from rioni.domain.timelines.timeline import Timelines
from rioni.projections.queries.timeline_reader import newest_of, read_after


T = TypeVar("T")

HOLDS_S = 1.0
"""Lifetime of a cached answer without a notification: notifications may be lost."""

CALL_WAIT_S = 0.5
"""How long streams wait for a shared call, and so send nothing else."""

LOADING_WAIT_S = 75.0
"""Time-out of waiting for another stream's read, whose own deadlines are shorter."""

SHARED_BYTES_MAX = 65_536
"""What was read is kept for the others up to this length: where streams meet, at the end of a partition, it is short.
"""


class CachedUntilNotified(Generic[T]):
    """Caches a result until the next notification of a key, and for a second at most."""

    __slots__ = ("_answer", "_clock", "_compute", "_key", "_signals", "_until_s", "_version")

    def __init__(self, compute: Callable[[], T], key: str, signals: Notifier, clock: Clock) -> None:
        """Start with an empty cache.

        Args:
            compute: computes the result.
            key: invalidates it; callers must watch it.
            signals: of this process.
            clock: for the lifetime.
        """
        self._compute, self._key, self._signals, self._clock = compute, key, signals, clock
        self._version, self._until_s = -1, 0.0
        self._answer: T

    def __call__(self) -> T:
        """The result as of the last notification, or later; the identical object while it is cached."""
        version, now_s = self._signals.version(self._key), self._clock.monotonic()
        if version == self._version and now_s < self._until_s:
            return self._answer
        # Stored only when computed, so that no caller uses the old result with the new version.
        answer = self._compute()
        self._answer, self._version, self._until_s = answer, version, now_s + HOLDS_S
        return answer


class SharedCall:
    """Calls a function once at a time for all callers, in a thread of its own; they wait for it together, and briefly.

    Under gevent the thread is a greenlet.
    """

    def __init__(self, function: Callable[[], None]) -> None:
        """Share a function, which may block up to deadlines of its own."""
        self._function = function
        self._until_s = 0.0
        self._called: Future[None] | None = None

    def __call__(self) -> None:
        """Call the function, or wait for the call that goes on.

        Raises:
            Unavailable: it has not ended within `CALL_WAIT_S` of its start; it goes on.
            Exception: what it raised.
        """
        if self._called is None or self._called.done():
            self._called, self._until_s = Future(), time.monotonic() + CALL_WAIT_S
            threading.Thread(target=self._run, args=(self._called,), daemon=True).start()
        try:
            self._called.result(max(0.0, self._until_s - time.monotonic()))
        except TimeoutError:
            raise Unavailable(f"No answer came within {CALL_WAIT_S:g} s. Try again later.") from None

    def _run(self, called: "Future[None]") -> None:
        try:
            self._function()
        except Exception as ex:  # noqa: BLE001 - the callers raise it
            called.set_exception(ex)
        else:
            called.set_result(None)


class PartitionTail:
    """The newest positions of an event type, and cached reads at its end."""

    __slots__ = ("__weakref__", "_kept", "_loading", "_stores", "newest", "timelines")

    def __init__(self, timelines: Timelines, stores: EventStores, signals: Notifier, clock: Clock) -> None:
        """Start with an empty cache; the arguments are those of `TailCache`."""
        self.timelines = timelines
        self._stores = stores
        key = topic_key(timelines)
        self.newest = CachedUntilNotified(lambda: newest_of(timelines, stores), key, signals, clock)
        """The places of the last event of every partition, by number; does not block, and raises as `newest_of`."""
        self._kept: dict[
            int, tuple[Sequence[TimelinePosition], TimelinePosition, int, tuple[int, Sequence[Chunk]]]
        ] = {}
        """The last read of each partition: newest positions, start, number of bytes, result."""
        self._loading: dict[tuple[int, TimelinePosition], threading.Event] = {}

    def read(
        self,
        number: int,
        after: TimelinePosition,
        bytes_max: int,
        prefetch: Callable[[], Mapping[int, TimelinePosition]] = dict,
    ) -> tuple[int, Sequence[Chunk]]:
        """The next chunks of a partition; see `read_after`. Concurrent calls for the same position wait for the first.

        PERF: streams woken by another process's append would otherwise queue in the thread pool.
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
                found = read_after(self.timelines, self._stores, number, after, bytes_max, prefetch)
            finally:
                del self._loading[number, after]
                loaded.set()
            size = sum([len(chunk.data) for chunk in found[1]])
            if 0 < size <= SHARED_BYTES_MAX:
                self._kept[number] = newest, after, size, found
            return found


class TailCache:
    """Caches the tails of the event types that this process streams; each is dropped with its last stream."""

    def __init__(self, stores: EventStores, signals: Notifier, clock: Clock) -> None:
        """Begin.

        Args:
            stores: of the storages.
            signals: notified of `topic:<topic>` after every append.
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
    """The key notified when an event type was appended to, or deleted."""
    return TOPIC + timelines.active.topic
