"""The progress of one stream with one partition: events received, handled and committed."""

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from rioni.client.consumption import offsets
from rioni.client.consumption.events import EventBatch, StreamPartition
from rioni.wire.events import Cursor


if TYPE_CHECKING:
    from rioni.client.consumption.session import Session


class Cut(NamedTuple):
    """A cursor that may be committed, and what that commits."""

    progress: "Progress"
    cursor: Cursor | None
    """None: the one that the broker has already, as a heartbeat."""
    batches: int = 0
    """The number of the first batches."""
    events: int = 0
    """The number of the first events of the batch after these; more than 0 if the cursor is inside that batch."""
    known: int = 0
    """The number of batches that there were."""


class Progress:
    """One partition of one stream."""

    def __init__(self, session: "Session", partition: StreamPartition) -> None:
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
        offset = offsets.inside(batch.before, batch.handled, end.offset)
        if offset is None:
            return None
        return Cursor(partition=end.partition, offset=offset, event_type=end.event_type, cursor_token=end.cursor_token)

    def skip(self, committed: str) -> None:
        """Skip events that came once more while their commit was on its way."""
        for batch in self.batches:
            batch.handled = max(batch.handled, offsets.passed(committed, len(batch), batch.cursor.offset))
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
