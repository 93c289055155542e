"""Coordinates the streams of one machine: sessions, assignments and committed cursors in SQLite, for many processes."""

import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from rioni.domain.errors import RioniError, Unavailable
from rioni.domain.ports.coordinator import (
    CommittedOffsets,
    DeliveryFailure,
    StreamSession,
    Topology,
    wait_for_streams_to_end,
)
from rioni.domain.ports.host import SUBSCRIPTION, Clock, Health, Notifier, ThreadPool, direct
from rioni.domain.system.anchors import Anchor, Marks
from rioni.domain.timelines.position import EventTypePartition
from rioni.storage.embedded.anchors import CoordinationAnchors
from rioni.storage.embedded.coordination.changes import AdvanceCursors, Changes
from rioni.storage.embedded.coordination.database import (
    CoordinationDatabase,
    SubscriptionRows,
    remove_workers,
    workers_named,
)
from rioni.storage.embedded.coordination.workers import WorkerRegistry
from rioni.storage.group_commit import GroupCommit, WriteJob


CHANGE_TIMEOUT_S = 30.0
"""A change not written to disk by then is answered with 503."""

REAP_EVERY_S = 0.5
"""Minimum time between two checks for dead processes, apart from those at the start of a stream."""

CACHE_ENTRIES_MAX = 10_000

T = TypeVar("T")


class _Change(WriteJob, Generic[T]):
    """A change waiting for the next transaction, and its result."""

    result: T

    def __init__(self, apply: Callable[[Changes], T]) -> None:
        super().__init__(size=0)
        self._apply = apply

    def run(self, changes: Changes) -> None:
        """Apply the change within a transaction, or record its rejection."""
        try:
            self.result = self._apply(changes)
        except RioniError as ex:
            self.error = ex


class _Standing(NamedTuple):
    """The cursors of a subscription at one revision."""

    revision: int
    cursors: CommittedOffsets
    heartbeats: Mapping[EventTypePartition, int]

    def after(self, advance: AdvanceCursors) -> "_Standing":
        """Return the cursors after an advance."""
        beats = {key: self.heartbeats[key] + count for key, count in advance.beats.items()}
        return _Standing(advance.revision, {**self.cursors, **advance.offsets}, {**self.heartbeats, **beats})


NO_STANDING = _Standing(0, {}, {})


class EmbeddedCoordinator:
    """The port `Coordinator` on SQLite. A forked process must open its own."""

    def __init__(self, path: Path, *, clock: Clock, signals: Notifier, pool: ThreadPool = direct) -> None:
        """Open the file, creating it if it doesn't exist, and end the sessions of dead processes; blocks.

        Args:
            path: the path of the database; further files are created next to it.
            clock: used for deadlines only.
            signals: notified with `subscription:<id>` after every change.
            pool: the pool that waits for the disk.

        Raises:
            RioniError: the file can't be used; the message says why.
        """
        self._clock, self._signals, self._pool = clock, signals, pool
        self._database = CoordinationDatabase(path)
        self._anchors = CoordinationAnchors(self._database)
        self._changes: GroupCommit[_Change[Any]] = GroupCommit(self._write_changes, pool)
        self._topologies: dict[str, Topology] = {}
        self._standings: dict[str, _Standing] = {}
        self._reaped_at_s = clock.monotonic()
        with self._database.writing() as connection:
            # NOTE: in a transaction, so that no process mistakes the new file, not locked at first, for a dead one's.
            self._workers = WorkerRegistry(Path(f"{path}-workers"))
            self._remove_dead(connection, self._workers.known() | workers_named(connection))

    def health(self) -> Health:
        """Check whether sessions and cursors can be written; see the port `Examined`."""
        self._pool(self._database.probe)
        return Health()

    # --- Sessions ---

    def initialise(self, subscription_id: str, cursors: CommittedOffsets) -> None:
        """Create the partitions with their initial offsets; see the port."""
        # PERF: every stream calls this, and nearly always nothing is left to do.
        if not self.cursors(subscription_id) and self._write(lambda rows: rows.add(cursors), subscription_id):
            self._changed(subscription_id)

    def extend(self, subscription_id: str, cursors: CommittedOffsets) -> None:
        """Add partitions and rebalance; see the port."""
        if not cursors.keys() <= self.cursors(subscription_id).keys() and self._write(
            lambda rows: rows.extend(cursors), subscription_id
        ):
            self._changed(subscription_id)

    def join(self, subscription_id: str, stream_id: str, requested: Collection[EventTypePartition] = ()) -> None:
        """Start a session and rebalance; see the port."""
        self._reap()
        session = StreamSession(stream_id, frozenset(requested))
        self._change(lambda changes: changes.join(subscription_id, session))

    def leave(self, subscription_id: str, stream_id: str) -> None:
        """End a session and rebalance; see the port."""
        self._change(lambda changes: changes.leave(subscription_id, stream_id))

    def retire(self, subscription_id: str, stream_id: str) -> None:
        """Let a session give way to the next one; see the port."""
        self._change(lambda changes: changes.retire(subscription_id, stream_id))

    def release(self, subscription_id: str, stream_id: str, *partitions: EventTypePartition) -> None:
        """Hand partitions over in one transaction; see the port."""
        self._change(lambda changes: changes.release(subscription_id, stream_id, partitions))

    def topology(self, subscription_id: str) -> Topology:
        """Return sessions and assignments; see the port. PERF: about 10 us if nothing has changed."""
        self.expire_dead_sessions()
        rows = self._database.fetch("SELECT epoch FROM subscriptions WHERE id = ?", (subscription_id,))
        known = self._topologies.get(subscription_id)
        if known is None or [(known.epoch,)] != rows:
            known = self._read(SubscriptionRows.topology, subscription_id)
            if len(self._topologies) >= CACHE_ENTRIES_MAX:
                self._topologies.clear()
            if known.epoch:
                self._topologies[subscription_id] = known
        return known

    # --- Cursors ---

    def cursors(self, subscription_id: str) -> CommittedOffsets:
        """Return the committed offsets; see the port. PERF: about 5 us if nothing has changed."""
        return self._standing(subscription_id).cursors

    def cursors_of(self, subscription_ids: Collection[str]) -> Mapping[str, CommittedOffsets]:
        """Return the committed offsets of several subscriptions; see the port."""
        return {each: self.cursors(each) for each in subscription_ids}

    def committed(self, subscription_id: str) -> CommittedOffsets:
        """Return the committed offsets; see the port."""
        return self.cursors(subscription_id)

    def heartbeats(self, subscription_id: str) -> Mapping[EventTypePartition, int]:
        """Return how many commits repeated the committed offset; see the port."""
        return self._standing(subscription_id).heartbeats

    def _standing(self, subscription_id: str) -> _Standing:
        rows = self._database.fetch("SELECT revision FROM subscriptions WHERE id = ?", (subscription_id,))
        if not rows:
            return NO_STANDING
        known = self._standings.get(subscription_id)
        if known is None or [(known.revision,)] != rows:
            known = self._read(_load_standing, subscription_id)
            if len(self._standings) >= CACHE_ENTRIES_MAX:
                self._standings.clear()
            self._standings[subscription_id] = known
        return known

    def commit(
        self, subscription_id: str, stream_id: str, cursors: Sequence[tuple[EventTypePartition, str]]
    ) -> Sequence[bool]:
        """Commit offsets durably; see the port."""
        return self._change(lambda changes: changes.commit(subscription_id, stream_id, cursors))

    def record_delivery_attempt(
        self,
        subscription_id: str,
        stream_id: str,
        partition: EventTypePartition,
        offset: str,
        search_until: str | None = None,
    ) -> None:
        """Record the delivery attempt that is about to begin; see the port."""
        self._change(
            lambda changes: changes.record_delivery_attempt(subscription_id, stream_id, partition, offset, search_until)
        )

    def record_failure_reasons(
        self, subscription_id: str, stream_id: str, reasons: Sequence[tuple[EventTypePartition, str, str]]
    ) -> None:
        """Record why events could not be processed; see the port."""
        self._change(lambda changes: changes.record_failure_reasons(subscription_id, stream_id, reasons))

    def delivery_failures(self, subscription_id: str) -> Mapping[EventTypePartition, DeliveryFailure]:
        """Return the partitions with failed deliveries or a running search; see the port."""
        return self._read(SubscriptionRows.delivery_failures, subscription_id)

    def reset(self, subscription_id: str, cursors: CommittedOffsets, timeout_s: float) -> CommittedOffsets:
        """End all streams, then set offsets; see the port."""
        if not cursors:
            return {}
        self._reap()
        waiter = self._signals.watch([SUBSCRIPTION + subscription_id])
        try:
            self._write(lambda rows: rows.begin_reset(self.worker), subscription_id)
            self._changed(subscription_id)
            ended = False
            try:
                ended = wait_for_streams_to_end(partial(self.topology, subscription_id), waiter, self._clock, timeout_s)
            finally:
                wanted = cursors if ended else {}
                previous = self._write(lambda rows: rows.end_reset(wanted), subscription_id)
                self._changed(subscription_id)
        finally:
            waiter.close()
        if not ended:
            raise Unavailable("Timeout resetting cursors")
        return previous

    def initialised(self) -> Collection[str]:
        """Return the ids of all initialised subscriptions; see the port."""
        return [subscription_id for (subscription_id,) in self._database.fetch("SELECT id FROM subscriptions", ())]

    def delete(self, subscription_id: str) -> None:
        """Delete sessions, assignments and cursors; see the port."""
        self._write(SubscriptionRows.remove, subscription_id)
        self._topologies.pop(subscription_id, None)
        self._standings.pop(subscription_id, None)
        self._changed(subscription_id)

    # --- Processes ---

    def owns(self, stream_id: str) -> bool:  # noqa: ARG002 - this holds for all
        """Whether no other process can have taken over; see the port. Others only do so when this process has died."""
        return not self._workers.ended

    @property
    def worker(self) -> str:
        """The id of this process; see the port."""
        return self._workers.own

    def announce(self, about: bytes) -> None:
        """Show the other processes the state of this one; see the port."""
        self._pool(self._workers.show, about)

    def announced(self) -> Mapping[str, bytes]:
        """Return the last state that each living process showed; see the port."""
        return self._pool(self._workers.shown)

    def is_alive(self, worker: str) -> bool:
        """Whether a process is alive; see the port."""
        return not (self._workers.ended and worker == self.worker) and self._workers.alive(worker)

    def expire_dead_sessions(self) -> None:
        """End the sessions of dead processes; see the port."""
        if self._clock.monotonic() - self._reaped_at_s >= REAP_EVERY_S:
            self._reap()

    def anchor(self, anchor: Anchor, *, everything: bool) -> Marks:  # noqa: ARG002 - there is one mark only
        """Store an anchor and return the mark; see the port `Anchored`."""
        return self._pool(self._anchors.note, anchor)

    def close(self) -> None:
        """End all sessions of this process and close all files; see the port."""
        if self._workers.ended:
            return
        self._changes.close()
        for subscription in self._transact(partial(remove_workers, workers=[self._workers.own])):
            self._changed(subscription)
        self._workers.leave()
        self._pool(self._database.close)

    def _reap(self) -> None:
        self._reaped_at_s = self._clock.monotonic()
        with self._database.reading() as connection:
            workers = workers_named(connection)
        if not all(map(self._workers.alive, workers)):
            for subscription in self._transact(partial(self._remove_dead, workers=workers)):
                self._changed(subscription)

    def _remove_dead(self, connection: sqlite3.Connection, workers: Collection[str]) -> set[str]:
        dead = [worker for worker in workers if not self._workers.alive(worker)]
        concerned = remove_workers(connection, dead)
        # Before the transaction ends: a process without a file counts as dead as well.
        for worker in dead:
            self._workers.reap(worker)
        return concerned

    # --- The database ---

    def _changed(self, subscription_id: str) -> None:
        self._signals.notify(SUBSCRIPTION + subscription_id)

    def _change(self, apply: Callable[[Changes], T]) -> T:
        """Apply a change; changes submitted while the disk is busy share the next transaction."""
        change = _Change(apply)
        self._changes.submit(change, CHANGE_TIMEOUT_S)
        return change.result

    def _write_changes(self, waiting: list[_Change[Any]]) -> Callable[[], None]:
        with self._database.writing() as connection:
            self._changes.add_pending(waiting)
            changes = Changes(connection, self._workers.own)
            for change in waiting:
                change.run(changes)
            changes.finish()

        def tell() -> None:
            for subscription_id, advance in changes.advances.items():
                # PERF: values that were just written need not be read again.
                known = self._standings.get(subscription_id)
                if known is not None and known.revision + 1 == advance.revision:
                    self._standings[subscription_id] = known.after(advance)
            if changes.keys:
                self._signals.notify(*changes.keys)

        return tell

    def _transact(self, change: Callable[[sqlite3.Connection], T]) -> T:
        def run() -> T:
            with self._database.writing() as connection:
                return change(connection)

        return self._pool(run)

    def _write(self, change: Callable[[SubscriptionRows], T], subscription_id: str) -> T:
        """Change one subscription in a separate transaction."""
        return self._transact(lambda connection: change(SubscriptionRows(connection, subscription_id)))

    def _read(self, read: Callable[[SubscriptionRows], T], subscription_id: str) -> T:
        with self._database.reading() as connection:
            connection.execute("BEGIN")
            try:
                return read(SubscriptionRows(connection, subscription_id))
            finally:
                connection.execute("COMMIT")


def _load_standing(rows: SubscriptionRows) -> _Standing:
    return _Standing(rows.revision(), rows.cursors(), rows.heartbeats())
