"""One partition that a stream reads: how far it is fetched, sent and committed, and since when."""

from rioni.domain.cursor import Place
from rioni.domain.ports import EventTypePartition
from rioni.domain.streaming.batching import Buffer, Outstanding
from rioni.domain.streaming.messages import Run


class StreamPartition:
    """A partition that the stream reads."""

    def __init__(self, key: EventTypePartition, committed: Place, now_s: float) -> None:
        self.key = key
        self.committed = self.sent = self.fetched = committed
        self.newest: Place | None = None
        """None until it is known."""
        self.buffer = Buffer()
        self.outstanding = Outstanding()
        self.sent_at_s = now_s
        self.committed_at_s = now_s
        """Of the last commit that advanced, or of the first event sent after everything had been committed."""
        self.release_at_s: float | None = None
        """Being handed over: released when all is committed, at this time at the latest."""
        self.keep_alives = 0
        self.skipped = 0
        """Events lost to retention, still to be reported."""
        self.span_start_ms: int | None = None

    def stop(self, release_at_s: float) -> None:
        """Stop fetching and forget what was not sent."""
        self.release_at_s = release_at_s
        self.buffer.clear()
        self.fetched = self.sent

    def receive(self, run: Run) -> None:
        """Take in what was fetched."""
        if not run.chunks:
            self.newest = self.fetched
            return
        expected = self.fetched.position + 1 if run.order == self.fetched.order else 0
        first = run.chunks[0].first
        if first > expected:
            self.skipped += first - expected
            if not self.buffer.count:
                self.sent = Place(run.order, first - 1)
        self.buffer.add(run.order, run.chunks, expected)
        self.fetched = Place(run.order, run.chunks[-1].next - 1)

    def commit(self, place: Place, now_s: float) -> int:
        """Take note of a committed place, which may be ahead of what was sent; return the number of events."""
        if place > self.sent:
            self.sent = place
            self.fetched = max(self.fetched, place)
            self.buffer.drop(place)
        self.committed, self.committed_at_s = place, now_s
        return self.outstanding.commit(place)

    def span_due(self, span_ms: int) -> int:
        """How many events make up a complete `batch_timespan`; 0 while no later event shows that it is complete."""
        if self.span_start_ms is None:
            self.span_start_ms = self.buffer.first_recorded_at_ms()
        return 0 if self.span_start_ms is None else self.buffer.complete_before(self.span_start_ms + span_ms)
