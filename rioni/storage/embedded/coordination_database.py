"""The SQLite file of sessions, assignments and committed cursors, and what can be asked of it and changed in it."""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping

from rioni.domain.ports import Assignment, EventTypePartition, Session, Topology
from rioni.domain.streaming.rebalance import rebalance
from rioni.storage.embedded.events_database import EventsDatabase


class CoordinationDatabase(EventsDatabase):
    """One process's connections to the file; who writes when is decided as for the published events."""

    schema_version = 1
    schema = """
    CREATE TABLE subscriptions (
        id TEXT PRIMARY KEY,
        epoch INTEGER NOT NULL,                 -- grows with every change of sessions and assignments
        revision INTEGER NOT NULL               -- grows with every change of cursors
    ) WITHOUT ROWID;
    CREATE TABLE partitions (
        subscription TEXT NOT NULL,
        place INTEGER NOT NULL,                 -- the order that clients see
        event_type TEXT NOT NULL,
        partition TEXT NOT NULL,
        session TEXT NOT NULL DEFAULT '',
        next_session TEXT NOT NULL DEFAULT '',
        offset TEXT NOT NULL,                   -- of the last event committed
        PRIMARY KEY (subscription, event_type, partition)
    ) WITHOUT ROWID;
    CREATE TABLE sessions (
        id TEXT PRIMARY KEY,
        subscription TEXT NOT NULL,
        worker TEXT NOT NULL,                   -- the process that it lives and dies with
        requested TEXT NOT NULL                 -- JSON, pairs of event type and partition
    ) WITHOUT ROWID;
    CREATE INDEX sessions_of_subscriptions ON sessions (subscription);
    CREATE INDEX sessions_of_workers ON sessions (worker);
    CREATE TABLE resets (                       -- of cursors, while they wait for streams to end
        subscription TEXT PRIMARY KEY,
        worker TEXT NOT NULL
    ) WITHOUT ROWID;
    """


# --- reading ---


def load_topology(connection: sqlite3.Connection, subscription_id: str) -> Topology:
    """Who reads what, as the connection's transaction sees it."""
    epoch = connection.execute("SELECT epoch FROM subscriptions WHERE id = ?", (subscription_id,)).fetchone()
    resetting = connection.execute("SELECT 1 FROM resets WHERE subscription = ?", (subscription_id,)).fetchone()
    return Topology(
        epoch[0] if epoch else 0,
        dict(_assignments(connection, subscription_id)),
        {session.id: session for session in _sessions(connection, subscription_id)},
        resetting is not None,
    )


def load_cursors(connection: sqlite3.Connection, subscription_id: str) -> Mapping[EventTypePartition, str]:
    """The committed offsets."""
    rows = connection.execute(
        "SELECT event_type, partition, offset FROM partitions WHERE subscription = ? ORDER BY place",
        (subscription_id,),
    )
    return {EventTypePartition(event_type, partition): offset for event_type, partition, offset in rows}


def workers_named(connection: sqlite3.Connection) -> set[str]:
    """All processes that something depends on."""
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
        "SELECT id, requested FROM sessions WHERE subscription = ? ORDER BY id", (subscription_id,)
    )
    for name, requested in rows:
        yield Session(name, frozenset(EventTypePartition(*pair) for pair in json.loads(requested)))


# --- changing; every function needs a transaction ---


def add_subscription(
    connection: sqlite3.Connection, subscription_id: str, cursors: Mapping[EventTypePartition, str]
) -> bool:
    """Lay down the partitions; say whether that was not done before."""
    added = connection.execute("INSERT OR IGNORE INTO subscriptions VALUES (?, 1, 1)", (subscription_id,)).rowcount
    if added:
        connection.executemany(
            "INSERT INTO partitions (subscription, place, event_type, partition, offset) VALUES (?, ?, ?, ?, ?)",
            ((subscription_id, place, *key, offset) for place, (key, offset) in enumerate(cursors.items())),
        )
    return bool(added)


def add_session(connection: sqlite3.Connection, subscription_id: str, worker: str, session: Session) -> None:
    """Begin a session and rebalance."""
    connection.execute(
        "INSERT INTO sessions VALUES (?, ?, ?, ?)",
        (session.id, subscription_id, worker, json.dumps(sorted(session.requested))),
    )
    _rebalance(connection, subscription_id)


def remove_session(connection: sqlite3.Connection, subscription_id: str, stream_id: str) -> bool:
    """End a session and rebalance; say whether there was one."""
    removed = connection.execute(
        "DELETE FROM sessions WHERE id = ? AND subscription = ?", (stream_id, subscription_id)
    ).rowcount
    if removed:
        _rebalance(connection, subscription_id)
    return bool(removed)


def remove_workers(connection: sqlite3.Connection, workers: Iterable[str]) -> set[str]:
    """End all that depends on processes, rebalance, and return the subscriptions that this concerns."""
    concerned: set[str] = set()
    for worker in workers:
        for table in ("sessions", "resets"):
            rows = connection.execute(
                f"DELETE FROM {table} WHERE worker = ? RETURNING subscription",  # noqa: S608 - constants
                (worker,),
            )
            concerned.update(subscription for (subscription,) in rows.fetchall())
    for subscription in concerned:
        _rebalance(connection, subscription)
    return concerned


def hand_over(
    connection: sqlite3.Connection, subscription_id: str, stream_id: str, partition: EventTypePartition
) -> bool:
    """Give a partition to the session that waits for it, if its owner is this stream; say whether so."""
    given = connection.execute(
        "UPDATE partitions SET session = next_session, next_session = '' "
        "WHERE subscription = ? AND event_type = ? AND partition = ? AND session = ? AND next_session != ''",
        (subscription_id, *partition, stream_id),
    ).rowcount
    if given:
        bump(connection, subscription_id)
    return bool(given)


def bump(connection: sqlite3.Connection, subscription_id: str) -> None:
    """Note that sessions or assignments have changed."""
    connection.execute("UPDATE subscriptions SET epoch = epoch + 1 WHERE id = ?", (subscription_id,))


def set_cursors(
    connection: sqlite3.Connection, subscription_id: str, cursors: Iterable[tuple[EventTypePartition, str]]
) -> None:
    """Store offsets, whatever is stored there now."""
    connection.executemany(
        "UPDATE partitions SET offset = ? WHERE subscription = ? AND event_type = ? AND partition = ?",
        ((offset, subscription_id, *key) for key, offset in cursors),
    )
    connection.execute("UPDATE subscriptions SET revision = revision + 1 WHERE id = ?", (subscription_id,))


def remove_subscription(connection: sqlite3.Connection, subscription_id: str) -> None:
    """Remove everything."""
    connection.execute("DELETE FROM subscriptions WHERE id = ?", (subscription_id,))
    for table in ("partitions", "sessions", "resets"):
        connection.execute(f"DELETE FROM {table} WHERE subscription = ?", (subscription_id,))  # noqa: S608 - constants


def _rebalance(connection: sqlite3.Connection, subscription_id: str) -> None:
    before = dict(_assignments(connection, subscription_id))
    after = rebalance(before, _sessions(connection, subscription_id))
    connection.executemany(
        "UPDATE partitions SET session = ?, next_session = ? "
        "WHERE subscription = ? AND event_type = ? AND partition = ?",
        ((*after[key], subscription_id, *key) for key in before if before[key] != after[key]),
    )
    bump(connection, subscription_id)
