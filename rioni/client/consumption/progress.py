"""One stream from its consumer's view: its partitions, their events until they are committed, and whose turn it is."""

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from rioni.client.consumption.events import EventBatch, StreamPartition, events_passed, offset_inside
from rioni.wire.events import Cursor


# --- The progress of one stream with one partition: events received, handled and committed ---


class Cut(NamedTuple):
    """A cursor that may be committed, and what that commits."""

    progress: "StreamedPartition"
    cursor: Cursor | None
    """None: the one that the broker has already, as a heartbeat."""
    batches: int = 0
    """The number of the first batches."""
    events: int = 0
    """The number of the first events of the batch after these; more than 0 if the cursor is inside that batch."""
    known: int = 0
    """The number of batches that there were."""


class StreamedPartition:
    """One partition of one stream."""

    def __init__(self, session: "StreamState", partition: StreamPartition) -> None:
        self.session, self.partition = session, partition
        self.batches: deque[EventBatch[Any]] = deque()
        """Received and not yet committed, in order."""
        self.seen = session.committed.get(partition)
        """The last offset received; until an event is received, an offset that is not after it, or None."""
        self.since_s = 0.0
        """When the broker began to wait for a commit: at the first event, the last commit or heartbeat."""
        self.heard_s = 0.0
        """When something was received, by the clock of the session."""
        self.announced = False
        """Whether the application knows of the assignment."""
        self.failed = False
        """Whether events that are not handled yet must not be."""
        self.revoked = False
        """Whether another stream may have the partition."""
        self.only_whole = False
        """Whether the broker has refused a cursor inside a batch."""
        self._mark: tuple[EventBatch[Any], int] | None = None
        self._marked_s = 0.0

    def received(self, batch: EventBatch[Any], now_s: float) -> None:
        """Take a batch with events."""
        if not self.batches:
            self.since_s = now_s
        self.batches.append(batch)
        self.session.waiting += len(batch)
        self.seen = batch.cursor.offset

    def handled_until(self, batch: EventBatch[Any], count: int) -> bool:
        """Note that the first events of a batch are handled, and all batches before it; whether that was news."""
        if batch not in self.batches or count <= batch.handled:
            return False
        for each in self.batches:
            each.handled = count if each is batch else len(each)
            self.count(each)
            if each is batch:
                break
        return True

    def count(self, batch: EventBatch[Any]) -> None:
        """Note how many events of a batch are handled."""
        if not self.revoked:
            self.session.handled += batch.handled - batch.counted
            batch.counted = batch.handled

    def _remove(self, batch: EventBatch[Any]) -> None:
        self.session.waiting -= len(batch)
        self.session.handled -= batch.counted

    def cut(self, *, inside: bool) -> Cut | None:
        """The furthest cursor with nothing unhandled before it; None if it would commit nothing.

        Args:
            inside: whether a cursor inside a batch is wanted, where its handled events reach beyond the other batches.
        """
        whole, last = 0, None
        for batch in self.batches:
            if batch.handled < len(batch):
                if inside and (cursor := self._inside(batch)):
                    return Cut(self, cursor, whole, batch.handled, len(self.batches))
                break
            whole, last = whole + 1, batch
        return Cut(self, last.cursor, whole, 0, len(self.batches)) if last else None

    def _inside(self, batch: EventBatch[Any]) -> Cursor | None:
        if batch.handled <= batch.committed or self.only_whole:
            return None
        end = batch.cursor
        offset = offset_inside(batch.before, batch.handled, end.offset)
        if offset is None:
            return None
        return Cursor(partition=end.partition, offset=offset, event_type=end.event_type, cursor_token=end.cursor_token)

    def skip(self, committed: str) -> None:
        """Skip events that came once more while their commit was on its way."""
        for batch in self.batches:
            batch.handled = max(batch.handled, events_passed(committed, len(batch), batch.cursor.offset))
            self.count(batch)

    def committed(self, cut: Cut, sent_s: float) -> None:
        """Note that a cut is stored."""
        for _ in range(cut.batches):
            self._remove(self.batches.popleft())
        if cut.events:
            self.batches[0].committed = cut.events
        self.since_s = sent_s

    def clear(self) -> None:
        """Forget the events that were not committed."""
        for batch in self.batches:
            batch.dropped = True
            self._remove(batch)
        self.batches.clear()

    # --- Heartbeats ---

    def moves(self, at_s: float, patience_s: float) -> bool:
        """Whether the application has handled events since the last heartbeats, or not long enough ago to wonder."""
        return self._mark != self._place or at_s < self._marked_s + patience_s

    def mark(self, now_s: float) -> None:
        """Note at a heartbeat how far the application is."""
        if self._mark != self._place:
            self._mark, self._marked_s = self._place, now_s

    @property
    def _place(self) -> tuple[EventBatch[Any], int]:
        return (self.batches[0], self.batches[0].handled)


# --- One stream from its consumer's view: its partitions, when data came, when it may commit, and its end ---

SILENT_FLUSHES = 3
SILENT_MARGIN_S = 10.0
"""A partition is gone after `SILENT_FLUSHES` flush time-outs, and this margin, without a sign of it."""
BROKEN_MARGIN_S = 30.0
"""A connection is broken after the flush time-out and this margin without a sign of any partition."""


class StreamState:
    """The state of one stream, from its opening until everything that it sent is committed or dropped."""

    def __init__(self, stream_id: str, committed: Mapping[StreamPartition, str], now_s: float, flush_s: float) -> None:
        self.stream_id, self.committed = stream_id, committed
        self.partitions: dict[StreamPartition, StreamedPartition] = {}
        self.waiting = 0
        """Events that were received and are not committed."""
        self.handled = 0
        """The number of waiting events that are handled, if they were counted already."""
        self.open = True
        self.ended_s = 0.0
        """The time at which it was closed."""
        self.closes = False
        """Whether to inform the broker of the end, since it may wait for commits that do not come."""
        self.acknowledged: dict[StreamPartition, str] = {}
        """The last offset that the broker has committed for this stream, by partition."""
        self.lost: set[StreamPartition] = set()
        """Partitions of which a commit was refused.

        When events of such a partition come, they may have been sent before it was lost, or since it came back; only
        another stream is certain to deliver the dropped events.
        """
        self.stale = False
        """Whether another stream is to be opened, since events of a lost partition have arrived."""
        self.said = ""
        """The last information that came in it."""
        self.not_before_s = now_s
        """The earliest time of the next commit."""
        self.committed_s = now_s
        """The time at which the last commit was answered."""
        self._flush_s = flush_s
        self._clock_s = self._checked_s = 0.0
        self._heard_s: float | None = None

    def hear(self, progress: StreamedPartition | None, now_s: float) -> None:
        """Note that something was received.

        The clock of the session stops while the client does not get to read, so that a connection with unread
        data does not seem silent.
        """
        if self._heard_s is not None:
            self._clock_s += min(now_s - self._heard_s, self._flush_s)
        self._heard_s = now_s
        if progress is not None:
            progress.heard_s = self._clock_s

    def silent(self) -> list[StreamedPartition]:
        """Partitions without a sign of life, and without events to commit: another stream has them now."""
        if self._clock_s < self._checked_s + self._flush_s:
            return []
        self._checked_s = self._clock_s
        limit_s = self._clock_s - SILENT_FLUSHES * self._flush_s - SILENT_MARGIN_S
        return [each for each in self.partitions.values() if each.heard_s < limit_s and not each.batches]

    @property
    def broken_at_s(self) -> float:
        """When the connection counts as broken if nothing comes; never before anything came, and after its end."""
        if self._heard_s is None or not self.open:
            return float("inf")
        return self._heard_s + self._flush_s + BROKEN_MARGIN_S


# --- Items that wait to be handled: in order within a partition, one at a time, and partitions in turns ---


class Assigned(NamedTuple):
    """A notice to the application that it gets the events of a partition from now on."""

    progress: StreamedPartition


class Revoked(NamedTuple):
    """A notice to the application that it gets no more events of a partition, and why."""

    progress: StreamedPartition
    reason: str


Item = Assigned | Revoked | EventBatch[Any]


class _Lane:
    __slots__ = ("busy", "items")

    def __init__(self) -> None:
        self.items: deque[Item] = deque()
        self.busy = False


class Lanes:
    """A queue for each partition, whatever stream its events come from."""

    def __init__(self) -> None:
        self._lanes: dict[StreamPartition, _Lane] = {}
        self._ready: deque[StreamPartition] = deque()
        """Partitions with something to take; each is in it once at most."""

    @property
    def ready(self) -> int:
        """The number of things that can be taken now."""
        return len(self._ready)

    def add(self, item: Item) -> None:
        """Put something at the end of the queue of its partition."""
        partition = item.progress.partition
        lane = self._lanes.setdefault(partition, _Lane())
        if not lane.items and not lane.busy:
            self._ready.append(partition)
        lane.items.append(item)

    def take(self) -> Item | None:
        """The next item of an idle partition, if there is one; it is in hand until `release`."""
        if not self._ready:
            return None
        lane = self._lanes[self._ready.popleft()]
        lane.busy = True
        item = lane.items.popleft()
        if isinstance(item, Assigned):
            item.progress.announced = True
        return item

    def release(self, item: Item) -> None:
        """Note that nothing of the partition is in hand any more."""
        partition = item.progress.partition
        lane = self._lanes[partition]
        lane.busy = False
        if lane.items:
            self._ready.append(partition)
        else:
            del self._lanes[partition]

    def is_busy(self, partition: StreamPartition) -> bool:
        """Whether something of a partition is in hand."""
        lane = self._lanes.get(partition)
        return lane is not None and lane.busy

    def drop(self, progress: StreamedPartition, reason: str) -> None:
        """Remove all items of one stream's partition; the application is notified, if it knows of the partition."""
        partition = progress.partition
        if (lane := self._lanes.get(partition)) is not None:
            lane.items = deque(
                each for each in lane.items if each.progress is not progress or isinstance(each, Revoked)
            )
            if not lane.items and not lane.busy:
                self._ready.remove(partition)
                del self._lanes[partition]
        if progress.announced:
            progress.announced = False
            self.add(Revoked(progress, reason))
