"""Sending of a stream: round-robin over partitions, batch sizes and debug information.

Source: reference streams#json-batches, streams#when-a-batch-is-sent, streams#batch-timespan.
"""

import sys
from collections.abc import Sequence

from rioni.domain.streaming.batching import Slice
from rioni.domain.streaming.messages import Output, RecordDeliveryAttempt, Send, SendToDeadLetterQueue
from rioni.domain.streaming.parameters import StreamParameters
from rioni.domain.streaming.partition import StreamPartition
from rioni.domain.subscriptions.dead_letters import PoisonSearch
from rioni.domain.timelines.position import EventTypePartition, TimelinePosition


OVERFLOW = "Stream parameters are causing overflow"

DEAD_LETTER_RETRY_S = 5.0
"""Interval at which dead-lettering of an event is retried until it is committed."""


class Sender:
    """Sends batches round-robin over partitions, within the window of the stream."""

    __slots__ = (
        "_commits",
        "_parameters",
        "_started",
        "now_s",
        "outputs",
        "round_robin",
        "sent",
        "tracking",
        "uncommitted",
    )

    def __init__(self, parameters: StreamParameters) -> None:
        """Begin without partitions."""
        self._parameters = parameters
        self._commits = parameters.max_uncommitted_events > 0
        self._started = not self._commits
        self.round_robin: list[StreamPartition] = []
        """The partitions that are read, the longest waiting first."""
        self.sent = self.uncommitted = 0
        """How many events."""
        self.tracking = ""
        """Failure messages not yet sent."""
        self.begin_step(0.0)

    def begin_step(self, now_s: float) -> list[Output]:
        """Begin another step; return the list to which its outputs will be appended."""
        self.now_s = now_s
        self.outputs: list[Output] = []
        return self.outputs

    @property
    def allowed(self) -> int:
        """How many events may be sent now."""
        parameters = self._parameters
        allowed = parameters.max_uncommitted_events - self.uncommitted if self._commits else sys.maxsize
        return min(allowed, parameters.stream_limit - self.sent) if parameters.stream_limit else allowed

    def send_in_turn(self, *, everything: bool) -> None:
        """Send a batch from each partition in turn, until none has one to send."""
        idle = 0
        while idle < len(self.round_robin):
            partition = self.round_robin.pop(0)
            self.round_robin.append(partition)
            idle = 0 if self._send_batch(partition, everything=everything) else idle + 1

    def buffered_bytes(self) -> int:
        """Bytes of buffered events."""
        return sum([partition.buffer.bytes for partition in self.round_robin])

    def guard_memory(self, bytes_max: int) -> None:
        """Send early if buffered events exceed the memory limit."""
        while self.buffered_bytes() > bytes_max and self.allowed > 0:
            heaviest = max(self.round_robin, key=lambda partition: partition.buffer.bytes)
            self._send(heaviest, min(heaviest.buffer.count, self._parameters.batch_limit, self.allowed), OVERFLOW)

    def say(self, text: str, fallback_partition: tuple[EventTypePartition, TimelinePosition] | None) -> None:
        """Send a message on any of the partitions; without partitions, on the fallback partition at its place."""
        if self.round_robin:
            partition = self.round_robin[0]
            if not self._started:
                self._send(partition, 0)
            self.outputs.append(Send(partition.key, partition.sent, (), text))
        elif fallback_partition:
            self.outputs.append(Send(*fallback_partition, (), text))

    def record_attempt(self, partition: StreamPartition) -> None:
        """Output an attempt record before sending, if required and not recorded yet."""
        if partition.search is not None and partition.search.must_record(partition.committed):
            self.outputs.append(
                RecordDeliveryAttempt(partition.key, partition.sent, partition.search.record(partition.sent))
            )

    def _send_batch(self, partition: StreamPartition, *, everything: bool) -> bool:
        """Send a batch if one is due; return whether events were sent."""
        if partition.release_at_s is not None:
            return False
        parameters = self._parameters
        if partition.search is not None and partition.searching:
            return self._send_alone(partition, partition.search)
        queued = partition.buffer.count
        count = max(0, min(parameters.batch_limit, self.allowed))
        if parameters.batch_timespan_s and count and (due := partition.span_due(parameters.batch_timespan_s * 1_000)):
            self._send_span(partition, min(due, count))
            return True
        if 0 < count <= queued or (everything and count and queued):
            self._send(partition, min(count, queued))
            return True
        if self.now_s >= partition.sent_at_s + parameters.batch_flush_timeout_s:
            count = min(count, queued)
            self._send(partition, count)
            return count > 0
        return False

    def _send_alone(self, partition: StreamPartition, search: PoisonSearch) -> bool:
        """Send one event, or dead-letter it, once the one before is committed; return whether it was sent."""
        first = partition.buffer.first
        if first and search.suspect and not partition.blocked:
            if first == search.suspect:
                partition.dead_letter = partition.buffer.take(1)[0]
                partition.dead_letter_at_s = self.now_s
            else:
                search.clear()
        if partition.dead_letter and self.now_s >= partition.dead_letter_at_s:
            partition.dead_letter_at_s = self.now_s + DEAD_LETTER_RETRY_S
            self.outputs.append(SendToDeadLetterQueue(partition.key, partition.dead_letter))
        sends = bool(first) and not partition.blocked and self.allowed > 0
        if sends or self.now_s >= partition.sent_at_s + self._parameters.batch_flush_timeout_s:
            self._send(partition, int(sends))
        # NOTE: so that events that wait for a commit take no memory; they are fetched again after that.
        if partition.blocked:
            partition.drop_unsent()
        return sends

    def _send_span(self, partition: StreamPartition, count: int) -> None:
        start_ms = partition.span_start_ms
        assert start_ms is not None
        end_ms = start_ms + self._parameters.batch_timespan_s * 1_000
        last = self._send(partition, count)[-1]
        rest_ms = partition.buffer.first_recorded_at_ms()
        within = rest_ms is not None and rest_ms < end_ms
        partition.span_start_ms = start_ms if within else max(end_ms, last.chunk.recorded_at_ms)

    def _send(self, partition: StreamPartition, count: int, info: str = "") -> Sequence[Slice]:
        slices = partition.buffer.take(count)
        if slices:
            if self._commits:
                if not partition.outstanding.count:
                    partition.committed_at_s = self.now_s
                self.uncommitted += count
                for order, _, start, stop in slices:
                    partition.outstanding.add(order, start, stop)
            partition.sent = slices[-1].last
            self.record_attempt(partition)
            partition.span_start_ms = None
            partition.keep_alives = 0
            self.sent += count
        else:
            partition.keep_alives += 1
            if not self._commits:
                partition.pass_hidden()
        partition.sent_at_s = self.now_s
        if not self._started or partition.skipped:
            info = "; ".join(filter(None, (self._news(partition), info)))
        if self.tracking:
            info, self.tracking = "; ".join(filter(None, (info, self.tracking))), ""
        self.outputs.append(Send(partition.key, partition.sent, slices, info, partition.left_out))
        partition.left_out = 0
        return slices

    def _news(self, partition: StreamPartition) -> str:
        """The messages for the first batch, and for the first one after a loss."""
        skipped = f"skipped events due to retention time passed, count: {partition.skipped}"
        news = ["Stream started"] * (not self._started) + [skipped] * bool(partition.skipped)
        self._started = True
        partition.skipped = 0
        return "; ".join(news)
