"""Compacts topics: keeps only the last event of each key in a partition.

Source: reference event-types#cleanup-policy.

The append records, in its own transaction, the position of each key's last event, and the events superseded by it.
Compaction later visits only these. A removed event leaves an empty event behind, as a deletion does: positions stay
dense, and cursors stay valid.
"""

import sqlite3
from array import array
from collections.abc import Iterable, Iterator, Sequence

from rioni.domain.ports.event_store import Chunk
from rioni.domain.publishing.headers import COMPACTED
from rioni.storage.embedded.events.chunk_chain import kept_digests
from rioni.storage.embedded.events.chunks import (
    CHAINED_COLUMNS,
    ChainedRow,
    Damage,
    DamagedEvents,
    chunk_key,
    decode,
    encode,
)
from rioni.storage.embedded.events.database import EventsDatabase
from rioni.storage.embedded.events.partitions import Partition, find_all
from rioni.storage.embedded.events.task_steps import Steps
from rioni.storage.short_hash import short_hash


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
