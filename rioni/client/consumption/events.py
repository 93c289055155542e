"""One stream from its consumer's view: its batches of events, and its partitions until all of them are committed."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from rioni.client.consumption.event_values import EventMetadata, events_passed, metadata_of, of_event, offset_inside
from rioni.wire.events import Cursor


# --- Events as a consumer hands them out ---

T = TypeVar("T")


class StreamPartition(NamedTuple):
    """A partition of a subscription."""

    event_type: str
    partition: str


class EventBatch(Generic[T]):
    """Events of one partition that the stream sent together; iterating gives the events.

    PERF: made for each batch, not for each event, so that an event is three references.
    """

    __slots__ = (
        "_commit",
        "before",
        "committed",
        "counted",
        "cursor",
        "decode",
        "dropped",
        "handled",
        "json",
        "progress",
    )

    def __init__(
        self,
        cursor: Cursor,
        json: Sequence[msgspec.Raw],
        *,
        progress: "PartitionProgress",
        decode: Callable[[Any], T],
        commit: Callable[["EventBatch[Any]", int], None],
    ) -> None:
        self.cursor = cursor
        """The cursor of the last event."""
        self.json = json
        """The JSON of each event, as it was published."""
        self.progress, self.decode, self._commit = progress, decode, commit
        self.before = progress.seen
        """An offset before the first event, None if none is known."""
        self.handled = 0
        """The number of the first events that are handled."""
        self.committed = 0
        """The number of the first events that are committed."""
        self.counted = 0
        """The number of handled events that the session has counted."""
        self.dropped = False
        """Whether the rest need not be handled: it will be delivered again, here or elsewhere."""

    @property
    def event_type(self) -> str:
        """The name of the event type."""
        return self.progress.partition.event_type

    @property
    def partition(self) -> str:
        """The id of the partition."""
        return self.progress.partition.partition

    def __len__(self) -> int:
        return len(self.json)

    def __iter__(self) -> Iterator["Event[T]"]:
        for index, raw in enumerate(self.json):
            yield Event(raw, self, index)

    def commit(self) -> None:
        """Say that these events are handled, and all before them in the partition; does not wait for the broker."""
        self._commit(self, len(self.json))

    def commit_until(self, index: int) -> None:
        """Commit as `commit` does, but only up to the event with an index."""
        self._commit(self, index + 1)


class Event(msgspec.Struct, Generic[T], eq=False):
    """An event; its contents are decoded when they are asked for."""

    _json: msgspec.Raw
    _batch: EventBatch[T]
    _index: int
    _data: Any = msgspec.UNSET

    @property
    def data(self) -> T:
        """The event, decoded once.

        Raises:
            msgspec.ValidationError: the event does not fit the type; Pydantic models raise their own errors.
        """
        if self._data is msgspec.UNSET:
            self._data = self._batch.decode(self._json)
        return self._data  # type: ignore[no-any-return]

    @property
    def raw(self) -> bytes:
        """The JSON as it was published, with the metadata that the broker added."""
        return bytes(self._json)

    @property
    def metadata(self) -> EventMetadata:
        """The metadata, decoded each time; raises msgspec.ValidationError."""
        return metadata_of(self._json)

    @property
    def event_type(self) -> str:
        """The name of the event type."""
        return self._batch.event_type

    @property
    def partition(self) -> str:
        """The id of the partition."""
        return self._batch.partition

    @property
    def cursor(self) -> Cursor:
        """The cursor of the last event of the batch that this event came in: brokers name no others."""
        return self._batch.cursor

    @property
    def offset(self) -> str | None:
        """The offset of this event; None if it can't be known, as others may have been removed or hidden before it."""
        batch = self._batch
        return of_event(batch.before, self._index, len(batch), batch.cursor.offset)

    def commit(self) -> None:
        """Say that this event is handled, and all before it in the partition; does not wait for the broker.

        Where not all events of the batch are handled, the cursor that is committed may be a little before this event.
        """
        self._batch.commit_until(self._index)

    def __repr__(self) -> str:
        return f"Event({self.event_type}, partition {self.partition}, {self.raw!r})"


# --- The progress of one stream with one partition: events received, handled and committed ---


class Cut(NamedTuple):
    """A cursor that may be committed, and what that commits."""

    progress: "PartitionProgress"
    cursor: Cursor | None
    """None: the one that the broker has already, as a heartbeat."""
    batches: int = 0
    """The number of the first batches."""
    events: int = 0
    """The number of the first events of the batch after these; more than 0 if the cursor is inside that batch."""
    known: int = 0
    """The number of batches that there were."""


class PartitionProgress:
    """One partition of one stream."""

    def __init__(self, session: "StreamSession", partition: StreamPartition) -> None:
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


class StreamSession:
    """The state of one stream, from its opening until everything that it sent is committed or dropped."""

    def __init__(self, stream_id: str, committed: Mapping[StreamPartition, str], now_s: float, flush_s: float) -> None:
        self.stream_id, self.committed = stream_id, committed
        self.partitions: dict[StreamPartition, PartitionProgress] = {}
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

    def hear(self, progress: PartitionProgress | None, now_s: float) -> None:
        """Note that something was received.

        The clock of the session stops while the client does not get to read, so that a connection with unread
        data does not seem silent.
        """
        if self._heard_s is not None:
            self._clock_s += min(now_s - self._heard_s, self._flush_s)
        self._heard_s = now_s
        if progress is not None:
            progress.heard_s = self._clock_s

    def silent(self) -> list[PartitionProgress]:
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
