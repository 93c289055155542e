"""One partition of a stream: its fetched, sent and committed positions, with timestamps."""

from typing import TYPE_CHECKING

from rioni.domain.streaming.batching import Buffer, Ranges, Slice, Visibility
from rioni.domain.streaming.messages import Run
from rioni.domain.timelines.position import EventTypePartition, TimelinePosition


if TYPE_CHECKING:
    from rioni.domain.subscriptions.dead_letters import PoisonSearch


class StreamPartition:
    """A partition that the stream reads."""

    __slots__ = (
        "buffer",
        "committed",
        "committed_at_s",
        "dead_letter",
        "dead_letter_at_s",
        "fetched",
        "filtered",
        "heartbeats",
        "keep_alives",
        "key",
        "left_out",
        "newest",
        "outstanding",
        "release_at_s",
        "search",
        "sent",
        "sent_at_s",
        "skipped",
        "span_start_ms",
    )

    def __init__(self, key: EventTypePartition, committed: TimelinePosition, now_s: float, heartbeats: int = 0) -> None:
        self.key = key
        self.committed = self.sent = self.fetched = committed
        self.newest: TimelinePosition | None = None
        """None until it is known."""
        self.buffer = Buffer()
        self.outstanding = Ranges()
        """Sent and not committed."""
        self.filtered = Ranges()
        """Hidden events: fetched, never sent, and not committed; only of a stream that commits."""
        self.sent_at_s = now_s
        self.committed_at_s = now_s
        """The time of the last commit or heartbeat, or of the first event sent after everything had been committed."""
        self.heartbeats = heartbeats
        self.release_at_s: float | None = None
        """The time at which a partition being handed over is released at the latest, or once all is committed; else
        None."""
        self.keep_alives = 0
        self.skipped = 0
        """Events lost to retention, still to be reported."""
        self.left_out = 0
        """Events that were not read, since there were too many; still to be reported."""
        self.span_start_ms: int | None = None
        self.search: PoisonSearch | None = None
        """The poison event search, if the subscription has a dead letter policy."""
        self.dead_letter: Slice | None = None
        """A dead letter that is not committed yet."""
        self.dead_letter_at_s = now_s
        """When dead-lettering is tried next."""

    @property
    def searching(self) -> bool:
        """Whether events are sent one at a time."""
        return self.search is not None and self.search.until is not None

    @property
    def blocked(self) -> bool:
        """Whether this partition waits for a commit before anything can be sent."""
        return self.dead_letter is not None or (self.searching and self.outstanding.count > 0)

    def stop(self, release_at_s: float) -> None:
        """Stop fetching and drop unsent events."""
        self.release_at_s = release_at_s
        self.drop_unsent()

    def drop_unsent(self) -> None:
        """Drop unsent events, as if they had not been fetched."""
        if first := self.buffer.first:
            self.buffer.clear()
            self.filtered.cut(first)
            self.fetched = TimelinePosition(first.order, first.position - 1)

    def receive(self, run: Run, visibility: Visibility, *, commits: bool) -> int:
        """Buffer fetched events; return the number of hidden ones.

        Args:
            run: the answer to the last fetch.
            visibility: decides which events to send.
            commits: whether to track hidden events for commits.
        """
        if not run.chunks:
            self.newest = self.fetched
            return 0
        expected = self.fetched.position + 1 if run.order == self.fetched.order else 0
        first = run.chunks[0].first
        if skipped := run.expired_unread + max(0, first - expected):
            self.skipped += skipped
            if not self.buffer.count:
                self.sent = TimelinePosition(run.order, first - 1)
        filtered = self.buffer.add(run.order, run.chunks, expected, visibility)
        if commits:
            for start, stop in filtered:
                self.filtered.add(run.order, start, stop)
        self.fetched = TimelinePosition(run.order, run.chunks[-1].next - 1)
        return sum(stop - start for start, stop in filtered)

    def leave_out(self, last: TimelinePosition, count: int) -> None:
        """Skip events up to a place without reading them."""
        self.fetched = last
        self.left_out += count

    def pass_hidden(self) -> None:
        """Move past the hidden events that follow the last event sent, if no event waits."""
        if not self.buffer.count:
            self.sent = self.fetched

    def commit(self, place: TimelinePosition, now_s: float) -> int:
        """Take note of a committed place, which may be ahead of the sent events; return the number of events."""
        if place > self.sent:
            self.sent = place
            self.fetched = max(self.fetched, place)
            self.buffer.drop(place)
        self.committed = place
        if self.search is not None:
            self.search.commit(place)
            if self.dead_letter is not None and place >= self.dead_letter.last:
                self.dead_letter = None
        self.filtered.commit(place)
        count = self.outstanding.commit(place)
        if count:
            # Not if only hidden events were committed: that shows nothing about the client.
            self.committed_at_s = now_s
        return count

    @property
    def can_autocommit(self) -> bool:
        """Whether hidden events come before everything that is still to be sent or committed by the client."""
        first = self.filtered.first if self.filtered.count else None
        if first is None or self.dead_letter:
            # With a dead letter everything before it is committed.
            return False
        awaited = self.outstanding.first or self.buffer.first
        return awaited is None or first < awaited

    def autocommit(self) -> TimelinePosition:
        """The last of the hidden events that come before everything that is still awaited; call it if there are."""
        place = self.filtered.take_before(self.outstanding.first or self.buffer.first)
        assert place is not None
        return place

    def span_due(self, span_ms: int) -> int:
        """How many events make up a complete `batch_timespan`; 0 while no later event shows that it is complete."""
        if self.span_start_ms is None:
            self.span_start_ms = self.buffer.first_recorded_at_ms()
        return 0 if self.span_start_ms is None else self.buffer.complete_before(self.span_start_ms + span_ms)
