"""Finds events by age and deletes them, in small transactions that delay appends only briefly."""

import contextlib

from rioni.storage.clock import CLOCK_JUMP_MAX_MS
from rioni.storage.embedded.events.chunks import POSITION_MAX, DamagedEvents, chunk_key
from rioni.storage.embedded.events.compaction import delete_all_keys, delete_keys
from rioni.storage.embedded.events.database import EventsDatabase
from rioni.storage.embedded.events.partitions import SELECT_PARTITION, Partition, check, find_all
from rioni.storage.embedded.events.task_steps import Steps


REMOVED_CHUNKS = 64
"""Maximum number of chunks that one transaction deletes: about 4 MiB, some milliseconds."""

# The recording time of the first chunk after one with a wrong time; it was stored no earlier than that one.
_SELECT_NEXT_TIME = """
    SELECT recorded_at_ms FROM chunks WHERE key > ? AND key < ? AND recorded_at_ms <= ? ORDER BY key LIMIT 1
"""
_SELECT_YOUNGER = """
    SELECT key FROM chunks WHERE key >= ? AND key < ? AND recorded_at_ms BETWEEN ? AND ? ORDER BY key LIMIT 1
"""
_SELECT_COVERING = "SELECT key, recorded_at_ms, count FROM chunks WHERE key BETWEEN ? AND ? ORDER BY key DESC LIMIT 1"
# As events are read: from the chunk containing the position on, or from the next one if that is deleted.
_SELECT_TIME = """
    SELECT recorded_at_ms FROM chunks
    WHERE key >= coalesce((SELECT max(key) FROM chunks WHERE key BETWEEN ? AND ?), ?) AND key < ? ORDER BY key LIMIT 1
"""
_SELECT_CUT = "SELECT key FROM chunks WHERE key >= ? AND key < ? ORDER BY key LIMIT 1 OFFSET ?"
_SELECT_HASH = "SELECT hash FROM chunks WHERE key >= ? AND key < ? ORDER BY key DESC LIMIT 1"
_DELETE_CHUNKS = "DELETE FROM chunks WHERE key >= ? AND key < ?"


def offset_at_time(database: EventsDatabase, partition: Partition, recorded_at_ms: int, now_ms: int) -> int:
    """Return the position of the first chunk stored at a time or later, after the newest if there is none; blocks.

    Args:
        database: of the store.
        partition: to search in.
        recorded_at_ms: the time.
        now_ms: by the clock. A chunk with a later time was stored while the clock was wrong, and counts as stored when
            the next one was.
    """
    latest_ms = now_ms + CLOCK_JUMP_MAX_MS
    end = chunk_key(partition.id, partition.next)
    # Positions are dense and times do not decrease, apart from wrong ones, so a binary search works.
    low, high = partition.oldest, partition.next
    while low < high:
        middle = (low + high) // 2
        row = database.fetch(_SELECT_COVERING, (chunk_key(partition.id, low), chunk_key(partition.id, middle)))
        if not row:
            low = middle + 1  # removed meanwhile
            continue
        key, at_ms, count = row[0]
        if at_ms > latest_ms and (right := database.fetch(_SELECT_NEXT_TIME, (key, end, latest_ms))):
            at_ms = right[0][0]
        if at_ms >= recorded_at_ms:
            high = key & POSITION_MAX
        else:
            low = (key & POSITION_MAX) + count
    return low


def recorded_at_ms(database: EventsDatabase, partition: Partition, first: int) -> int | None:
    """Return when the event at a position, or the next existing one, was stored; None after the newest. Blocks."""
    first = max(first, partition.oldest)
    if first >= partition.next:
        return None
    oldest, begin, end = (chunk_key(partition.id, each) for each in (partition.oldest, first, partition.next))
    rows = database.fetch(_SELECT_TIME, (oldest, begin, begin, end))
    return int(rows[0][0]) if rows else None


def delete_before(database: EventsDatabase, topic: str, before_ms: int, now_ms: int) -> Steps[int]:
    """Delete the chunks of a topic stored before a time and return the number of events; blocks on the disk."""
    removed = 0
    for number, partition in enumerate(find_all(database, topic)):
        stop = _expired_until(database, partition, before_ms, now_ms)
        removed += yield from _remove(database, topic, number, stop)
    return removed


def _expired_until(database: EventsDatabase, partition: Partition, before_ms: int, now_ms: int) -> int:
    """Return the position up to which all chunks are older than a time."""
    stop = offset_at_time(database, partition, before_ms, now_ms)
    # The search may have passed a chunk whose time is too early, from a clock that was behind. PERF: reads no more
    # chunks than are about to be deleted.
    bounds = chunk_key(partition.id, partition.oldest), chunk_key(partition.id, stop)
    younger = database.fetch(_SELECT_YOUNGER, (*bounds, before_ms, now_ms + CLOCK_JUMP_MAX_MS))
    return int(younger[0][0]) & POSITION_MAX if younger else stop


def delete(database: EventsDatabase, topic: str) -> Steps[list[int]]:
    """Delete a topic with its events, if it exists, and return the ids of its partitions; blocks on the disk."""
    # Damaged parts are deleted with the rest below, in one possibly long transaction.
    with contextlib.suppress(DamagedEvents):
        for number, partition in enumerate(find_all(database, topic)):
            yield from _remove(database, topic, number, partition.next)
            yield from delete_all_keys(database, partition)
    with database.writing() as connection:
        ids = [
            partition_id
            for (partition_id,) in connection.execute("SELECT id FROM partitions WHERE topic = ?", (topic,))
        ]
        for partition_id in ids:
            connection.execute(_DELETE_CHUNKS, (chunk_key(partition_id, 0), chunk_key(partition_id + 1, 0)))
            delete_keys(connection, partition_id)
        connection.execute("DELETE FROM partitions WHERE topic = ?", (topic,))
        connection.execute("DELETE FROM closed_topics WHERE topic = ?", (topic,))
    return ids


def _remove(database: EventsDatabase, topic: str, number: int, stop: int) -> Steps[int]:
    """Delete the chunks before a position, the start of a chunk, and return the number of events."""
    removed = 0
    while count := _remove_some(database, topic, number, stop):
        removed += count
        yield
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
        removed = begin, chunk_key(after.id, after.oldest)
        foot = connection.execute(_SELECT_HASH, removed).fetchone()
        connection.execute(_DELETE_CHUNKS, removed)
        connection.execute(
            "UPDATE partitions SET oldest = ?, checksum = ?, foot = ? WHERE id = ?",
            (after.oldest, after.checksum(topic, number), foot[0].hex() if foot else "", after.id),
        )
    return after.oldest - before.oldest
