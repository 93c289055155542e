"""Dependencies of a stream: the ports of its process, its client, and what the streams of a process share."""

import threading  # threads: greenlets only: events with deadlines, locks for changes in memory
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future  # threads: greenlets only: events with deadlines, locks for changes in memory
from dataclasses import dataclass, field
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from rioni.domain.errors import Unavailable
from rioni.domain.ports.coordinator import Coordinator
from rioni.domain.ports.event_store import Chunk, EventStores
from rioni.domain.ports.host import TOPIC, Clock, Notifier
from rioni.domain.streaming.batching import Visibility
from rioni.domain.streaming.messages import End, Reason
from rioni.domain.timelines.position import TimelinePosition
from rioni.domain.timelines.timeline import Timelines
from rioni.http.streaming.frames import Frames, FrameWriter
from rioni.projections.queries.timeline_reader import newest_of, read_after


# --- State that the streams of a process share: after a notification the first of them reads for all ---

T = TypeVar("T")

HOLDS_S = 1.0
"""Lifetime of a cached answer without a notification: notifications may be lost."""

CALL_WAIT_S = 0.5
"""How long streams wait for a shared call, and so send nothing else."""

LOADING_WAIT_S = 75.0
"""Time-out of waiting for another stream's read, whose own deadlines are shorter."""

SHARED_BYTES_MAX = 65_536
"""Reads up to this length are kept for other streams: those at the end of a partition, where streams meet, are short.
"""


class CachedUntilNotified(Generic[T]):
    """Caches a result until the next notification of a key, and for a second at most."""

    __slots__ = ("_answer", "_clock", "_compute", "_key", "_signals", "_until_s", "_version")

    def __init__(self, compute: Callable[[], T], key: str, signals: Notifier, clock: Clock) -> None:
        """Start with an empty cache.

        Args:
            compute: computes the result.
            key: invalidates it; callers must watch it.
            signals: the signals of this process.
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
    """Calls a function once at a time for all callers, in a separate thread; they wait for it together, and briefly.

    Under gevent the thread is a greenlet.
    """

    def __init__(self, function: Callable[[], None]) -> None:
        """Share a function, which may block until its deadlines."""
        self._function = function
        self._until_s = 0.0
        self._called: Future[None] | None = None

    def __call__(self) -> None:
        """Call the function, or wait for the call that goes on.

        Raises:
            Unavailable: it has not ended within `CALL_WAIT_S` of its start; it goes on.
            Exception: the one that it raised.
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
            stores: the stores of the storages.
            signals: notified of `topic:<topic>` after every append.
            clock: the clock of this process.
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


# --- Dependencies of a stream: the ports of its process, and its client ---


class StreamMemory:
    """Events that wait in the streams of one process until their batches are full or their windows open."""

    def __init__(self, bytes_max: int = 500_000_000) -> None:
        self._bytes_max = bytes_max
        self.streams = 0

    def open(self) -> None:
        """Count a stream more."""
        self.streams += 1

    def close(self) -> None:
        """Count a stream less."""
        self.streams -= 1

    def share(self) -> int:
        """How many bytes each of the open streams may hold now; a stream that holds more sends sooner."""
        return self._bytes_max // max(1, self.streams)


@dataclass(slots=True, kw_only=True)
class StreamPorts:
    """Dependencies shared by all streams of a process."""

    clock: Clock
    stores: EventStores
    timelines: Callable[[str], Timelines]
    """The timelines of an event type, as known to this process; current if the registry was refreshed before."""
    signals: Notifier
    coordinator: Coordinator
    memory: StreamMemory = field(default_factory=StreamMemory)
    tails: TailCache = field(init=False)

    def __post_init__(self) -> None:
        self.tails = TailCache(self.stores, self.signals, self.clock)


class StreamClient:
    """The client of a stream: checked at every wake-up, so calls must be cheap; also receives the stream's reports."""

    __slots__ = ()
    keys: Collection[str] = ()
    """Keys to watch besides events and assignments, so that `ended` and `visibility` are called at once."""

    def is_disconnected(self) -> bool:
        """Whether the client has disconnected."""
        return False

    def frames(self, token: Callable[[], str] | None) -> FrameWriter:
        """Return the encoder of batches in the client's format, given a factory of cursor tokens."""
        return Frames(token)

    def ended(self) -> End | None:
        """Why the broker ends the stream, if it does: lost access, deleted resources, shutdown."""
        return None

    def visibility(self) -> Visibility:
        """The visibility of events for the client now; called after `ended`."""
        return Visibility()

    def on_begin(self) -> None:
        """Called once when the response begins.

        PERF: any call that needs a deep stack below that of the request costs each stream another page of memory for
        good, and logging does.
        """

    def on_batch(self, event_type: str, events: int, size: int) -> None:
        """Called for every batch with events: event type, number of events, bytes."""

    def on_filtered(self, count: int) -> None:
        """Called with the number of skipped events."""

    def on_filter_failures(self, count: int) -> None:
        """Called with the number of events for which the filter could not be evaluated."""

    def on_expired_unread(self, count: int) -> None:
        """Called with the number of events that expired unread."""

    def on_end(self, reason: Reason) -> None:
        """Called with the reason for which the stream ends."""

    def on_close(self) -> None:
        """Called once when the stream is closed."""
