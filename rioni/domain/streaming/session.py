"""The state machine of one stream, of either API, which decides what to fetch, send and release, and when to end.

Source: reference low-level-streams#flushing, streams#checks.

It does no I/O and knows no clock. A stream of a subscription owns the partitions that `Coordinated` names, and may have
a limited number of events uncommitted; a low-level stream reads fixed partitions without commits. Where the contract
criticises the original, this differs: partitions take turns, the window counts delivered events, the time to commit
runs for each partition, a partition being handed over is not sent any more, and every end has a reason.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rioni.domain.streaming.batching import Visibility
from rioni.domain.streaming.messages import (
    Close,
    Commit,
    Coordinated,
    End,
    Fetch,
    Fetched,
    Input,
    NewEvents,
    Output,
    PartitionOwnership,
    Reason,
    Release,
    Run,
    Tick,
    VisibilityChanged,
)
from rioni.domain.streaming.parameters import StreamParameters
from rioni.domain.streaming.partition import StreamPartition
from rioni.domain.streaming.sending import Sender
from rioni.domain.subscriptions.dead_letters import PoisonSearch, Policy, tracking
from rioni.domain.timelines.position import EventTypePartition, TimelinePosition


FETCH_BYTES_MAX = 2**20
EVENT_BYTES_GUESS = 1_000
"""Assumed size of an event when deciding how much to fetch for a small window."""

AUTOCOMMIT_EVERY_S = 5.0
"""How often a stream commits hidden events at most while it runs."""

IDLE_COMMIT_TIMEOUTS = 2
"""A stream without any partition ends after this many commit timeouts."""


class StreamMachine:
    """Decides; `step` is deterministic and touches nothing but this object."""

    def __init__(
        self,
        parameters: StreamParameters,
        now_s: float,
        partitions: Mapping[EventTypePartition, TimelinePosition] | None = None,
        visibility: Visibility | None = None,
        policy: Policy | None = None,
    ) -> None:
        """Begin a stream.

        Args:
            parameters: its rules.
            now_s: monotonic time, as always here.
            partitions: for a low-level stream, its partitions with the last place read in each.
            visibility: the visibility of events for it.
            policy: the dead letter policy; None if uncommitted events are redelivered without limit.
        """
        self._parameters = parameters
        self._commits = parameters.max_uncommitted_events > 0
        self.memory_bytes_max = parameters.memory_bytes_max
        """How much may be buffered; can change at any time."""
        self.fallback_partition: tuple[EventTypePartition, TimelinePosition] | None = None
        """The partition and place for the message that explains the end if the stream owns no partition; can change
        too."""
        self.filtered = 0
        """Number of skipped events."""
        self.expired_unread = 0
        """How many events were gone before they could be read."""
        self._visibility = visibility or Visibility()
        self._policy = policy
        self._now_s = now_s
        self._autocommit_at_s = now_s
        self._timeout_at_s = now_s + parameters.stream_timeout_s
        self._partitions: dict[EventTypePartition, StreamPartition] = {}
        self._sender = Sender(parameters)
        self._round_robin = self._sender.round_robin
        self._idle_since_s = now_s
        self._committed = 0
        self._outputs: list[Output] = []
        self._closing: Reason | None = None
        self._closed = False
        for key, place in (partitions or {}).items():
            self._own(key, PartitionOwnership(place, requested_by_other=False))

    def step(self, message: Input, now_s: float) -> list[Output]:
        """Process one input at a point in time.

        Returns:
            What to do, in this order. All `Fetch`es together are answered by one `Fetched`, before any other step.
        """
        self._now_s = now_s
        self._outputs = self._sender.begin_step(now_s)
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
                self._autocommit()
                self._fetch()
        return self._outputs

    def _take_in(self, message: Input) -> None:
        match message:
            case Fetched(runs):
                self._receive(runs)
            case NewEvents() as new:
                self._note(new)
            case Coordinated(ownership):
                self._coordinate(ownership)
            case VisibilityChanged(visibility):
                self._visibility = visibility
                for partition in self._round_robin:
                    partition.drop_unsent()
            case End(reason, detail):
                self._end(reason, detail)
            case Tick():
                pass

    def _note(self, new: NewEvents) -> None:
        for key, place in new.newest.items():
            if partition := self._partitions.get(key):
                partition.newest = place
        for key, (last, count) in new.left_out.items():
            self._partitions[key].leave_out(last, count)

    def deadline_s(self) -> float:
        """When `Tick` is due at the latest, should nothing else happen before; infinite after the end."""
        return min(self._deadlines(), default=float("inf"))

    def fetched(self) -> dict[EventTypePartition, TimelinePosition]:
        """The place of the last event that was fetched from each partition."""
        return {key: partition.fetched for key, partition in self._partitions.items()}

    # --- Ownership and commits ---

    def _coordinate(self, ownership: Mapping[EventTypePartition, PartitionOwnership]) -> None:
        before = set(self._partitions)
        for key in self._partitions.keys() - ownership.keys():
            self._disown(key)
        for key, owned in ownership.items():
            partition = self._partitions.get(key)
            if partition and owned.committed < partition.committed:
                # The cursor was reset: restart the partition.
                self._disown(key)
                partition = None
            if partition is not None:
                self._go_on(partition, owned)
            elif owned.requested_by_other:
                self._outputs.append(Release(key))
            elif not self._closing:
                self._own(key, owned)
        if self._policy and before != self._partitions.keys():
            self._sender.tracking = tracking({key: ownership[key].failures for key in self._partitions})

    def _go_on(self, partition: StreamPartition, owned: PartitionOwnership) -> None:
        if owned.heartbeats != partition.heartbeats:
            partition.heartbeats = owned.heartbeats
            # Not while closing: others that wait for this stream to end must not wait longer for a commit.
            if not self._closing:
                partition.committed_at_s = self._now_s
        if owned.committed > partition.committed:
            count = partition.commit(owned.committed, self._now_s)
            self._committed += count
            self._sender.uncommitted -= count
            if partition.outstanding.count:
                self._sender.record_attempt(partition)
        if not owned.requested_by_other:
            partition.release_at_s = None
        elif partition.release_at_s is None:
            partition.stop(self._now_s + self._parameters.commit_timeout_s)

    def _own(self, key: EventTypePartition, owned: PartitionOwnership) -> None:
        place = owned.committed
        partition = self._partitions[key] = StreamPartition(key, place, self._now_s, owned.heartbeats)
        if self._policy:
            partition.search = PoisonSearch(owned.failures, place, self._policy, self._parameters.batch_limit)
        self._round_robin.append(partition)

    def _autocommit(self) -> None:
        if self._now_s >= self._autocommit_at_s and self._commit_filtered(self._round_robin):
            self._autocommit_at_s = self._now_s + AUTOCOMMIT_EVERY_S

    def _commit_filtered(self, partitions: Iterable[StreamPartition]) -> bool:
        """Commit hidden events that precede all events still to be sent or committed; return whether there are any."""
        cursors = [(partition.key, partition.autocommit()) for partition in partitions if partition.can_autocommit]
        if cursors:
            self._outputs.append(Commit(cursors))
        return bool(cursors)

    def _disown(self, key: EventTypePartition) -> None:
        partition = self._partitions.pop(key)
        self._round_robin.remove(partition)
        self._sender.uncommitted -= partition.outstanding.count
        if not self._partitions:
            self._idle_since_s = self._now_s

    def _release(self) -> None:
        for partition in list(self._partitions.values()):
            if partition.release_at_s is not None and (
                not partition.outstanding.count or self._now_s >= partition.release_at_s
            ):
                self._commit_filtered([partition])
                self._disown(partition.key)
                self._outputs.append(Release(partition.key))

    # --- Sending ---

    def _stream(self) -> None:
        parameters, now_s = self._parameters, self._now_s
        if self._commits and any(now_s >= due_s for due_s in self._commit_deadlines()):
            self._end(Reason.COMMIT_TIMEOUT)
        elif now_s >= self._timeout_at_s:
            self._sender.send_in_turn(everything=True)
            self._end(Reason.STREAM_TIMEOUT)
        else:
            self._sender.send_in_turn(everything=False)
            self._sender.guard_memory(self.memory_bytes_max)
            # Events whose partition moved to another stream before they were committed will never be committed here.
            if 0 < parameters.stream_limit <= self._sender.sent and not self._sender.uncommitted:
                self._end(Reason.STREAM_LIMIT)
            elif self._kept_alive_enough():
                self._end(Reason.KEEP_ALIVE_LIMIT)
            elif self._commits and not self._partitions and now_s >= self._idle_until_s():
                self._end(Reason.NO_PARTITION)

    def _kept_alive_enough(self) -> bool:
        limit = self._parameters.stream_keep_alive_limit
        return limit != 0 and bool(self._round_robin) and all(each.keep_alives >= limit for each in self._round_robin)

    # --- Fetching ---

    def _receive(self, runs: Sequence[Run]) -> None:
        for run in runs:
            partition = self._partitions.get(run.fetch.partition)
            # Events requested before a commit ahead, a release or the end are of no use any more.
            if (
                partition
                and not self._closing
                and partition.release_at_s is None
                and partition.fetched == run.fetch.after
            ):
                known = partition.skipped
                self.filtered += partition.receive(run, self._visibility, commits=self._commits)
                self.expired_unread += partition.skipped - known

    def _fetch(self) -> None:
        wished = min(self._parameters.batch_limit, self._sender.allowed)
        memory = self.memory_bytes_max
        if wished <= 0 or not self._round_robin or self._sender.buffered_bytes() >= memory:
            return
        bytes_max = max(
            1, min(FETCH_BYTES_MAX, memory // len(self._round_robin), self._sender.allowed * EVENT_BYTES_GUESS)
        )
        wanting = [
            partition
            for partition in self._round_robin
            if partition.buffer.count < wished
            and partition.release_at_s is None
            and not partition.blocked
            and (partition.newest is None or partition.fetched < partition.newest)
        ]
        if wanting and self._visibility.wanted:
            # PERF: a filter reads every event, which takes milliseconds for a chunk: one at a time, in turn.
            wanting, bytes_max = wanting[:1], 1
            self._round_robin.remove(wanting[0])
            self._round_robin.append(wanting[0])
        self._outputs += [Fetch(partition.key, partition.fetched, bytes_max) for partition in wanting]

    # --- Ending ---

    def _end(self, reason: Reason, detail: str = "") -> None:
        if self._closing and reason.waits:
            return
        text = detail or reason.value.format(count=self._committed)
        if not self._closing and text and (self._commits or not reason.silent_at_low_level):
            self._sender.say(text, self.fallback_partition)
        self._closing = reason
        for partition in self._partitions.values():
            partition.drop_unsent()
        if not (reason.waits and self._commits):
            self._close(reason)

    def _close(self, reason: Reason) -> None:
        if reason.orderly:
            self._commit_filtered(self._round_robin)
        self._closed = True
        self._outputs.append(Close(reason))

    def _finish(self) -> None:
        """Close as soon as nothing is left that can be committed in time."""
        if not self._closed and all(self._now_s >= due_s for due_s in self._commit_deadlines(releasing=True)):
            assert self._closing
            self._close(self._closing)

    # --- Deadlines ---

    def _deadlines(self) -> Iterator[float]:
        if self._closed:
            return
        for partition in self._round_robin:
            if partition.release_at_s is not None:
                yield partition.release_at_s
            elif not self._closing:
                yield partition.sent_at_s + self._parameters.batch_flush_timeout_s
                if partition.dead_letter:
                    yield partition.dead_letter_at_s
        if self._commits:
            yield from self._commit_deadlines(releasing=bool(self._closing))
        if not self._closing:
            yield self._timeout_at_s
            if any(partition.can_autocommit for partition in self._round_robin):
                yield self._autocommit_at_s
            if self._commits and not self._partitions:
                yield self._idle_until_s()

    def _commit_deadlines(self, *, releasing: bool = False) -> Iterator[float]:
        for partition in self._round_robin:
            if partition.outstanding.count and (releasing or partition.release_at_s is None):
                yield partition.committed_at_s + self._parameters.commit_timeout_s

    def _idle_until_s(self) -> float:
        return self._idle_since_s + IDLE_COMMIT_TIMEOUTS * self._parameters.commit_timeout_s
