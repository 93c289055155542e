"""Reads and changes the SQLite file of sessions, assignments and committed cursors."""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping

from rioni.domain.errors import SubscriptionNotFound
from rioni.domain.ports.coordinator import Assignment, DeliveryFailure, Session, Topology
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


# --- Reading ---


def load_topology(connection: sqlite3.Connection, subscription_id: str) -> Topology:
    """Return sessions and assignments, as the connection's transaction sees them."""
    epoch = connection.execute("SELECT epoch FROM subscriptions WHERE id = ?", (subscription_id,)).fetchone()
    resetting = connection.execute("SELECT 1 FROM resets WHERE subscription = ?", (subscription_id,)).fetchone()
    return Topology(
        epoch[0] if epoch else 0,
        dict(_assignments(connection, subscription_id)),
        {session.id: session for session in _sessions(connection, subscription_id)},
        resetting is not None,
    )


def load_cursors(connection: sqlite3.Connection, subscription_id: str) -> Mapping[EventTypePartition, str]:
    """Return the committed offsets."""
    rows = connection.execute(
        "SELECT event_type, partition, offset FROM partitions WHERE subscription = ? ORDER BY place",
        (subscription_id,),
    )
    return {EventTypePartition(event_type, partition): offset for event_type, partition, offset in rows}


def load_heartbeats(connection: sqlite3.Connection, subscription_id: str) -> Mapping[EventTypePartition, int]:
    """Return how many commits repeated the committed offset, by partition."""
    rows = connection.execute(
        "SELECT event_type, partition, heartbeats FROM partitions WHERE subscription = ? ORDER BY place",
        (subscription_id,),
    )
    return {EventTypePartition(event_type, partition): count for event_type, partition, count in rows}


def load_delivery_failures(
    connection: sqlite3.Connection, subscription_id: str
) -> Mapping[EventTypePartition, DeliveryFailure]:
    """Return the partitions with failed deliveries or a running search."""
    rows = connection.execute(
        "SELECT event_type, partition, failures, sent, search_until, reason_offset, reason FROM partitions "
        "WHERE subscription = ? AND (failures > 0 OR search_until > offset)",
        (subscription_id,),
    )
    return {
        EventTypePartition(event_type, partition): DeliveryFailure(*failure) for event_type, partition, *failure in rows
    }


def workers_named(connection: sqlite3.Connection) -> set[str]:
    """Return all processes that own sessions or resets."""
    return {worker for (worker,) in connection.execute("SELECT worker FROM sessions UNION SELECT worker FROM resets")}


def _assignments(
    connection: sqlite3.Connection, subscription_id: str
) -> Iterator[tuple[EventTypePartition, Assignment]]:
    rows = connection.execute(
        "SELECT event_type, partition, session, next_session FROM partitions WHERE subscription = ? ORDER BY place",
        (subscription_id,),
    )
    for event_type, partition, session, next_session in rows:
        yield EventTypePartition(event_type, partition), Assignment(session, next_session)


def _sessions(connection: sqlite3.Connection, subscription_id: str) -> Iterator[Session]:
    rows = connection.execute(
        "SELECT id, requested, retired FROM sessions WHERE subscription = ? ORDER BY id", (subscription_id,)
    )
    for name, requested, retired in rows:
        yield Session(name, frozenset(EventTypePartition(*pair) for pair in json.loads(requested)), bool(retired))


def load_revision(connection: sqlite3.Connection, subscription_id: str) -> int:
    """Return the revision of a subscription's cursors; 0 if it is not initialised."""
    row = connection.execute("SELECT revision FROM subscriptions WHERE id = ?", (subscription_id,)).fetchone()
    return int(row[0]) if row else 0


def has_session(connection: sqlite3.Connection, subscription_id: str, stream_id: str) -> bool:
    """Whether a session exists."""
    found = connection.execute("SELECT 1 FROM sessions WHERE id = ? AND subscription = ?", (stream_id, subscription_id))
    return found.fetchone() is not None


def load_owner(connection: sqlite3.Connection, subscription_id: str, key: EventTypePartition) -> tuple[str, str]:
    """Return the owner and the committed offset of a partition; empty strings if it does not exist."""
    row: tuple[str, str] | None = connection.execute(
        "SELECT session, offset FROM partitions WHERE subscription = ? AND event_type = ? AND partition = ?",
        (subscription_id, *key),
    ).fetchone()
    return row or ("", "")


# --- Changing; every function needs a transaction ---


def add_subscription(
    connection: sqlite3.Connection, subscription_id: str, cursors: Mapping[EventTypePartition, str]
) -> bool:
    """Create the partitions; return False if they existed already."""
    added = connection.execute("INSERT OR IGNORE INTO subscriptions VALUES (?, 1, 1)", (subscription_id,)).rowcount
    if added:
        _insert_partitions(connection, subscription_id, cursors)
    return bool(added)


def add_partitions(
    connection: sqlite3.Connection, subscription_id: str, cursors: Mapping[EventTypePartition, str]
) -> bool:
    """Add missing partitions and rebalance; return whether any were added."""
    known = load_cursors(connection, subscription_id)
    if not known:
        raise SubscriptionNotFound(subscription_id)
    added = {key: offset for key, offset in cursors.items() if key not in known}
    if added:
        _insert_partitions(connection, subscription_id, added, first_place=len(known))
        increment_revision(connection, subscription_id)
        rebalance_subscription(connection, subscription_id)
    return bool(added)


def _insert_partitions(
    connection: sqlite3.Connection,
    subscription_id: str,
    cursors: Mapping[EventTypePartition, str],
    *,
    first_place: int = 0,
) -> None:
    connection.executemany(
        "INSERT INTO partitions (subscription, place, event_type, partition, offset) VALUES (?, ?, ?, ?, ?)",
        ((subscription_id, place, *key, offset) for place, (key, offset) in enumerate(cursors.items(), first_place)),
    )


def add_session(connection: sqlite3.Connection, subscription_id: str, worker: str, session: Session) -> None:
    """Start a session; call `rebalance_subscription` afterwards."""
    connection.execute(
        "INSERT INTO sessions (id, subscription, worker, requested) VALUES (?, ?, ?, ?)",
        (session.id, subscription_id, worker, json.dumps(sorted(session.requested))),
    )


def retire_session(connection: sqlite3.Connection, subscription_id: str, stream_id: str) -> bool:
    """Let a session give way to the next one; return whether that has changed it."""
    retired = connection.execute(
        "UPDATE sessions SET retired = 1 WHERE id = ? AND subscription = ? AND NOT retired",
        (stream_id, subscription_id),
    ).rowcount
    return bool(retired)


def remove_session(connection: sqlite3.Connection, subscription_id: str, stream_id: str) -> bool:
    """End a session; return whether it existed. Call `rebalance_subscription` and then `count_failures` afterwards."""
    removed = connection.execute(
        "DELETE FROM sessions WHERE id = ? AND subscription = ?", (stream_id, subscription_id)
    ).rowcount
    return bool(removed)


def remove_workers(connection: sqlite3.Connection, workers: Iterable[str]) -> set[str]:
    """End the sessions and resets of processes, rebalance, and return the affected subscriptions."""
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
        rebalance_subscription(connection, subscription)
    for subscription, stream_id in ended:
        count_failures(connection, subscription, stream_id)
    return concerned


def hand_over(
    connection: sqlite3.Connection, subscription_id: str, stream_id: str, partitions: Iterable[EventTypePartition]
) -> set[str]:
    """Give this stream's partitions to the sessions waiting for them; return these sessions."""
    heirs: set[str] = set()
    for partition in partitions:
        given = connection.execute(
            "UPDATE partitions SET session = next_session, next_session = '' "
            "WHERE subscription = ? AND event_type = ? AND partition = ? AND session = ? AND next_session != '' "
            "RETURNING session",
            (subscription_id, *partition, stream_id),
        )
        heirs.update(session for (session,) in given.fetchall())
    if heirs:
        count_failures(connection, subscription_id, stream_id)
        increment_epoch(connection, subscription_id)
    return heirs


def note_attempt(
    connection: sqlite3.Connection,
    subscription_id: str,
    stream_id: str,
    partition: EventTypePartition,
    offset: str,
    search_until: str | None,
) -> None:
    """Record that a stream is about to send events up to an offset, if it owns the partition."""
    connection.execute(
        "UPDATE partitions SET sent = ?1, sent_by = ?2, search_until = coalesce(?3, search_until), "
        "failures = CASE WHEN ?3 IS NULL THEN failures ELSE 0 END "
        "WHERE subscription = ?4 AND event_type = ?5 AND partition = ?6 AND session = ?2",
        (offset, stream_id, search_until, subscription_id, *partition),
    )


def note_reason(
    connection: sqlite3.Connection, subscription_id: str, partition: EventTypePartition, offset: str, reason: str
) -> None:
    """Record why an event could not be processed, unless it is committed."""
    connection.execute(
        "UPDATE partitions SET reason_offset = ?1, reason = ?2 "
        "WHERE subscription = ?3 AND event_type = ?4 AND partition = ?5 AND offset < ?1",
        (offset, reason, subscription_id, *partition),
    )


def count_failures(connection: sqlite3.Connection, subscription_id: str, stream_id: str) -> None:
    """Count a failure for each partition that its stream has lost with uncommitted events."""
    connection.execute(
        "UPDATE partitions SET failures = failures + (sent > offset), sent_by = '' "
        "WHERE subscription = ?1 AND sent_by = ?2 AND session != ?2",
        (subscription_id, stream_id),
    )


def increment_epoch(connection: sqlite3.Connection, subscription_id: str) -> None:
    """Increment the epoch: sessions or assignments have changed."""
    connection.execute("UPDATE subscriptions SET epoch = epoch + 1 WHERE id = ?", (subscription_id,))


def advance_cursors(
    connection: sqlite3.Connection, subscription_id: str, cursors: Iterable[tuple[EventTypePartition, str]]
) -> None:
    """Store offsets that are ahead of the stored ones; call `increment_revision` afterwards."""
    also = (
        "failures = 0, reason = CASE WHEN reason_offset <= ?1 THEN '' ELSE reason END, "
        "reason_offset = CASE WHEN reason_offset <= ?1 THEN '' ELSE reason_offset END"
    )
    _set_cursors(connection, subscription_id, cursors, also)


def count_heartbeats(
    connection: sqlite3.Connection, subscription_id: str, counts: Iterable[tuple[EventTypePartition, int]]
) -> None:
    """Count commits that repeated the committed offset; call `increment_revision` afterwards."""
    connection.executemany(
        "UPDATE partitions SET heartbeats = heartbeats + ? WHERE subscription = ? AND event_type = ? AND partition = ?",
        ((count, subscription_id, *key) for key, count in counts),
    )


def reset_cursors(
    connection: sqlite3.Connection, subscription_id: str, cursors: Iterable[tuple[EventTypePartition, str]]
) -> None:
    """Set offsets unconditionally and clear the failures of their partitions."""
    also = "failures = 0, sent = '', sent_by = '', search_until = '', reason_offset = '', reason = ''"
    _set_cursors(connection, subscription_id, cursors, also)
    increment_revision(connection, subscription_id)


def _set_cursors(
    connection: sqlite3.Connection,
    subscription_id: str,
    cursors: Iterable[tuple[EventTypePartition, str]],
    also: str,
) -> None:
    connection.executemany(
        f"UPDATE partitions SET offset = ?1, {also} "  # noqa: S608 - constants
        "WHERE subscription = ?2 AND event_type = ?3 AND partition = ?4",
        ((offset, subscription_id, *key) for key, offset in cursors),
    )


def increment_revision(connection: sqlite3.Connection, subscription_id: str) -> int:
    """Increment the revision: something was committed; return the new revision."""
    connection.execute("UPDATE subscriptions SET revision = revision + 1 WHERE id = ?", (subscription_id,))
    return load_revision(connection, subscription_id)


def remove_subscription(connection: sqlite3.Connection, subscription_id: str) -> None:
    """Delete everything of a subscription."""
    connection.execute("DELETE FROM subscriptions WHERE id = ?", (subscription_id,))
    for table in ("partitions", "sessions", "resets"):
        connection.execute(f"DELETE FROM {table} WHERE subscription = ?", (subscription_id,))  # noqa: S608 - constants


def rebalance_subscription(connection: sqlite3.Connection, subscription_id: str) -> set[str]:
    """Rebalance; return the streams whose partitions have changed, ended ones included."""
    before = dict(_assignments(connection, subscription_id))
    after = rebalance(before, _sessions(connection, subscription_id))
    moved = [key for key in before if before[key] != after[key]]
    connection.executemany(
        "UPDATE partitions SET session = ?, next_session = ? "
        "WHERE subscription = ? AND event_type = ? AND partition = ?",
        ((*after[key], subscription_id, *key) for key in moved),
    )
    increment_epoch(connection, subscription_id)
    return {name for key in moved for name in (*before[key], *after[key]) if name}
