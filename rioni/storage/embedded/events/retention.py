"""Removes events in small steps: by age, and in compacted topics all but the last of each key."""

import contextlib
import sqlite3
import time
from array import array
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import TypeVar

from rioni.domain.ports.event_store import Chunk
from rioni.domain.ports.host import ThreadPool
from rioni.domain.publishing.headers import COMPACTED
from rioni.storage.clock import CLOCK_JUMP_MAX_MS
from rioni.storage.embedded.events.chunks import (
    CHAINED_COLUMNS,
    POSITION_MAX,
    ChainedRow,
    Damage,
    DamagedEvents,
    chunk_key,
    decode,
    encode,
    kept_digests,
)
from rioni.storage.embedded.events.database import EventsDatabase
from rioni.storage.embedded.events.partitions import SELECT_PARTITION, Partition, check, find_all
from rioni.storage.event_stores import short_hash


# --- Splits long-running work into pool tasks of a few seconds ---

T = TypeVar("T")

Steps = Generator[None, None, T]
"""Work that yields after each of its transactions."""

STEP_S = 5.0
"""Duration of one task; a transaction already started is finished."""


def in_steps(pool: ThreadPool, work: Steps[T]) -> T:
    """Run the work in several tasks, return its result or raise its error; blocks only the caller.

    A single task would count as hanging once it exceeds its pool's deadline, even if it makes progress.

    Args:
        pool: the pool that runs the tasks.
        work: stops if a task can't be run; its finished transactions remain.
    """
    while True:
        ended, result = pool(_step, work)
        if ended:
            return result  # type: ignore[return-value]  # there is one now


def _step(work: Steps[T]) -> tuple[bool, T | None]:
    """Run one task; return whether the work has ended, and its result."""
    end_s = time.monotonic() + STEP_S
    try:
        next(work)
        while time.monotonic() < end_s:
            next(work)
    except StopIteration as ex:
        return True, ex.value
    return False, None


# --- Compacts topics: keeps only the last event of each key in a partition ---
#
# Source: reference event-types#cleanup-policy.
#
# The append records, in its own transaction, the position of each key's last event, and the events superseded by it.
# Compaction later visits only these. A removed event leaves an empty event behind, as a deletion does: positions stay
# dense, and cursors stay valid.

COMPACTED_EVENTS = 2_000
"""Maximum number of events that one transaction removes, while appends wait: some ten milliseconds."""

DELETED_KEYS_MAX = 5_000
"""Maximum number of keys of expired events that one transaction deletes."""

# The table's trigger records the previous last event of the key as superseded.
_INSERT_KEY = """
    INSERT INTO keys VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET
        position = excluded.position, recorded_at_ms = excluded.recorded_at_ms
"""
_INSERT_SUPERSEDED = "INSERT OR IGNORE INTO superseded VALUES (?, ?, ?)"
_SELECT_SUPERSEDED = f"""
    SELECT recorded_at_ms, position FROM superseded WHERE partition_id = ? AND recorded_at_ms < ?
    ORDER BY recorded_at_ms, position LIMIT {COMPACTED_EVENTS}
"""  # noqa: S608 - constants
_DELETE_SUPERSEDED = "DELETE FROM superseded WHERE partition_id = ? AND recorded_at_ms = ? AND position = ?"
_SELECT_COVERING = f"SELECT {CHAINED_COLUMNS} FROM chunks WHERE key BETWEEN ? AND ? ORDER BY key DESC LIMIT 1"  # noqa: S608 - constants
_UPDATE_CHUNK = "UPDATE chunks SET checksum = ?, ends = ?, data = ?, headers = ?, digests = ? WHERE key = ?"
_UPDATE_COMPACTED = "UPDATE partitions SET compacted = compacted + 1 WHERE id = ?"
_DELETE_KEY = "DELETE FROM keys WHERE partition_id = ? AND hash = ? AND position = ?"
_DELETE_EXPIRED_KEYS = f"""
    DELETE FROM keys WHERE (partition_id, hash) IN (
        SELECT partition_id, hash FROM keys WHERE partition_id = ? AND position < ? LIMIT {DELETED_KEYS_MAX}
    )
"""  # noqa: S608 - constants
_DELETE_ALL_SUPERSEDED = f"""
    DELETE FROM superseded WHERE (partition_id, recorded_at_ms, position) IN (
        SELECT partition_id, recorded_at_ms, position FROM superseded WHERE partition_id = ? LIMIT {DELETED_KEYS_MAX}
    )
"""  # noqa: S608 - constants


def note_keys(connection: sqlite3.Connection, written: Iterable[tuple[int, Chunk]]) -> None:
    """Record the keys of chunks that are being appended, in their transaction.

    PERF: 3 µs for an event that has a key; nothing for chunks without headers.
    """
    keys: list[tuple[int, bytes, int, int]] = []
    deletions: list[tuple[int, int, int]] = []
    for partition_id, chunk in written:
        begin = 0
        for position, (end, headers) in enumerate(zip(chunk.ends, chunk.headers or (), strict=False), chunk.first):
            if headers.key is not None:
                keys.append((partition_id, short_hash(headers.key), position, chunk.recorded_at_ms))
                if begin == end:
                    deletions.append((partition_id, chunk.recorded_at_ms, position))
            begin = end + 1
    if keys:
        connection.executemany(_INSERT_KEY, keys)
        connection.executemany(_INSERT_SUPERSEDED, deletions)


def compact(database: EventsDatabase, topic: str, before_ms: int) -> Steps[dict[int, int]]:
    """Remove the events of a topic that were superseded, or are deletions, before a time; blocks on the disk.

    Returns:
        The number of events removed, by partition id; only partitions with removed events.

    Raises:
        DamagedEvents: a chunk is damaged; everything before it is compacted.
    """
    removed: dict[int, int] = {}
    for number, partition in enumerate(find_all(database, topic)):
        yield from _forget_keys(database, partition.id, partition.oldest)
        # Queried without the lock first: usually there is nothing to do.
        while found := database.fetch(_SELECT_SUPERSEDED, (partition.id, before_ms)):
            try:
                with database.writing() as connection:
                    removed[partition.id] = removed.get(partition.id, 0) + _compact(connection, partition.id, found)
            except ValueError as ex:
                raise DamagedEvents(Damage(topic, number, found[0][1], str(ex))) from ex
            yield
    return {partition_id: count for partition_id, count in removed.items() if count}


def delete_keys(connection: sqlite3.Connection, partition_id: int) -> None:
    """Delete the keys and superseded events of a deleted partition."""
    connection.execute("DELETE FROM keys WHERE partition_id = ?", (partition_id,))
    connection.execute("DELETE FROM superseded WHERE partition_id = ?", (partition_id,))


def _compact(connection: sqlite3.Connection, partition_id: int, found: Sequence[tuple[int, int]]) -> int:
    removed = 0
    positions = sorted(position for _, position in found)
    while positions:
        covering = (chunk_key(partition_id, 0), chunk_key(partition_id, positions[0]))
        row = connection.execute(_SELECT_COVERING, covering).fetchone()
        chunk = decode(row[:7]) if row else None
        if chunk is None or chunk.next <= positions[0]:
            del positions[0]  # expired, and gone with its chunk
            continue
        gone = [position for position in positions if position < chunk.next]
        positions = positions[len(gone) :]
        removed += _rewrite(connection, partition_id, chunk, gone, row)
    if removed:
        connection.execute(_UPDATE_COMPACTED, (partition_id,))
    # Another process may have done the same; then these rows are already deleted.
    connection.executemany(_DELETE_SUPERSEDED, [(partition_id, at_ms, position) for at_ms, position in found])
    return removed


def _rewrite(
    connection: sqlite3.Connection, partition_id: int, chunk: Chunk, gone: Sequence[int], row: ChainedRow
) -> int:
    """Remove events from a chunk; return how many it contained."""
    assert chunk.headers is not None, "every superseded event has a key"
    headers = list(chunk.headers)
    events = [chunk.cut(position, position + 1) for position in range(chunk.first, chunk.next)]
    removed = 0
    for index in (position - chunk.first for position in gone):
        if headers[index] == COMPACTED:
            continue
        if not events[index]:
            # A deletion that is still the last event of its key: remove the key as well.
            key = headers[index].key
            assert key is not None, "a deletion has a key"
            connection.execute(_DELETE_KEY, (partition_id, short_hash(key), chunk.first + index))
        events[index], headers[index] = b"", COMPACTED
        removed += 1
    ends = array("I", _ends(events))
    after = Chunk(chunk.first, chunk.recorded_at_ms, b",".join(events), ends, headers)
    row_key, _, _, *columns = encode(partition_id, after)
    chained, kept = row[7], row[8]
    digests = kept_digests(chunk, kept, after) if chained else b""
    connection.execute(_UPDATE_CHUNK, (*columns, digests, row_key))
    return removed


def _ends(events: Iterable[bytes]) -> Iterator[int]:
    end = -1
    for event in events:
        end += len(event) + 1
        yield end


def delete_all_keys(database: EventsDatabase, partition: Partition) -> Steps[None]:
    """Delete the keys of a partition without remaining events, in small transactions; blocks on the disk."""
    yield from _forget_keys(database, partition.id, partition.next)
    while database.fetch("SELECT 1 FROM superseded WHERE partition_id = ? LIMIT 1", (partition.id,)):
        with database.writing() as connection:
            connection.execute(_DELETE_ALL_SUPERSEDED, (partition.id,))
        yield


def _forget_keys(database: EventsDatabase, partition_id: int, oldest: int) -> Steps[None]:
    deleted = DELETED_KEYS_MAX
    while deleted == DELETED_KEYS_MAX:
        asked = (partition_id, oldest)
        if not database.fetch("SELECT 1 FROM keys WHERE partition_id = ? AND position < ? LIMIT 1", asked):
            return
        with database.writing() as connection:
            deleted = connection.execute(_DELETE_EXPIRED_KEYS, asked).rowcount
        yield


# --- Finds events by age and deletes them, in small transactions that delay appends only briefly ---

REMOVED_CHUNKS = 64
"""Maximum number of chunks that one transaction deletes: about 4 MiB, some milliseconds."""

# The recording time of the first chunk after one with a wrong time; it was stored no earlier than that one.
_SELECT_NEXT_TIME = """
    SELECT recorded_at_ms FROM chunks WHERE key > ? AND key < ? AND recorded_at_ms <= ? ORDER BY key LIMIT 1
"""
_SELECT_YOUNGER = """
    SELECT key FROM chunks WHERE key >= ? AND key < ? AND recorded_at_ms BETWEEN ? AND ? ORDER BY key LIMIT 1
"""
_SELECT_COVERING_TIME = (
    "SELECT key, recorded_at_ms, count FROM chunks WHERE key BETWEEN ? AND ? ORDER BY key DESC LIMIT 1"
)
# Searches as reads do: from the chunk containing the position on, or from the next one if that is deleted.
_SELECT_TIME = """
    SELECT recorded_at_ms FROM chunks
    WHERE key >= coalesce((SELECT max(key) FROM chunks WHERE key BETWEEN ? AND ?), ?) AND key < ? ORDER BY key LIMIT 1
"""
_SELECT_CUT = "SELECT key FROM chunks WHERE key >= ? AND key < ? ORDER BY key LIMIT 1 OFFSET ?"
_SELECT_HASH = "SELECT hash FROM chunks WHERE key >= ? AND key < ? ORDER BY key DESC LIMIT 1"
_DELETE_CHUNKS = "DELETE FROM chunks WHERE key >= ? AND key < ?"


def offset_at_time(database: EventsDatabase, partition: Partition, recorded_at_ms: int, now_ms: int) -> int:
    """Return the position of the first chunk stored at a time or later, or else that after the newest event; blocks.

    Args:
        database: the database of the store.
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
        row = database.fetch(_SELECT_COVERING_TIME, (chunk_key(partition.id, low), chunk_key(partition.id, middle)))
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
