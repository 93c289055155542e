"""The state of a consumer: which events were received, are in hand, may be committed, and when.

Nothing here waits or speaks to the broker, and times are arguments, so that the clients for threads and for asyncio
share it. Each method must be called while no other one runs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

import msgspec

from rioni.client.consumption.event_values import Types, decoder, events_passed, is_redelivery
from rioni.client.consumption.events import Cut, EventBatch, PartitionProgress, StreamPartition, StreamSession
from rioni.client.consumption.lanes import Assigned, Item, Lanes
from rioni.client.consumption.options import Options
from rioni.wire.events import Batch, Cursor


ENDED = "the stream has ended"
SILENT = "the broker sends nothing of it any more"
STOPPED = "the consumer stops"
ELSEWHERE = "it was with another stream"
FAILED = "an event could not be handled"
RETRY_PAUSE_S = 1.0
"""Seconds to wait after a commit that could not be made."""
IDLE_S = 60.0
"""The longest wait if nothing is due."""


class Commit(NamedTuple):
    """A commit to make for a stream."""

    session: StreamSession
    cuts: Sequence[Cut]
    sent_s: float

    def one_by_one(self) -> "Iterator[Commit]":
        """Return each cut by itself, without those of partitions that were lost until it is its turn.

        The broker may have given such a partition back, with the same events once more.
        """
        for cut in self.cuts:
            if not cut.progress.revoked:
                yield self._replace(cuts=[cut])


class ConsumptionState:
    """The sessions of a consumer, and the items that wait to be handled.

    Args:
        options: of the consumer.
        types: those that events are decoded to, see `decoder`.
        commit: called when the application reports that the first events of a batch are handled, with batch and number.
    """

    def __init__(self, options: Options, types: Types, commit: Callable[[EventBatch[Any], int], None]) -> None:
        self._options, self._decoder, self._commit = options, decoder(types), commit
        self._lanes = Lanes()
        self._sessions: list[StreamSession] = []
        self._stopped = False
        self.urgent = False
        """Whether all that is handled is to be committed at once."""
        self._over: list[str] = []

    # --- Input from streams ---

    def opened(self, stream_id: str, committed: Mapping[StreamPartition, str], now_s: float) -> StreamSession:
        """Note that a stream was opened.

        Args:
            stream_id: its id.
            committed: offsets that were committed before the stream brought anything, if they are known.
            now_s: the time.
        """
        session = StreamSession(stream_id, committed, now_s, self._options.batch_flush_timeout)
        self._sessions.append(session)
        return session

    def received(self, session: StreamSession, batch: Batch, now_s: float) -> float:
        """Handle the arrival of a batch; returns when something is due because of it."""
        partition = StreamPartition(batch.cursor.event_type or "", batch.cursor.partition)
        session.said = str((batch.info or {}).get("debug", ""))
        progress = None
        if partition in session.lost:
            session.stale |= bool(batch.events)
        else:
            progress = self._progress_of(session, partition, batch)
        session.hear(progress, now_s)
        if progress is not None:
            if events := self._not_committed(session, partition, batch):
                self._deliver(progress, batch.cursor, events, now_s)
            progress.seen = batch.cursor.offset
        for each in session.silent():
            self._revoke(each, SILENT)
        return min(self.progress_due_at_s(progress) if progress else inf, self._broken_at_s(session))

    def _progress_of(
        self, session: StreamSession, partition: StreamPartition, batch: Batch
    ) -> PartitionProgress | None:
        progress = session.partitions.get(partition)
        if progress and batch.events and is_redelivery(progress.seen, len(batch.events), batch.cursor.offset):
            self._revoke(progress, ELSEWHERE)
            progress = None
        # The last batch of a stream may name a partition that the stream never had.
        if progress is None and (batch.events or not batch.info):
            progress = self._assign(session, partition)
        return progress

    @staticmethod
    def _not_committed(session: StreamSession, partition: StreamPartition, batch: Batch) -> Sequence[msgspec.Raw]:
        """The events of a batch without those whose commit was answered while they were on their way once more."""
        committed = session.acknowledged.get(partition)
        if committed is None or not batch.events:
            return batch.events
        return batch.events[events_passed(committed, len(batch.events), batch.cursor.offset) :]

    def _assign(self, session: StreamSession, partition: StreamPartition) -> PartitionProgress:
        for other in list(self._sessions):
            if former := other.partitions.get(partition):
                self._revoke(former, ENDED)
                self._settle(other)
        progress = session.partitions[partition] = PartitionProgress(session, partition)
        progress.failed = self._stopped
        if not self._stopped:
            self._lanes.add(Assigned(progress))
        return progress

    def _deliver(self, progress: PartitionProgress, cursor: Cursor, json: Sequence[msgspec.Raw], now_s: float) -> None:
        decode = self._decoder(progress.partition.event_type)
        events = EventBatch(cursor, json, progress=progress, decode=decode, commit=self._commit)
        progress.received(events, now_s)
        if not progress.failed:
            self._lanes.add(events)

    def closed(self, session: StreamSession, now_s: float, *, orderly: bool) -> None:
        """Note that a stream has ended; its events can still be committed, as long as the broker remembers it.

        Args:
            session: the stream.
            now_s: the time.
            orderly: whether everything was received that the broker sent.
        """
        session.open, session.ended_s = False, now_s
        session.closes |= not orderly
        self._settle(session)

    def has_room(self, session: StreamSession) -> bool:
        """Whether a stream may be read on; it always may if the broker keeps to the window."""
        return session.waiting <= 2 * self._options.max_uncommitted_events + self._options.batch_limit

    def broken(self, now_s: float) -> list[StreamSession]:
        """Streams to close: those silent for too long, or for which it is unknown what is still to be delivered."""
        return [session for session in self._sessions if now_s >= self._broken_at_s(session)]

    @staticmethod
    def _broken_at_s(session: StreamSession) -> float:
        return 0.0 if session.stale and session.open else session.broken_at_s

    # --- Calls of the application ---

    def take(self) -> Item | None:
        """The next thing to do, if there is one; it is in hand until `release`."""
        return self._lanes.take()

    @property
    def ready(self) -> int:
        """The number of things that could be done at the same time."""
        return self._lanes.ready

    def release(self, item: Item) -> None:
        """Release an item that was in hand, and is done or was left."""
        self._lanes.release(item)
        if isinstance(item, EventBatch):
            item.progress.count(item)
        self._settle(item.progress.session)

    def handled(self, batch: EventBatch[Any], count: int) -> bool:
        """The first events of a batch are handled, and all before them; returns whether that was news."""
        return batch.progress.handled_until(batch, count)

    def fail(self, batch: EventBatch[Any]) -> StreamSession | None:
        """An event was not handled, so nothing after it may be; returns the stream if it must be closed for that."""
        if batch.progress.revoked:
            return None
        session = batch.progress.session
        session.closes = True
        self._abandon(batch.progress, FAILED)
        return session

    def stop(self) -> None:
        """Hand out nothing more but notices to the application; waiting events are dropped."""
        self._stopped = True
        for session in self._sessions:
            session.closes = True
            for progress in session.partitions.values():
                self._abandon(progress, STOPPED)

    def _abandon(self, progress: PartitionProgress, reason: str) -> None:
        progress.failed = True
        for batch in progress.batches:
            batch.dropped = True
        self._lanes.drop(progress, reason)

    # --- Commits ---

    def due(self, now_s: float) -> Commit | None:
        """Return a commit that is due now for a stream; None if no commit is."""
        for session in self._sessions:
            waiting = [each for each in session.partitions.values() if self.progress_due_at_s(each) <= now_s]
            if waiting:
                return Commit(session, [self._cut(progress, now_s) for progress in waiting], now_s)
        return None

    def due_at_s(self, now_s: float) -> float:
        """The next time at which something is due, or a connection counts as broken, if nothing happens until then."""
        times = [now_s + IDLE_S]
        for session in self._sessions:
            times.append(self._broken_at_s(session))
            times += map(self.progress_due_at_s, session.partitions.values())
        return min(times)

    def progress_due_at_s(self, progress: PartitionProgress) -> float:
        """The time at which events of a partition are to be committed, if nothing happens until then."""
        if not progress.batches:
            return inf
        session = progress.session
        heartbeat_s = max(progress.since_s + self._options.heartbeat_s, session.not_before_s)
        if self._at_once(progress):
            return session.not_before_s if progress.cut(inside=True) else inf
        if progress.cut(inside=not self._options.commits_itself):
            return max(session.not_before_s, min(self._pause_ends_s(session), heartbeat_s))
        return heartbeat_s if progress.moves(heartbeat_s, self._options.keep_alive_s) else inf

    def _at_once(self, progress: PartitionProgress) -> bool:
        """Whether it is not known how long a commit will still be possible."""
        in_hand = self._lanes.is_busy(progress.partition)
        return self.urgent or not progress.session.open or (progress.failed and not in_hand)

    def _pause_ends_s(self, session: StreamSession) -> float:
        # The broker sends nothing while the window is full.
        if 4 * session.handled >= self._options.max_uncommitted_events:
            return 0.0
        return session.committed_s + self._options.pause_s

    def _cut(self, progress: PartitionProgress, now_s: float) -> Cut:
        progress.mark(now_s)
        late = now_s >= progress.since_s + self._options.heartbeat_s
        inside = late or not self._options.commits_itself or self._at_once(progress)
        return progress.cut(inside=inside) or Cut(progress, None, known=len(progress.batches))

    def committed(self, commit: Commit, now_s: float) -> None:
        """The broker has answered; whether a cursor advanced does not matter."""
        session = commit.session
        session.committed_s = now_s
        for cut in commit.cuts:
            if cut.cursor is not None:
                session.acknowledged[cut.progress.partition] = cut.cursor.offset
            if not cut.progress.revoked:
                cut.progress.committed(cut, commit.sent_s)
            elif cut.cursor is not None and (successor := session.partitions.get(cut.progress.partition)):
                successor.skip(cut.cursor.offset)
        self._settle(session)

    def refused(self, commit: Commit, reason: str) -> None:
        """The broker has refused to commit these cursors for this stream."""
        for cut in commit.cuts:
            progress = cut.progress
            if cut.events:
                progress.only_whole = True
            elif not progress.revoked:
                commit.session.lost.add(progress.partition)
                commit.session.stale |= len(progress.batches) > cut.known
                self._revoke(progress, reason)
        self._settle(commit.session)

    def not_committed(self, commit: Commit, now_s: float) -> None:
        """A commit could not be made; the same is due again later, as long as the broker may remember the stream."""
        session = commit.session
        session.not_before_s = now_s + RETRY_PAUSE_S
        if not session.open and now_s > session.ended_s + 2 * self._options.commit_timeout_s:
            for progress in list(session.partitions.values()):
                self._revoke(progress, ENDED)
        self._settle(session)

    def end(self, now_s: float) -> None:
        """Note that all streams are closed; handled events are to be committed at once."""
        self.urgent = True
        for session in list(self._sessions):
            if session.open:
                self.closed(session, now_s, orderly=False)
            else:
                self._settle(session)

    @property
    def settled(self) -> bool:
        """Whether everything is committed that is handled."""
        partitions = (each for session in self._sessions for each in session.partitions.values())
        return not any(progress.batches and progress.cut(inside=True) for progress in partitions)

    # --- Ends of streams ---

    def take_over(self) -> list[str]:
        """Return the ids of streams that the broker has to be asked to end; each is returned once."""
        over, self._over = self._over, []
        return over

    def _revoke(self, progress: PartitionProgress, reason: str) -> None:
        progress.revoked = True
        progress.clear()
        del progress.session.partitions[progress.partition]
        self._lanes.drop(progress, reason)

    def _settle(self, session: StreamSession) -> None:
        """Forget a stream that has ended once nothing of it can be committed any more."""
        if session.open or session not in self._sessions:
            return
        for progress in list(session.partitions.values()):
            left = progress.failed and not self._lanes.is_busy(progress.partition) and not progress.cut(inside=True)
            if left or not progress.batches:
                self._revoke(progress, ENDED)
        if not session.partitions:
            self._sessions.remove(session)
            if session.closes:
                self._over.append(session.stream_id)
