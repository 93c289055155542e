"""One stream from its consumer's view: its partitions, when data came, when it may commit, and its end."""

from collections.abc import Mapping

from rioni.client.consumption.events import StreamPartition
from rioni.client.consumption.progress import Progress


SILENT_FLUSHES = 3
SILENT_MARGIN_S = 10.0
"""A partition is gone after `SILENT_FLUSHES` flush time-outs, and this margin, without a sign of it."""
BROKEN_MARGIN_S = 30.0
"""A connection is broken after the flush time-out and this margin without a sign of any partition."""


class Session:
    """The state of one stream, from its opening until everything that it sent is committed or dropped."""

    def __init__(self, stream_id: str, committed: Mapping[StreamPartition, str], now_s: float, flush_s: float) -> None:
        self.stream_id, self.committed = stream_id, committed
        self.partitions: dict[StreamPartition, Progress] = {}
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
        """Whether another stream is to be opened, since events of a lost partition have come."""
        self.said = ""
        """The last information that came in it."""
        self.not_before_s = now_s
        """The earliest time of the next commit."""
        self.committed_s = now_s
        """The time at which the last commit was answered."""
        self._flush_s = flush_s
        self._clock_s = self._checked_s = 0.0
        self._heard_s: float | None = None

    def hear(self, progress: Progress | None, now_s: float) -> None:
        """Note that something was received.

        The clock of the session stops while the client does not get to read, so that a connection with unread
        data does not seem silent.
        """
        if self._heard_s is not None:
            self._clock_s += min(now_s - self._heard_s, self._flush_s)
        self._heard_s = now_s
        if progress is not None:
            progress.heard_s = self._clock_s

    def silent(self) -> list[Progress]:
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
