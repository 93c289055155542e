"""Closes topics, so that they reject appends; the mark is set in a transaction.

Appends are transactions of the same file. So each comes before the mark, and its events are within the bounds that
closing returns, or after it, and is rejected, regardless of its process and of how long it has waited.
"""

import sqlite3

from rioni.domain.errors import NotFound
from rioni.storage.embedded.events.database import EventsDatabase
from rioni.storage.embedded.events.partitions import Partition, find_all


def close(database: EventsDatabase, topic: str) -> list[Partition]:
    """Close a topic and return the states of its partitions, which are final; blocks on the disk.

    Raises:
        NotFound: the topic does not exist.
        DamagedEvents: the state of a partition differs from what was written.
    """
    with database.writing() as connection:
        connection.execute("INSERT OR IGNORE INTO closed_topics VALUES (?)", (topic,))
    if not (partitions := find_all(database, topic)):
        _unmark(database, topic)
        raise NotFound(f"topic {topic} does not exist")
    return partitions


def is_closed(connection: sqlite3.Connection, topic: str) -> bool:
    """Whether a topic is closed, as the connection's transaction sees it."""
    return connection.execute("SELECT 1 FROM closed_topics WHERE topic = ?", (topic,)).fetchone() is not None


def _unmark(database: EventsDatabase, topic: str) -> None:
    with database.writing() as connection:
        connection.execute("DELETE FROM closed_topics WHERE topic = ?", (topic,))
