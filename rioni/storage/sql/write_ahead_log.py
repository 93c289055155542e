"""Discards the remains of a failed COMMIT from SQLite's write-ahead log, so that they never reappear.

The log may contain the whole transaction although its fsync failed: while the processes that have the file open live,
no other connection sees it, but the first one to open the file after them would treat it as committed. And after a
failed fsync the kernel may mark the lost pages as clean, so that a second fsync of the same file handle would succeed
without them. So the outcome is unknown until another connection has emptied the log, or overwritten the part after
its end.
"""

import sqlite3


READERS_TIMEOUT_MS = 200
"""How long a truncating checkpoint waits for readers; writers are blocked meanwhile."""


def empty_log(connection: sqlite3.Connection, busy_timeout_ms: int) -> bool:
    """Checkpoint the write-ahead log and empty it; return whether that succeeded, as readers can prevent it.

    Args:
        connection: not in a transaction.
        busy_timeout_ms: restored afterwards.

    Raises:
        sqlite3.Error: the disk fails.
    """
    connection.execute(f"PRAGMA busy_timeout = {READERS_TIMEOUT_MS}")
    ((busy, _, _),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.execute(f"PRAGMA busy_timeout = {busy_timeout_ms}")
    return not busy


def discard_failed_commit(connection: sqlite3.Connection, busy_timeout_ms: int) -> None:
    """Make sure that a transaction whose COMMIT failed is discarded; the caller must hold the write lock.

    Args:
        connection: opened after the failed one.
        busy_timeout_ms: the busy timeout of the connection.

    Raises:
        sqlite3.Error: the disk still fails; the outcome stays unknown.
    """
    if not empty_log(connection, busy_timeout_ms):
        # The next commit overwrites the failed transaction: here, one that changes nothing.
        ((version,),) = connection.execute("PRAGMA user_version").fetchall()
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(f"PRAGMA user_version = {version}")
        connection.execute("COMMIT")
