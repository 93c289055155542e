"""The state machine of one stream, of either API: what to fetch, send, release, and when to end (consumption 4.5, 8).

It does no I/O and knows no clock. A stream of a subscription owns the partitions that `Coordinated` names, and may have
only so many events uncommitted; a low-level stream reads fixed partitions without commits. Where the contract
criticises the original, this differs: partitions take turns, the window counts delivered events, the time to commit
runs for each partition, what is being handed over is not sent any more, and every end has a reason.
"""

import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from rioni.domain.cursor import Place
from rioni.domain.ports import EventTypePartition
from rioni.domain.streaming.batching import Slice
from rioni.domain.streaming.messages import (
    Arrived,
    Close,
    Coordinated,
    End,
    Fetch,
    Fetched,
    Holding,
    Input,
    Output,
    Reason,
    Release,
    Run,
    Send,
    Tick,
)
from rioni.domain.streaming.parameters import StreamParameters
from rioni.domain.streaming.partition import StreamPartition


FETCH_BYTES_MAX = 2**20
EVENT_BYTES_GUESS = 1_000
"""What one event is taken for when deciding how much to fetch for a small window."""

OVERFLOW = "Stream parameters are causing overflow"
IDLE_COMMIT_TIMEOUTS = 2
"""A stream without any partition ends after so many commit timeouts."""


class StreamMachine:
    """Decides; `step` is deterministic and touches nothing but this object."""

    def __init__(
        self, parameters: StreamParameters, now_s: float, partitions: Mapping[EventTypePartition, Place] | None = None
    ) -> None:
        """Begin a stream.

        Args:
            parameters: its rules.
            now_s: monotonic time, as always here.
            partitions: for a low-level stream what it reads, and the last place read in each.
        """
        self._parameters = parameters
        self._commits = parameters.max_uncommitted_events > 0
        self._now_s = now_s
        self._timeout_at_s = now_s + parameters.stream_timeout_s
        self._partitions: dict[EventTypePartition, StreamPartition] = {}
        self._turns: deque[StreamPartition] = deque()
        self._idle_since_s = now_s
        self._started = not self._commits
        self._sent = self._committed = self._uncommitted = 0
        self._outputs: list[Output] = []
        self._closing: Reason | None = None
        self._closed = False
        for key, place in (partitions or {}).items():
            self._own(key, place)

    def step(self, message: Input, now_s: float) -> list[Output]:
        """Go on: what happened, and when.

        Returns:
            What to do, in this order. All `Fetch`es together are answered by one `Fetched`, before any other step.
        """
        self._now_s = now_s
        self._outputs = []
        if self._closed:
            return []
        self._take_in(message)
        if not self._closing:
            self._stream()
        if not self._closed:
            self._release()
            if self._closing:
                self._finish()
            else:
                self._fetch()
        return self._outputs

    def _take_in(self, message: Input) -> None:
        match message:
            case Fetched(runs):
                self._receive(runs)
            case Arrived(newest):
                for key, place in newest.items():
                    if partition := self._partitions.get(key):
                        partition.newest = place
            case Coordinated(holdings):
                self._coordinate(holdings)
            case End(reason, detail):
                self._end(reason, detail)
            case Tick():
                pass

    def deadline_s(self) -> float:
        """When `Tick` is due at the latest, should nothing else happen before; infinite after the end."""
        return min(self._deadlines(), default=float("inf"))

    # --- who owns what, and how far it is committed ---

    def _coordinate(self, holdings: Mapping[EventTypePartition, Holding]) -> None:
        for key in self._partitions.keys() - holdings.keys():
            self._disown(key)
        for key, (committed, wanted) in holdings.items():
            partition = self._partitions.get(key)
            if partition and committed < partition.committed:
                # Somebody has set the cursor back: begin anew.
                self._disown(key)
                partition = None
            if partition is not None:
                self._go_on(partition, committed, wanted=wanted)
            elif wanted:
                self._outputs.append(Release(key))
            elif not self._closing:
                self._own(key, committed)

    def _go_on(self, partition: StreamPartition, committed: Place, *, wanted: bool) -> None:
        if committed > partition.committed:
            count = partition.commit(committed, self._now_s)
            self._committed += count
            self._uncommitted -= count
        if not wanted:
            partition.release_at_s = None
        elif partition.release_at_s is None:
            partition.stop(self._now_s + self._parameters.commit_timeout_s)

    def _own(self, key: EventTypePartition, place: Place) -> None:
        partition = self._partitions[key] = StreamPartition(key, place, self._now_s)
        self._turns.append(partition)

    def _disown(self, key: EventTypePartition) -> None:
        partition = self._partitions.pop(key)
        self._turns.remove(partition)
        self._uncommitted -= partition.outstanding.count
        if not self._partitions:
            self._idle_since_s = self._now_s

    def _release(self) -> None:
        for partition in list(self._partitions.values()):
            if partition.release_at_s is not None and (
                not partition.outstanding.count or self._now_s >= partition.release_at_s
            ):
                self._disown(partition.key)
                self._outputs.append(Release(partition.key))

    # --- sending ---

    def _stream(self) -> None:
        parameters, now_s = self._parameters, self._now_s
        if self._commits and any(now_s >= due_s for due_s in self._commit_deadlines()):
            self._end(Reason.COMMIT_TIMEOUT)
        elif now_s >= self._timeout_at_s:
            self._send_in_turn(everything=True)
            self._end(Reason.STREAM_TIMEOUT)
        else:
            self._send_in_turn(everything=False)
            self._guard_memory()
            if parameters.stream_limit and self._counted() >= parameters.stream_limit:
                self._end(Reason.STREAM_LIMIT)
            elif self._kept_alive_enough():
                self._end(Reason.KEEP_ALIVE_LIMIT)
            elif self._commits and not self._partitions and now_s >= self._idle_until_s():
                self._end(Reason.NO_PARTITION)

    def _send_in_turn(self, *, everything: bool) -> None:
        """Let the partitions take turns, a batch each, until none has one to send."""
        idle = 0
        while idle < len(self._turns):
            partition = self._turns[0]
            self._turns.rotate(-1)
            idle = 0 if self._send_batch(partition, everything=everything) else idle + 1

    def _send_batch(self, partition: StreamPartition, *, everything: bool) -> bool:
        """Send a batch if one is due; say whether events were sent."""
        if partition.release_at_s is not None:
            return False
        parameters = self._parameters
        queued = partition.buffer.count
        count = max(0, min(parameters.batch_limit, self._allowed()))
        if parameters.batch_timespan_s and count and (due := partition.span_due(parameters.batch_timespan_s * 1_000)):
            self._send_span(partition, min(due, count))
            return True
        if 0 < count <= queued or (everything and count and queued):
            self._send(partition, min(count, queued))
            return True
        if self._now_s >= partition.sent_at_s + parameters.batch_flush_timeout_s:
            count = min(count, queued)
            self._send(partition, count)
            return count > 0
        return False

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
                    partition.committed_at_s = self._now_s
                self._uncommitted += partition.outstanding.add(slices)
            partition.sent = slices[-1].last
            partition.span_start_ms = None
            partition.keep_alives = 0
            self._sent += count
        else:
            partition.keep_alives += 1
        partition.sent_at_s = self._now_s
        if not self._started or partition.skipped:
            info = "; ".join(filter(None, (self._news(partition), info)))
        self._outputs.append(Send(partition.key, partition.sent, slices, info))
        return slices

    def _news(self, partition: StreamPartition) -> str:
        """What is said with the first batch, and with the first one after a loss."""
        skipped = f"skipped events due to retention time passed, count: {partition.skipped}"
        news = ["Stream started"] * (not self._started) + [skipped] * bool(partition.skipped)
        self._started = True
        partition.skipped = 0
        return "; ".join(news)

    def _guard_memory(self) -> None:
        while self._buffered_bytes() > self._parameters.memory_bytes_max and self._allowed() > 0:
            heaviest = max(self._turns, key=lambda partition: partition.buffer.bytes)
            self._send(heaviest, min(heaviest.buffer.count, self._parameters.batch_limit, self._allowed()), OVERFLOW)

    def _allowed(self) -> int:
        """How many events may be sent now."""
        parameters = self._parameters
        allowed = parameters.max_uncommitted_events - self._uncommitted if self._commits else sys.maxsize
        return min(allowed, parameters.stream_limit - self._sent) if parameters.stream_limit else allowed

    def _counted(self) -> int:
        """What `stream_limit` is compared with."""
        return self._committed if self._commits else self._sent

    def _kept_alive_enough(self) -> bool:
        limit = self._parameters.stream_keep_alive_limit
        return limit > 0 and bool(self._turns) and all(each.keep_alives >= limit for each in self._turns)

    # --- fetching ---

    def _receive(self, runs: Sequence[Run]) -> None:
        for run in runs:
            partition = self._partitions.get(run.fetch.partition)
            # What was asked for before a commit ahead, a release or the end is of no use any more.
            if (
                partition
                and not self._closing
                and partition.release_at_s is None
                and partition.fetched == run.fetch.after
            ):
                partition.receive(run)

    def _fetch(self) -> None:
        wished = min(self._parameters.batch_limit, self._allowed())
        memory = self._parameters.memory_bytes_max
        if wished <= 0 or not self._turns or self._buffered_bytes() >= memory:
            return
        bytes_max = min(FETCH_BYTES_MAX, memory // len(self._turns), self._allowed() * EVENT_BYTES_GUESS)
        for partition in self._turns:
            if (
                partition.buffer.count < wished
                and partition.release_at_s is None
                and (partition.newest is None or partition.fetched < partition.newest)
            ):
                self._outputs.append(Fetch(partition.key, partition.fetched, bytes_max))

    def _buffered_bytes(self) -> int:
        return sum([partition.buffer.bytes for partition in self._turns])

    # --- ending ---

    def _end(self, reason: Reason, detail: str = "") -> None:
        if self._closing and reason.waits:
            return
        text = detail or reason.value.format(count=self._committed)
        if not self._closing and text and self._turns and (self._commits or not reason.silent_at_low_level):
            self._say(text)
        self._closing = reason
        for partition in self._partitions.values():
            partition.buffer.clear()
        self._closed = not (reason.waits and self._commits)
        if self._closed:
            self._outputs.append(Close(reason))

    def _say(self, text: str) -> None:
        partition = self._turns[0]
        if not self._started:
            self._send(partition, 0)
        self._outputs.append(Send(partition.key, partition.sent, (), text))

    def _finish(self) -> None:
        """Close as soon as nothing is left that can be committed in time."""
        if not self._closed and all(self._now_s >= due_s for due_s in self._commit_deadlines(releasing=True)):
            self._closed = True
            assert self._closing
            self._outputs.append(Close(self._closing))

    # --- deadlines ---

    def _deadlines(self) -> Iterator[float]:
        if self._closed:
            return
        for partition in self._turns:
            if partition.release_at_s is not None:
                yield partition.release_at_s
            elif not self._closing:
                yield partition.sent_at_s + self._parameters.batch_flush_timeout_s
        if self._commits:
            yield from self._commit_deadlines(releasing=bool(self._closing))
        if not self._closing:
            yield self._timeout_at_s
            if self._commits and not self._partitions:
                yield self._idle_until_s()

    def _commit_deadlines(self, *, releasing: bool = False) -> Iterator[float]:
        for partition in self._turns:
            if partition.outstanding.count and (releasing or partition.release_at_s is None):
                yield partition.committed_at_s + self._parameters.commit_timeout_s

    def _idle_until_s(self) -> float:
        return self._idle_since_s + IDLE_COMMIT_TIMEOUTS * self._parameters.commit_timeout_s
