"""The coordinator of one machine: sessions, assignments, committed cursors in SQLite, for any number of processes."""

import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from rioni.domain.cursor import BEGIN
from rioni.domain.errors import Conflict, Invalid, SubscriptionNotFound, Unavailable
from rioni.domain.ports import Clock, EventTypePartition, Offload, Session, Signals, Topology, Watch
from rioni.storage.embedded import coordination_database as tables
from rioni.storage.embedded.coordination_database import CoordinationDatabase
from rioni.storage.embedded.events import direct
from rioni.storage.embedded.group_commit import GroupCommit, Job
from rioni.storage.embedded.workers import Workers


COMMIT_TIMEOUT_S = 30.0
"""A commit that the disk has not taken by then is answered 503."""

REAP_EVERY_S = 0.5
"""How often at most a process looks for dead ones, apart from when a stream begins."""

RESET_POLL_S = 1.0
"""How often a reset looks whether streams have ended, should a notification be lost."""

CACHE_ENTRIES_MAX = 10_000

P = ParamSpec("P")
T = TypeVar("T")
Cursors = Mapping[EventTypePartition, str]


class _Commit(Job):
    """Cursors that wait to be written, and what became of each."""

    def __init__(self, subscription_id: str, stream_id: str, cursors: Sequence[tuple[EventTypePartition, str]]) -> None:
        super().__init__(size=len(cursors))
        self.subscription_id, self.stream_id, self.cursors = subscription_id, stream_id, cursors
        self.advanced: Sequence[bool] = ()


class EmbeddedCoordinator:
    """The port `Coordinator` on SQLite. A forked process must open its own."""

    def __init__(self, path: Path, *, clock: Clock, signals: Signals, offload: Offload = direct) -> None:
        """Open the file, creating it where it doesn't exist, and end the sessions of dead processes; blocks.

        Args:
            path: of the database; further files lie beside it.
            clock: for deadlines only.
            signals: told `subscription:<id>` after every change.
            offload: where the disk is waited for.

        Raises:
            RioniError: the file can't be used; the text says why.
        """
        self._clock, self._signals, self._offload = clock, signals, offload
        self._database = CoordinationDatabase(path)
        self._commits: GroupCommit[_Commit] = GroupCommit(self._write_commits, offload)
        self._topologies: dict[str, Topology] = {}
        self._cursors: dict[str, tuple[int, Cursors]] = {}
        self._reaped_at_s = clock.monotonic()
        with self._database.writing() as connection:
            # NOTE: in a transaction, so that nobody takes the new file, which is not locked at first, for a dead one's.
            self._workers = Workers(Path(f"{path}-workers"))
            self._bury(connection, self._workers.known() | tables.workers_named(connection))

    # --- sessions ---

    def initialise(self, subscription_id: str, cursors: Cursors) -> None:
        """Lay down the partitions and where reading begins; see the port."""
        # PERF: every stream asks for it, nearly always in vain.
        if not self.cursors(subscription_id) and self._transact(tables.add_subscription, subscription_id, cursors):
            self._changed(subscription_id)

    def join(self, subscription_id: str, stream_id: str, requested: Collection[EventTypePartition] = ()) -> None:
        """Begin a session and rebalance; see the port."""
        self._reap()
        self._transact(self._admit, subscription_id, Session(stream_id, frozenset(requested)))
        self._changed(subscription_id)

    def leave(self, subscription_id: str, stream_id: str) -> None:
        """End a session at once and rebalance; see the port."""
        if self._transact(tables.remove_session, subscription_id, stream_id):
            self._changed(subscription_id)

    def release(self, subscription_id: str, stream_id: str, partition: EventTypePartition) -> None:
        """Hand a partition over; see the port."""
        if self._transact(tables.hand_over, subscription_id, stream_id, partition):
            self._changed(subscription_id)

    def topology(self, subscription_id: str) -> Topology:
        """Who reads what; see the port. PERF: about 10 us where nothing has changed."""
        self.reap()
        rows = self._database.fetch("SELECT epoch FROM subscriptions WHERE id = ?", (subscription_id,))
        known = self._topologies.get(subscription_id)
        if known is None or [(known.epoch,)] != rows:
            known = self._read(tables.load_topology, subscription_id)
            if len(self._topologies) >= CACHE_ENTRIES_MAX:
                self._topologies.clear()
            if known.epoch:
                self._topologies[subscription_id] = known
        return known

    def _admit(self, connection: sqlite3.Connection, subscription_id: str, session: Session) -> None:
        topology = tables.load_topology(connection, subscription_id)
        if not topology.epoch:
            raise SubscriptionNotFound(subscription_id)
        others = topology.sessions.values()
        taken = {partition for other in others for partition in other.requested}
        if session.requested & taken:
            named = ", ".join(
                f"EventTypePartition{{eventType='{event_type}', partition='{partition}'}}"
                for event_type, partition in sorted(session.requested & taken)
            )
            raise Conflict(
                f"The following partitions are already requested by other stream(s) of this subscription: {named}"
            )
        automatic = sum(not other.requested for other in others)
        if not session.requested and automatic >= len(topology.partitions) - len(taken):
            raise Conflict(
                f"No free slots for streaming available for subscription {subscription_id}. "
                f"Total slots: {len(topology.partitions)}"
            )
        if topology.resetting:
            raise Conflict("Resetting subscription cursors request is still in progress")
        tables.add_session(connection, subscription_id, self._workers.own, session)

    # --- cursors ---

    def cursors(self, subscription_id: str) -> Cursors:
        """The committed offsets; see the port. PERF: about 5 us where nothing has changed."""
        rows = self._database.fetch("SELECT revision FROM subscriptions WHERE id = ?", (subscription_id,))
        if not rows:
            return {}
        ((revision,),) = rows
        known = self._cursors.get(subscription_id)
        if known is None or known[0] != revision:
            # What is read now may be newer than the revision: then it is read once more next time.
            known = revision, self._read(tables.load_cursors, subscription_id)
            if len(self._cursors) >= CACHE_ENTRIES_MAX:
                self._cursors.clear()
            self._cursors[subscription_id] = known
        return known[1]

    def commit(
        self, subscription_id: str, stream_id: str, cursors: Sequence[tuple[EventTypePartition, str]]
    ) -> Sequence[bool]:
        """Commit offsets durably; see the port. What comes while the disk is busy shares the next transaction."""
        commit = _Commit(subscription_id, stream_id, cursors)
        self._commits.submit(commit, COMMIT_TIMEOUT_S)
        if any(commit.advanced):
            self._changed(subscription_id)
        return commit.advanced

    def reset(self, subscription_id: str, cursors: Cursors, timeout_s: float) -> None:
        """Let all streams end, then set offsets; see the port."""
        if not cursors:
            return
        self._reap()
        watch = self._signals.watch([f"subscription:{subscription_id}"])
        try:
            self._transact(self._begin_reset, subscription_id)
            self._changed(subscription_id)
            ended = False
            try:
                ended = self._await_end(subscription_id, watch, timeout_s)
            finally:
                self._transact(_end_reset, subscription_id, cursors if ended else {})
                self._changed(subscription_id)
        finally:
            watch.close()
        if not ended:
            raise Unavailable("Timeout resetting cursors")

    def forget(self, subscription_id: str) -> None:
        """Remove sessions, assignments and cursors; see the port."""
        self._transact(tables.remove_subscription, subscription_id)
        self._topologies.pop(subscription_id, None)
        self._cursors.pop(subscription_id, None)
        self._changed(subscription_id)

    def _begin_reset(self, connection: sqlite3.Connection, subscription_id: str) -> None:
        try:
            connection.execute("INSERT INTO resets VALUES (?, ?)", (subscription_id, self._workers.own))
        except sqlite3.IntegrityError as ex:
            raise Conflict("Cursors reset is already in progress for provided subscription") from ex
        tables.bump(connection, subscription_id)

    def _await_end(self, subscription_id: str, watch: Watch, timeout_s: float) -> bool:
        deadline_s = self._clock.monotonic() + timeout_s
        while self.topology(subscription_id).sessions:
            left_s = deadline_s - self._clock.monotonic()
            if left_s <= 0:
                return False
            watch.wait(min(left_s, RESET_POLL_S))
        return True

    def _write_commits(self, commits: Sequence[_Commit]) -> Callable[[], None]:
        with self._database.writing() as connection:
            for commit in commits:
                try:
                    commit.advanced = _commit(connection, commit)
                except Invalid as ex:
                    commit.error = ex
        return _nothing

    # --- processes ---

    def reap(self) -> None:
        """End the sessions of dead processes; see the port."""
        if self._clock.monotonic() - self._reaped_at_s >= REAP_EVERY_S:
            self._reap()

    def close(self) -> None:
        """End all sessions of this process and let go of all files; see the port."""
        if self._workers.left:
            return
        self._commits.close()
        for subscription in self._transact(tables.remove_workers, [self._workers.own]):
            self._changed(subscription)
        self._workers.leave()
        self._offload(self._database.close)

    def _reap(self) -> None:
        self._reaped_at_s = self._clock.monotonic()
        with self._database.reading() as connection:
            workers = tables.workers_named(connection)
        if not all(map(self._workers.alive, workers)):
            for subscription in self._transact(self._bury, workers):
                self._changed(subscription)

    def _bury(self, connection: sqlite3.Connection, workers: Collection[str]) -> set[str]:
        dead = [worker for worker in workers if not self._workers.alive(worker)]
        concerned = tables.remove_workers(connection, dead)
        # Before the end of the transaction: where there is no file, its process counts as dead as well.
        for worker in dead:
            self._workers.forget(worker)
        return concerned

    # --- the database ---

    def _changed(self, subscription_id: str) -> None:
        self._signals.notify(f"subscription:{subscription_id}")

    def _transact(
        self, function: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        def run() -> T:
            with self._database.writing() as connection:
                return function(connection, *args, **kwargs)

        return self._offload(run)

    def _read(self, function: Callable[[sqlite3.Connection, str], T], subscription_id: str) -> T:
        with self._database.reading() as connection:
            connection.execute("BEGIN")
            try:
                return function(connection, subscription_id)
            finally:
                connection.execute("COMMIT")


def _end_reset(connection: sqlite3.Connection, subscription_id: str, cursors: Cursors) -> None:
    connection.execute("DELETE FROM resets WHERE subscription = ?", (subscription_id,))
    tables.set_cursors(connection, subscription_id, cursors.items())
    tables.bump(connection, subscription_id)


def _commit(connection: sqlite3.Connection, commit: _Commit) -> list[bool]:
    """Check everything, then write what is ahead (consumption contract 7.2, rows 10 to 12)."""
    stream_id, subscription_id = commit.stream_id, commit.subscription_id
    session = connection.execute(
        "SELECT 1 FROM sessions WHERE id = ? AND subscription = ?", (stream_id, subscription_id)
    ).fetchone()
    if session is None:
        raise Invalid(f"Session with stream id {stream_id} not found")
    stored: dict[EventTypePartition, str] = {}
    for key, offset in commit.cursors:
        row = connection.execute(
            "SELECT session, offset FROM partitions WHERE subscription = ? AND event_type = ? AND partition = ?",
            (subscription_id, *key),
        ).fetchone()
        if row is None or not row[0]:
            raise Invalid(f"non existing partition {key.partition}")
        if row[0] != stream_id:
            cursor = f"{{partition='{key.partition}', offset='{offset}', event_type='{key.event_type}'}}"
            raise Invalid(f"Cursor {cursor} cannot be committed with stream id {stream_id}")
        stored[key] = row[1]
    advanced: list[bool] = []
    ahead: dict[EventTypePartition, str] = {}
    for key, offset in commit.cursors:
        advanced.append(offset > ahead.get(key, stored[key]) and offset != BEGIN)
        if advanced[-1]:
            ahead[key] = offset
    if ahead:
        tables.set_cursors(connection, subscription_id, ahead.items())
    return advanced


def _nothing() -> None:
    """Nothing is left to do after commits are written."""
