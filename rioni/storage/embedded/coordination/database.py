"""Reads and changes the SQLite file of sessions, assignments and committed cursors."""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rioni.domain.errors import Conflict, SubscriptionNotFound
from rioni.domain.ports.coordinator import Assignment, DeliveryFailure, StreamSession, Topology
from rioni.domain.streaming.assignment import rebalance
from rioni.domain.timelines.position import EventTypePartition
from rioni.storage.embedded.anchors import ANCHOR_SCHEMA
from rioni.storage.embedded.sqlite_file import SQLiteFile


class CoordinationDatabase(SQLiteFile):
    """One process's connections to the file; locking: see `SQLiteFile`."""

    contents = "database of sessions and cursors"
    schema_version = 6
    upgrades: Mapping[int, str] = {
        1: """
        ALTER TABLE partitions ADD COLUMN failures INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE partitions ADD COLUMN sent TEXT NOT NULL DEFAULT '';
        ALTER TABLE partitions ADD COLUMN sent_by TEXT NOT NULL DEFAULT '';
        ALTER TABLE partitions ADD COLUMN search_until TEXT NOT NULL DEFAULT '';
        """,
        2: "ALTER TABLE partitions ADD COLUMN heartbeats INTEGER NOT NULL DEFAULT 0;",
        3: ANCHOR_SCHEMA,
        4: "ALTER TABLE sessions ADD COLUMN retired INTEGER NOT NULL DEFAULT 0;",
        5: """
        ALTER TABLE partitions ADD COLUMN reason_offset TEXT NOT NULL DEFAULT '';
        ALTER TABLE partitions ADD COLUMN reason TEXT NOT NULL DEFAULT '';
        """,
    }
    schema = f"""
    CREATE TABLE subscriptions (
        id TEXT PRIMARY KEY,
        epoch INTEGER NOT NULL,                 -- grows with every change of sessions and assignments
        revision INTEGER NOT NULL               -- grows with every commit
    ) WITHOUT ROWID;
    CREATE TABLE partitions (
        subscription TEXT NOT NULL,
        place INTEGER NOT NULL,                 -- the order that clients see
        event_type TEXT NOT NULL,
        partition TEXT NOT NULL,
        session TEXT NOT NULL DEFAULT '',
        next_session TEXT NOT NULL DEFAULT '',
        offset TEXT NOT NULL,                   -- of the last event committed
        failures INTEGER NOT NULL DEFAULT 0,    -- sessions that ended with uncommitted events since it advanced
        sent TEXT NOT NULL DEFAULT '',          -- offset up to which events were sent, as far as that is noted
        sent_by TEXT NOT NULL DEFAULT '',       -- the session that awaits their commit; empty where none does
        search_until TEXT NOT NULL DEFAULT '',  -- offset up to which events are sent one at a time
        heartbeats INTEGER NOT NULL DEFAULT 0,  -- commits of the offset that was committed already
        reason_offset TEXT NOT NULL DEFAULT '', -- of the uncommitted event that `reason` is about; empty for none
        reason TEXT NOT NULL DEFAULT '',        -- why its consumer could not process it
        PRIMARY KEY (subscription, event_type, partition)
    ) WITHOUT ROWID;
    CREATE TABLE sessions (
        id TEXT PRIMARY KEY,
        subscription TEXT NOT NULL,
        worker TEXT NOT NULL,                   -- the process that it lives and dies with
        requested TEXT NOT NULL,                -- JSON, pairs of event type and partition
        retired INTEGER NOT NULL DEFAULT 0      -- whether it gives way to the next one, as its client has gone
    ) WITHOUT ROWID;
    CREATE INDEX sessions_of_subscriptions ON sessions (subscription);
    CREATE INDEX sessions_of_workers ON sessions (worker);
    CREATE TABLE resets (                       -- of cursors, while they wait for streams to end
        subscription TEXT PRIMARY KEY,
        worker TEXT NOT NULL
    ) WITHOUT ROWID;
    {ANCHOR_SCHEMA}
    """


_PARTITION = "WHERE subscription = ?1 AND event_type = ?2 AND partition = ?3"


class SubscriptionRows:
    """The rows of one subscription, as the connection's transaction sees them; methods that change them need one."""

    def __init__(self, connection: sqlite3.Connection, subscription_id: str) -> None:
        self._connection, self._id = connection, subscription_id

    # --- Reading ---

    def topology(self) -> Topology:
        """Return sessions and assignments."""
        epoch = self._execute("SELECT epoch FROM subscriptions WHERE id = ?").fetchone()
        resetting = self._execute("SELECT 1 FROM resets WHERE subscription = ?").fetchone()
        sessions = {session.id: session for session in self._sessions()}
        return Topology(epoch[0] if epoch else 0, self._assignments(), sessions, resetting is not None)

    def cursors(self) -> Mapping[EventTypePartition, str]:
        """Return the committed offsets."""
        return {key: offset for key, (offset,) in self._partitions("offset")}

    def heartbeats(self) -> Mapping[EventTypePartition, int]:
        """Return how many commits repeated the committed offset, by partition."""
        return {key: count for key, (count,) in self._partitions("heartbeats")}

    def delivery_failures(self) -> Mapping[EventTypePartition, DeliveryFailure]:
        """Return the partitions with failed deliveries or a running search."""
        columns = "failures, sent, search_until, reason_offset, reason"
        found = self._partitions(columns, "AND (failures > 0 OR search_until > offset)")
        return {key: DeliveryFailure(*failure) for key, failure in found}

    def revision(self) -> int:
        """Return the revision of the cursors; 0 if the subscription is not initialised."""
        row = self._execute("SELECT revision FROM subscriptions WHERE id = ?").fetchone()
        return int(row[0]) if row else 0

    def has_session(self, stream_id: str) -> bool:
        """Whether a session exists."""
        found = self._execute("SELECT 1 FROM sessions WHERE subscription = ? AND id = ?", stream_id)
        return found.fetchone() is not None

    def owner(self, key: EventTypePartition) -> tuple[str, str]:
        """Return the owner and the committed offset of a partition; empty strings if it does not exist."""
        query = f"SELECT session, offset FROM partitions {_PARTITION}"  # noqa: S608 - constants
        row: tuple[str, str] | None = self._execute(query, *key).fetchone()
        return row or ("", "")

    # --- Changing ---

    def add(self, cursors: Mapping[EventTypePartition, str]) -> bool:
        """Create the partitions; return False if they existed already."""
        added = self._execute("INSERT OR IGNORE INTO subscriptions VALUES (?, 1, 1)").rowcount
        if added:
            self._insert_partitions(cursors)
        return bool(added)

    def extend(self, cursors: Mapping[EventTypePartition, str]) -> bool:
        """Add missing partitions and rebalance; return whether any were added."""
        known = self.cursors()
        if not known:
            raise SubscriptionNotFound(self._id)
        added = {key: offset for key, offset in cursors.items() if key not in known}
        if added:
            self._insert_partitions(added, first_place=len(known))
            self.increment_revision()
            self.rebalance()
        return bool(added)

    def add_session(self, worker: str, session: StreamSession) -> None:
        """Start a session; call `rebalance` afterwards."""
        requested = json.dumps(sorted(session.requested))
        self._execute(
            "INSERT INTO sessions (subscription, id, worker, requested) VALUES (?, ?, ?, ?)",
            session.id,
            worker,
            requested,
        )

    def retire_session(self, stream_id: str) -> bool:
        """Let a session give way to the next one; return whether that has changed it."""
        retire = "UPDATE sessions SET retired = 1 WHERE subscription = ? AND id = ? AND NOT retired"
        return bool(self._execute(retire, stream_id).rowcount)

    def remove_session(self, stream_id: str) -> bool:
        """End a session; return whether it existed. Call `rebalance` and then `count_failures` afterwards."""
        return bool(self._execute("DELETE FROM sessions WHERE subscription = ? AND id = ?", stream_id).rowcount)

    def hand_over(self, stream_id: str, partitions: Iterable[EventTypePartition]) -> set[str]:
        """Give this stream's partitions to the sessions waiting for them; return these sessions."""
        change = f"UPDATE partitions SET session = next_session, next_session = '' {_PARTITION}"  # noqa: S608 - constants
        give = f"{change} AND session = ?4 AND next_session != '' RETURNING session"
        given = [self._execute(give, *partition, stream_id).fetchall() for partition in partitions]
        heirs = {session for rows in given for (session,) in rows}
        if heirs:
            self.count_failures(stream_id)
            self.increment_epoch()
        return heirs

    def note_attempt(
        self, stream_id: str, partition: EventTypePartition, offset: str, search_until: str | None
    ) -> None:
        """Record that a stream is about to send events up to an offset, if it owns the partition."""
        self._update(
            "sent = ?4, sent_by = ?5, search_until = coalesce(?6, search_until), "
            "failures = CASE WHEN ?6 IS NULL THEN failures ELSE 0 END",
            [(partition, (offset, stream_id, search_until))],
            "AND session = ?5",
        )

    def note_reason(self, partition: EventTypePartition, offset: str, reason: str) -> None:
        """Record why an event could not be processed, unless it is committed."""
        self._update("reason_offset = ?4, reason = ?5", [(partition, (offset, reason))], "AND offset < ?4")

    def count_failures(self, stream_id: str) -> None:
        """Count a failure for each partition that its stream has lost with uncommitted events."""
        self._execute(
            "UPDATE partitions SET failures = failures + (sent > offset), sent_by = '' "
            "WHERE subscription = ?1 AND sent_by = ?2 AND session != ?2",
            stream_id,
        )

    def increment_epoch(self) -> None:
        """Increment the epoch: sessions or assignments have changed."""
        self._execute("UPDATE subscriptions SET epoch = epoch + 1 WHERE id = ?")

    def advance_cursors(self, cursors: Mapping[EventTypePartition, str]) -> None:
        """Store offsets that are ahead of the stored ones; call `increment_revision` afterwards."""
        self._update(
            "offset = ?4, failures = 0, reason = CASE WHEN reason_offset <= ?4 THEN '' ELSE reason END, "
            "reason_offset = CASE WHEN reason_offset <= ?4 THEN '' ELSE reason_offset END",
            ((key, (offset,)) for key, offset in cursors.items()),
        )

    def count_heartbeats(self, counts: Mapping[EventTypePartition, int]) -> None:
        """Count commits that repeated the committed offset; call `increment_revision` afterwards."""
        self._update("heartbeats = heartbeats + ?4", ((key, (count,)) for key, count in counts.items()))

    def begin_reset(self, worker: str) -> None:
        """Note that a process waits for all streams to end; raises Conflict if another reset does."""
        try:
            self._execute("INSERT INTO resets VALUES (?, ?)", worker)
        except sqlite3.IntegrityError as ex:
            raise Conflict("Cursors reset is already in progress for provided subscription") from ex
        self.increment_epoch()

    def end_reset(self, cursors: Mapping[EventTypePartition, str]) -> Mapping[EventTypePartition, str]:
        """Set offsets unconditionally, clear the failures of their partitions, and return the offsets before."""
        stored = self.cursors()
        self._execute("DELETE FROM resets WHERE subscription = ?")
        self._update(
            "offset = ?4, failures = 0, sent = '', sent_by = '', search_until = '', reason_offset = '', reason = ''",
            ((key, (offset,)) for key, offset in cursors.items()),
        )
        self.increment_revision()
        self.increment_epoch()
        return {key: stored[key] for key in cursors if key in stored}

    def increment_revision(self) -> int:
        """Increment the revision: something was committed; return the new revision."""
        self._execute("UPDATE subscriptions SET revision = revision + 1 WHERE id = ?")
        return self.revision()

    def rebalance(self) -> set[str]:
        """Rebalance; return the streams whose partitions have changed, ended ones included."""
        before = self._assignments()
        after = rebalance(before, self._sessions())
        moved = [key for key in before if before[key] != after[key]]
        self._update("session = ?4, next_session = ?5", ((key, after[key]) for key in moved))
        self.increment_epoch()
        return {name for key in moved for name in (*before[key], *after[key]) if name}

    def remove(self) -> None:
        """Delete everything of the subscription."""
        self._execute("DELETE FROM subscriptions WHERE id = ?")
        for table in ("partitions", "sessions", "resets"):
            self._execute(f"DELETE FROM {table} WHERE subscription = ?")  # noqa: S608 - constants

    def _assignments(self) -> dict[EventTypePartition, Assignment]:
        return {key: Assignment(*sessions) for key, sessions in self._partitions("session, next_session")}

    def _sessions(self) -> Iterator[StreamSession]:
        rows = self._execute("SELECT id, requested, retired FROM sessions WHERE subscription = ? ORDER BY id")
        for name, requested, retired in rows:
            yield StreamSession(
                name, frozenset(EventTypePartition(*pair) for pair in json.loads(requested)), bool(retired)
            )

    def _insert_partitions(self, cursors: Mapping[EventTypePartition, str], *, first_place: int = 0) -> None:
        places = enumerate(cursors.items(), first_place)
        self._connection.executemany(
            "INSERT INTO partitions (subscription, place, event_type, partition, offset) VALUES (?, ?, ?, ?, ?)",
            ((self._id, place, *key, offset) for place, (key, offset) in places),
        )

    def _partitions(self, columns: str, condition: str = "") -> Iterator[tuple[EventTypePartition, Sequence[Any]]]:
        """Yield columns of the partitions, in the order that clients see."""
        query = (
            f"SELECT event_type, partition, {columns} FROM partitions WHERE subscription = ? {condition} ORDER BY place"  # noqa: S608 - constants
        )
        for row in self._execute(query):
            yield EventTypePartition(*row[:2]), row[2:]

    def _update(
        self, change: str, rows: Iterable[tuple[EventTypePartition, Iterable[Any]]], condition: str = ""
    ) -> None:
        """Change partitions; the values of each are the parameters from the fourth on."""
        statement = f"UPDATE partitions SET {change} {_PARTITION} {condition}"  # noqa: S608 - constants
        self._connection.executemany(statement, ((self._id, *key, *values) for key, values in rows))

    def _execute(self, statement: str, *parameters: object) -> sqlite3.Cursor:
        """Execute a statement whose first parameter is the subscription."""
        return self._connection.execute(statement, (self._id, *parameters))


def workers_named(connection: sqlite3.Connection) -> set[str]:
    """Return all processes that own sessions or resets."""
    return {worker for (worker,) in connection.execute("SELECT worker FROM sessions UNION SELECT worker FROM resets")}


def remove_workers(connection: sqlite3.Connection, workers: Iterable[str]) -> set[str]:
    """End the sessions and resets of processes, rebalance, and return the affected subscriptions; in a transaction."""
    concerned: set[str] = set()
    ended: list[tuple[str, str]] = []
    for worker in workers:
        sessions = connection.execute(
            "DELETE FROM sessions WHERE worker = ? RETURNING subscription, id", (worker,)
        ).fetchall()
        resets = connection.execute("DELETE FROM resets WHERE worker = ? RETURNING subscription", (worker,)).fetchall()
        concerned.update(subscription for subscription, *_ in sessions + resets)
        ended += sessions
    for subscription in concerned:
        SubscriptionRows(connection, subscription).rebalance()
    for subscription, stream_id in ended:
        SubscriptionRows(connection, subscription).count_failures(stream_id)
    return concerned
