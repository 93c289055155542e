"""Finding events by age and removing them, in transactions so small that no append waits for long."""

import contextlib

from rioni.storage.embedded.chunks import POSITION_MAX, DamagedEvents, chunk_key
from rioni.storage.embedded.compaction import forget
from rioni.storage.embedded.events_database import EventsDatabase
from rioni.storage.embedded.partitions import SELECT_PARTITION, Partition, check, find_all


REMOVED_CHUNKS = 64
"""How many chunks one transaction removes: about 4 MiB at most, some milliseconds."""

_SELECT_COVERING = "SELECT key, recorded_at_ms, count FROM chunks WHERE key BETWEEN ? AND ? ORDER BY key DESC LIMIT 1"
# As events are read: from the chunk that holds a position on, or where that is gone from the next one.
_SELECT_TIME = """
    SELECT recorded_at_ms FROM chunks
    WHERE key >= coalesce((SELECT max(key) FROM chunks WHERE key BETWEEN ? AND ?), ?) AND key < ? ORDER BY key LIMIT 1
"""
_SELECT_CUT = "SELECT key FROM chunks WHERE key >= ? AND key < ? ORDER BY key LIMIT 1 OFFSET ?"
_DELETE_CHUNKS = "DELETE FROM chunks WHERE key >= ? AND key < ?"


def first_since(database: EventsDatabase, partition: Partition, recorded_at_ms: int) -> int:
    """The position of the first chunk stored at a time or later, behind the newest where there is none; blocks."""
    # Positions are dense and times never go back, so that this is a binary search.
    low, high = partition.oldest, partition.next
    while low < high:
        middle = (low + high) // 2
        row = database.fetch(_SELECT_COVERING, (chunk_key(partition.id, low), chunk_key(partition.id, middle)))
        if not row:
            low = middle + 1  # removed meanwhile
            continue
        key, at_ms, count = row[0]
        if at_ms >= recorded_at_ms:
            high = key & POSITION_MAX
        else:
            low = (key & POSITION_MAX) + count
    return low


def recorded_at_ms(database: EventsDatabase, partition: Partition, first: int) -> int | None:
    """When the event at a position was stored, or the next one that is left; None behind the newest. Blocks."""
    first = max(first, partition.oldest)
    if first >= partition.next:
        return None
    oldest, begin, end = (chunk_key(partition.id, each) for each in (partition.oldest, first, partition.next))
    rows = database.fetch(_SELECT_TIME, (oldest, begin, begin, end))
    return int(rows[0][0]) if rows else None


def expire(database: EventsDatabase, topic: str, before_ms: int) -> int:
    """Remove the chunks of a topic stored before a time and return the number of events; blocks on the disk."""
    return sum(
        _remove(database, topic, number, first_since(database, partition, before_ms))
        for number, partition in enumerate(find_all(database, topic))
    )


def delete(database: EventsDatabase, topic: str) -> list[int]:
    """Delete a topic with its events, if it exists, and return the ids of its partitions; blocks on the disk."""
    # What is damaged goes with the rest below, in one transaction that may be long.
    with contextlib.suppress(DamagedEvents):
        for number, partition in enumerate(find_all(database, topic)):
            _remove(database, topic, number, partition.next)
    with database.writing() as connection:
        ids = [
            partition_id
            for (partition_id,) in connection.execute("SELECT id FROM partitions WHERE topic = ?", (topic,))
        ]
        for partition_id in ids:
            connection.execute(_DELETE_CHUNKS, (chunk_key(partition_id, 0), chunk_key(partition_id + 1, 0)))
            forget(connection, partition_id)
        connection.execute("DELETE FROM partitions WHERE topic = ?", (topic,))
        connection.execute("DELETE FROM closed_topics WHERE topic = ?", (topic,))
    return ids


def _remove(database: EventsDatabase, topic: str, number: int, stop: int) -> int:
    """Remove the chunks before a position, the begin of one, and return the number of events."""
    removed = 0
    while count := _remove_some(database, topic, number, stop):
        removed += count
    return removed


def _remove_some(database: EventsDatabase, topic: str, number: int, stop: int) -> int:
    with database.writing() as connection:
        row = connection.execute(SELECT_PARTITION, (topic, number)).fetchone()
        if row is None:
            return 0  # deleted meanwhile
        before = check(topic, number, row)
        if before.oldest >= stop:
            return 0
        begin, end = chunk_key(before.id, before.oldest), chunk_key(before.id, stop)
        cut = connection.execute(_SELECT_CUT, (begin, end, REMOVED_CHUNKS)).fetchone()
        after = before._replace(oldest=cut[0] & POSITION_MAX if cut else stop)
        connection.execute(_DELETE_CHUNKS, (begin, chunk_key(after.id, after.oldest)))
        connection.execute(
            "UPDATE partitions SET oldest = ?, checksum = ? WHERE id = ?",
            (after.oldest, after.checksum(topic, number), after.id),
        )
    return after.oldest - before.oldest
