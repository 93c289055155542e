"""Batches coordinator changes: all concurrent requests are read, written and rebalanced in one transaction."""

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rioni.domain.ports.coordinator import StreamSession
from rioni.domain.ports.host import CHANGED, SUBSCRIPTION
from rioni.domain.streaming.assignment import Cursors, StreamSlots, check_commit, compare
from rioni.domain.timelines.position import EventTypePartition
from rioni.storage.embedded.coordination.database import SubscriptionRows


class AdvanceCursors(NamedTuple):
    """The cursors of a subscription advanced by a transaction."""

    revision: int
    """The revision of the subscription, after the transaction."""
    offsets: Mapping[EventTypePartition, str]
    """The new offsets of the cursors that advanced."""
    beats: Mapping[EventTypePartition, int]
    """How many commits repeated the committed offset, by partition."""


class Changes:
    """The changes of one transaction. Each is applied as if alone, or rejected before it has changed anything.

    The caller calls `finish` before the end of the transaction.
    """

    def __init__(self, connection: sqlite3.Connection, worker: str) -> None:
        """Start without changes.

        Args:
            connection: with an open transaction.
            worker: the process that owns the sessions; they end with it.
        """
        self._connection, self._worker = connection, worker
        self.keys: set[str] = set()
        """The notification keys of the changes."""
        self.advances: dict[str, AdvanceCursors] = {}
        """Advances by subscription; complete after `finish`."""
        self._cursors: dict[str, _Cursors] = {}
        self._stream_slots: dict[str, StreamSlots] = {}
        self._ended: list[tuple[str, str]] = []
        self._unbalanced: set[str] = set()

    def join(self, subscription_id: str, session: StreamSession) -> None:
        """Start a session; raises as the port does."""
        slots = self._stream_slots.get(subscription_id)
        if slots is None:
            topology = self._rows(subscription_id).topology()
            slots = self._stream_slots[subscription_id] = StreamSlots(subscription_id, topology)
        slots.assign(session)
        self._rows(subscription_id).add_session(self._worker, session)
        self._unbalanced.add(subscription_id)
        for retired in slots.retired:
            self.leave(subscription_id, retired)

    def leave(self, subscription_id: str, stream_id: str) -> None:
        """End a session; unknown ones are ignored."""
        self._settle(subscription_id)
        if self._rows(subscription_id).remove_session(stream_id):
            self._ended.append((subscription_id, stream_id))
            self._unbalanced.add(subscription_id)
            self._stream_slots.pop(subscription_id, None)
            self.keys |= {SUBSCRIPTION + subscription_id, f"stream:{stream_id}"}

    def retire(self, subscription_id: str, stream_id: str) -> None:
        """Let a session give way to the next one; unknown ones are ignored."""
        if self._rows(subscription_id).retire_session(stream_id):
            self._stream_slots.pop(subscription_id, None)
            self._rows(subscription_id).increment_epoch()
            self.keys.add(SUBSCRIPTION + subscription_id)

    def release(self, subscription_id: str, stream_id: str, partitions: Sequence[EventTypePartition]) -> None:
        """Hand partitions over to the streams that are waiting for them."""
        self._settle(subscription_id)
        if heirs := self._rows(subscription_id).hand_over(stream_id, partitions):
            self.keys |= {f"stream:{name}" for name in (*heirs, stream_id)}

    def record_delivery_attempt(
        self,
        subscription_id: str,
        stream_id: str,
        partition: EventTypePartition,
        offset: str,
        search_until: str | None,
    ) -> None:
        """Record the delivery attempt that is about to begin."""
        self._settle(subscription_id)
        self._rows(subscription_id).note_attempt(stream_id, partition, offset, search_until)

    def record_failure_reasons(
        self, subscription_id: str, stream_id: str, reasons: Sequence[tuple[EventTypePartition, str, str]]
    ) -> None:
        """Check all reasons as a commit does, then record them."""
        self._settle(subscription_id)
        cursors = [(partition, offset) for partition, offset, _ in reasons]
        _Cursors(self._rows(subscription_id)).check(stream_id, cursors)
        for partition, offset, reason in reasons:
            self._rows(subscription_id).note_reason(partition, offset, reason)

    def commit(self, subscription_id: str, stream_id: str, cursors: Cursors) -> Sequence[bool]:
        """Check all cursors, then keep those that are ahead (reference subscriptions#commit-checks)."""
        known = self._cursors.get(subscription_id)
        if known is None:
            known = self._cursors[subscription_id] = _Cursors(self._rows(subscription_id))
        advanced, repeated = known.commit(stream_id, cursors)
        if repeated:
            self.keys.add(f"stream:{stream_id}")
        if any(advanced):
            self.keys.add(CHANGED + subscription_id)
        return advanced

    def finish(self) -> None:
        """Write the remaining changes and rebalance."""
        for subscription_id in list(self._cursors):
            self._settle(subscription_id)
        for subscription_id in self._unbalanced:
            self.keys |= {f"stream:{name}" for name in self._rows(subscription_id).rebalance()}
        for subscription_id, stream_id in self._ended:
            self._rows(subscription_id).count_failures(stream_id)

    def _rows(self, subscription_id: str) -> SubscriptionRows:
        return SubscriptionRows(self._connection, subscription_id)

    def _settle(self, subscription_id: str) -> None:
        """Write the pending committed cursors, before changes that depend on them."""
        known = self._cursors.pop(subscription_id, None)
        advance = known.write() if known else None
        if advance is not None:
            before = self.advances.get(subscription_id)
            if before is not None:
                offsets, beats = {**before.offsets, **advance.offsets}, Counter(before.beats) + Counter(advance.beats)
                advance = AdvanceCursors(advance.revision, offsets, beats)
            self.advances[subscription_id] = advance


class _Cursors:
    """The cursors of a subscription and their pending commits. PERF: each row is read and written once."""

    def __init__(self, rows: SubscriptionRows) -> None:
        self._rows = rows
        self._alive: dict[str, bool] = {}
        self._owned: dict[EventTypePartition, tuple[str, str]] = {}
        self._offsets: dict[EventTypePartition, str] = {}
        self._beats: Counter[EventTypePartition] = Counter()

    def commit(self, stream_id: str, cursors: Cursors) -> tuple[Sequence[bool], bool]:
        """Return the result of each cursor, and whether to notify the stream."""
        self.check(stream_id, cursors)
        stored = {key: self._offsets.get(key, self._owner(key)[1]) for key, _ in cursors}
        advanced, ahead, again = compare(stored, cursors)
        self._offsets |= ahead
        self._beats.update(again)
        return advanced, bool(ahead or again)

    def check(self, stream_id: str, cursors: Cursors) -> None:
        """Raise Invalid if a stream may not commit cursors."""
        check_commit(stream_id, cursors, is_alive=self._lives(stream_id), owner=lambda key: self._owner(key)[0])

    def write(self) -> AdvanceCursors | None:
        """Write the commits; return None without commits."""
        if not self._offsets and not self._beats:
            return None
        self._rows.advance_cursors(self._offsets)
        self._rows.count_heartbeats(self._beats)
        return AdvanceCursors(self._rows.increment_revision(), self._offsets, self._beats)

    def _lives(self, stream_id: str) -> bool:
        alive = self._alive.get(stream_id)
        if alive is None:
            alive = self._alive[stream_id] = self._rows.has_session(stream_id)
        return alive

    def _owner(self, key: EventTypePartition) -> tuple[str, str]:
        found = self._owned.get(key)
        if found is None:
            found = self._owned[key] = self._rows.owner(key)
        return found
