"""The events that a producer has taken over: batches that fill, wait and are sent, and what happened to them."""

import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from uuid import uuid4

from rioni.client._sync import concurrency
from rioni.client.answers import trace_headers
from rioni.client.errors import ClientError, ProducerClosed, TimedOut
from rioni.client.keywords import ProducerSettings


# --- The events that a producer has taken over, in batches, and what happened to them ---

GRACE_S = 10.0
"""Seconds by which the result of an event may come after its deadline: the last request may still be under way."""


class BatchPart:
    """Events of a batch that are sent together, and again under the same idempotency key."""

    __slots__ = ("indexes", "key", "missing", "repetitions")

    def __init__(self, indexes: Sequence[int]) -> None:
        self.indexes = self.missing = indexes
        """The indexes of the piece's events in the batch; those of events that are not known to be stored."""
        self.key = str(uuid4())
        self.repetitions = 0


class ProducerBatch:
    """Events that are sent together, in the order in which the producer got them."""

    __slots__ = (
        "deadline_s",
        "done",
        "due_s",
        "errors",
        "events",
        "full",
        "headers",
        "pieces",
        "seen",
        "settled",
        "size",
    )

    def __init__(self, *, due_s: float, deadline_s: float, headers: Mapping[str, str]) -> None:
        self.events: list[bytes] = []
        self.size = 0
        """Bytes."""
        self.due_s, self.deadline_s = due_s, deadline_s
        """The times, on the monotonic clock, at which it is sent even if it is not full, and at which sending ends."""
        self.headers = headers
        self.full = False
        self.pieces: Sequence[BatchPart] | None = None
        """The pieces to send; None before the first one is sent."""
        self.errors: dict[int, ClientError] = {}
        """Why events failed, by their index; all others of a batch that is settled are stored."""
        self.seen: set[int] = set()
        """The failed events that the application has examined."""
        self.settled = False
        self.done = concurrency.Event()
        """The event that is set a moment after `settled`, when `on_result` was called for all events."""

    def fail(self, indexes: Iterable[int], error: ClientError) -> None:
        """Note why events failed, unless that is known."""
        for index in indexes:
            self.errors.setdefault(index, error)

    def fail_rest(self, error: ClientError) -> None:
        """Note why all events failed whose result is not known."""
        pieces = self.pieces
        for piece in [BatchPart(range(len(self.events)))] if pieces is None else pieces:
            self.fail(piece.missing, error)


class Delivery:
    """The outcome of one event that was handed to a producer."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: ProducerBatch, index: int) -> None:
        self._batch, self._index = batch, index

    @property
    def event(self) -> bytes:
        """The event as JSON, as it is sent."""
        return self._batch.events[self._index]

    @property
    def done(self) -> bool:
        """Whether the event is stored or has failed."""
        return self._batch.settled

    @property
    def error(self) -> ClientError | None:
        """Why the event failed; None if it is stored, or if that is not known yet."""
        error = self._batch.errors.get(self._index) if self._batch.settled else None
        if error is not None:
            self._batch.seen.add(self._index)
        return error

    @property
    def seen(self) -> bool:
        """Whether the application has examined the error of this event."""
        return self._index in self._batch.seen

    def result(self, timeout_s: float | None = None) -> None:
        """Wait until the event is stored.

        Args:
            timeout_s: how long to wait; by default as long as the producer tries to deliver the event.

        Raises:
            EventFailed: the broker refused the event, or failed to store it.
            TimedOut: there is no result in time; if `done` is set, the event was not stored in the producer's time.
            ClientError: any other reason why the event could not be delivered.
        """
        if timeout_s is None:
            timeout_s = max(0.0, self._batch.deadline_s - time.monotonic()) + GRACE_S
        if not concurrency.wait(self._batch.done, timeout_s):
            raise TimedOut(f"The event has no result after {timeout_s:g} s")
        if (error := self.error) is not None:
            raise error


# --- The buffer of a producer: events in batches that fill, wait, and are sent, with limits on all of them ---

IDLE_S = 60.0
"""Seconds that a sender waits before it checks again whether there is work; it is woken up for work."""


class _Lane:
    """Batches that are sent one after the other, and the last of which is being filled."""

    def __init__(self) -> None:
        self.batches: deque[ProducerBatch] = deque()
        self.turn = concurrency.Lock()
        """Held by the sender that waits for the next batch."""
        self.wake = concurrency.Event()


class SendBuffer:
    """Batches in lanes: order is kept within a lane that has one sender."""

    def __init__(self, lanes: int, limits: ProducerSettings) -> None:
        self._limits = limits
        self._lanes = [_Lane() for _ in range(lanes)]
        self._mutex = concurrency.Mutex()
        self._room = concurrency.Event()
        self._events, self._bytes = 0, 0
        self._unsettled: dict[ProducerBatch, None] = {}
        self.closed = False

    def add(self, lane: int, event: bytes) -> Delivery | None:
        """Take over an event, if there is room.

        Raises:
            ProducerClosed: the buffer was closed.
        """
        size, limits = len(event), self._limits
        with self._mutex:
            if self.closed:
                raise ProducerClosed("The producer is closed, and takes no more events")
            # An event that is larger than the buffer has room when it is alone.
            if self._events and (self._events >= limits.buffer_events or self._bytes + size > limits.buffer_bytes):
                self._room.clear()
                return None
            self._events += 1
            self._bytes += size
            return self._append(self._lanes[lane], event)

    def wait_for_room(self, timeout_s: float) -> bool:
        """Block until results have arrived since `add` has found no room; whether they arrived in time."""
        return concurrency.wait(self._room, timeout_s)

    def _append(self, lane: _Lane, event: bytes) -> Delivery:
        limits, size = self._limits, len(event)
        batch = lane.batches[-1] if lane.batches else None
        if batch is not None and batch.size + size > limits.batch_bytes:
            batch.full = True
        if batch is None or batch.full:
            batch = self._open(lane)
        batch.events.append(event)
        batch.size += size + 1
        count = len(batch.events)
        if count >= limits.batch_events or batch.size >= limits.batch_bytes:
            batch.full = True
            lane.wake.set()
        return Delivery(batch, count - 1)

    def _open(self, lane: _Lane) -> ProducerBatch:
        now_s = time.monotonic()
        batch = ProducerBatch(
            due_s=now_s + self._limits.linger_s, deadline_s=now_s + self._limits.timeout_s, headers=trace_headers()
        )
        lane.batches.append(batch)
        self._unsettled[batch] = None
        lane.wake.set()
        return batch

    def next(self, number: int) -> ProducerBatch | None:
        """The next batch of a lane that is to be sent; blocks until there is one. None when the buffer is closed."""
        lane = self._lanes[number]
        # PERF: an event wakes up all threads that wait for it, so only one waits for batches.
        with lane.turn:
            while True:
                with self._mutex:
                    wait_s = self._ready_in_s(lane)
                    if wait_s <= 0:
                        return lane.batches.popleft()
                    if self.closed:
                        return None
                    lane.wake.clear()
                concurrency.wait(lane.wake, wait_s)

    def _ready_in_s(self, lane: _Lane) -> float:
        if not lane.batches:
            return IDLE_S
        batch = lane.batches[0]
        return 0.0 if batch.full or self.closed else batch.due_s - time.monotonic()

    def send_now(self) -> Sequence[ProducerBatch]:
        """Have all events sent without waiting for more; returns the batches that are not settled."""
        with self._mutex:
            for lane in self._lanes:
                for batch in lane.batches:
                    batch.full = True
                lane.wake.set()
            return [*self._unsettled]

    def settle(self, batch: ProducerBatch) -> bool:
        """Note that the results of a batch are known, which makes room; whether they were not before."""
        with self._mutex:
            if batch.settled:
                return False
            batch.settled = True
            del self._unsettled[batch]
            self._events -= len(batch.events)
            self._bytes -= batch.size - len(batch.events)
            self._room.set()
            return True

    def close(self) -> None:
        """Take no more events; those in the buffer are sent."""
        with self._mutex:
            self.closed = True
            self._room.set()
        self.send_now()
