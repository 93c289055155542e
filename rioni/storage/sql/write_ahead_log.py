"""What a COMMIT that failed has left in SQLite's write-ahead log, and how it is made sure that it never comes back.

The log may hold the whole transaction though its fsync failed: while the processes that have the file open live, no
other connection sees it, but the first one that opens the file after them would take it for committed. And after a
failed fsync the kernel may call the lost pages clean, so that a second fsync of the same file handle would succeed
without them. So the outcome is unknown until another connection has emptied the log, or written over what lies behind
its end.
"""

import sqlite3


READERS_TIMEOUT_MS = 200
"""How long a truncating checkpoint waits for readers; writers are blocked meanwhile."""


def empty_log(connection: sqlite3.Connection, busy_timeout_ms: int) -> bool:
    """Copy the write-ahead log into the file and empty it; say whether that was possible, as readers can prevent it.

    Args:
        connection: not in a transaction.
        busy_timeout_ms: set again afterwards.

    Raises:
        sqlite3.Error: the disk fails.
    """
    connection.execute(f"PRAGMA busy_timeout = {READERS_TIMEOUT_MS}")
    ((busy, _, _),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.execute(f"PRAGMA busy_timeout = {busy_timeout_ms}")
    return not busy


def discard_failed_commit(connection: sqlite3.Connection, busy_timeout_ms: int) -> None:
    """Make sure that a transaction whose COMMIT failed is gone for good; needs the right to write.

    Args:
        connection: another one than that which failed, opened after it.
        busy_timeout_ms: that of the connection.

    Raises:
        sqlite3.Error: the disk still fails; the outcome stays unknown.
    """
    if not empty_log(connection, busy_timeout_ms):
        # What is committed next is written over the failed transaction: here, that nothing changes.
        ((version,),) = connection.execute("PRAGMA user_version").fetchall()
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(f"PRAGMA user_version = {version}")
        connection.execute("COMMIT")
