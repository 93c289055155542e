"""Partitions of the event store: their offsets, whether they are closed, and how a loss of events is padded."""

import sqlite3
import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rioni.domain.errors import Conflict, NotFound, Unavailable
from rioni.domain.publishing.headers import COMPACTED
from rioni.storage.embedded.events.chunks import PARTITION_ID_MAX, Damage, DamagedEvents, EventRun, encode_chain, join
from rioni.storage.embedded.events.database import EventsDatabase


# --- Reads and creates the event store's partitions: their first and next offsets, with checksums ---

_CHECKED = struct.Struct("<qqqqq")
_COLUMNS = "id, oldest, next, recorded_at_ms, checksum"
SELECT_PARTITION = f"SELECT {_COLUMNS} FROM partitions WHERE topic = ? AND number = ?"  # noqa: S608 - constants
_SELECT_COMPACTED = f"SELECT {_COLUMNS}, compacted FROM partitions WHERE topic = ? AND number = ?"  # noqa: S608 - constants
_SELECT_CHAIN = f"SELECT {_COLUMNS}, head, foot, chained_from FROM partitions WHERE topic = ? AND number = ?"  # noqa: S608 - constants
_SELECT_TOPIC = f"SELECT {_COLUMNS} FROM partitions WHERE topic = ? ORDER BY number"  # noqa: S608 - constants
_INSERT = f"INSERT INTO partitions (topic, number, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - constants


class Partition(NamedTuple):
    """The row of a partition."""

    id: int
    """Never reused, even if the topic is deleted and recreated."""
    oldest: int
    """The first readable position; always the first of a chunk, or `next`."""
    next: int
    """The position of the next event."""
    recorded_at_ms: int
    """When the last chunk was recorded."""

    def checksum(self, topic: str, number: int) -> int:
        """Return the CRC-32 of the row."""
        return zlib.crc32(topic.encode(), zlib.crc32(_CHECKED.pack(number, *self)))


def check(topic: str, number: int, row: Sequence[int]) -> Partition:
    """Create a partition from a row's id, oldest, next, recorded_at_ms and checksum.

    Raises:
        DamagedEvents: the row differs from what was written.
    """
    try:
        partition = Partition(*row[:4])
        if partition.checksum(topic, number) == row[4]:
            return partition
    except struct.error:
        pass
    raise DamagedEvents(Damage(topic, number, -1, "the record of its first and last position is wrong"))


def find(database: EventsDatabase, topic: str, number: int) -> Partition:
    """Return the state of one partition.

    Raises:
        NotFound: topic or partition unknown.
        DamagedEvents: the row differs from what was written.
    """
    for row in database.fetch(SELECT_PARTITION, (topic, number)):
        return check(topic, number, row)
    raise not_found(topic, number)


def find_compacted(database: EventsDatabase, topic: str, number: int) -> tuple[Partition, int]:
    """Return the state of one partition, and a counter that grows with each compaction of its chunks.

    Raises:
        NotFound: topic or partition unknown.
        DamagedEvents: the row differs from what was written.
    """
    for *row, compacted in database.fetch(_SELECT_COMPACTED, (topic, number)):
        return check(topic, number, row), compacted
    raise not_found(topic, number)


class Chain(NamedTuple):
    """The hash chain over the chunks of a partition."""

    head: bytes
    """The hash of the last chunk; empty if no chunk has one."""
    foot: bytes
    """The hash of the last chunk that was deleted; empty if it had none."""
    begin: int
    """The position of the first event that the chain covers; chunks before it were stored by an older release."""


def find_chain(database: EventsDatabase, topic: str, number: int) -> tuple[Partition, Chain]:
    """Return the state of one partition and of its hash chain.

    Raises:
        NotFound: topic or partition unknown.
        DamagedEvents: the row differs from what was written.
    """
    for *row, head, foot, begin in database.fetch(_SELECT_CHAIN, (topic, number)):
        try:
            return check(topic, number, row), Chain(bytes.fromhex(head), bytes.fromhex(foot), begin)
        except (TypeError, ValueError) as ex:
            raise DamagedEvents(Damage(topic, number, -1, "the record of its hash chain is wrong")) from ex
    raise not_found(topic, number)


def find_all(database: EventsDatabase, topic: str) -> list[Partition]:
    """Return the states of a topic's partitions by number; empty if the topic does not exist.

    Raises:
        DamagedEvents: a row differs from what was written.
    """
    rows = database.fetch(_SELECT_TOPIC, (topic,))
    # Checked against the expected number: after a missing row, the next one's checksum does not match.
    return [check(topic, number, row) for number, row in enumerate(rows)]


def names(database: EventsDatabase) -> set[str]:
    """Return the names of all topics; blocks on the disk."""
    return {topic for (topic,) in database.fetch("SELECT DISTINCT topic FROM partitions")}


def create(database: EventsDatabase, topic: str, partitions: int) -> None:
    """Create a topic, unless it exists with the same number of partitions; blocks on the disk.

    Raises:
        Conflict: it exists with another number of partitions.
        Unavailable: the store can't write, or all partition ids are used up.
    """
    with database.writing() as connection:
        (existing,) = connection.execute("SELECT count(*) FROM partitions WHERE topic = ?", (topic,)).fetchone()
        if existing not in {0, partitions}:
            raise Conflict(f"topic {topic} exists with {existing} partitions")
        insert_partitions(connection, topic, range(existing, partitions))


def extend(database: EventsDatabase, topic: str, partitions: int) -> None:
    """Add partitions up to a number; blocks on the disk.

    Raises:
        NotFound: the topic does not exist.
        Unavailable: the store can't write, or all partition ids are used up.
    """
    with database.writing() as connection:
        (existing,) = connection.execute("SELECT count(*) FROM partitions WHERE topic = ?", (topic,)).fetchone()
        if not existing:
            raise NotFound(f"topic {topic} does not exist")
        insert_partitions(connection, topic, range(existing, partitions))


def insert_partitions(connection: sqlite3.Connection, topic: str, numbers: Iterable[int]) -> None:
    """Add empty partitions; needs a transaction.

    Raises:
        Unavailable: all partition ids are used up.
    """
    for number in numbers:
        (last_id,) = connection.execute("SELECT max(seq) FROM sqlite_sequence").fetchone()
        partition = Partition((last_id or 0) + 1, 0, 0, 0)
        if partition.id > PARTITION_ID_MAX:
            raise Unavailable(f"The event store has had {PARTITION_ID_MAX} partitions. Begin a new data directory.")
        connection.execute(_INSERT, (topic, number, *partition, partition.checksum(topic, number)))


def not_found(topic: str, number: int) -> NotFound:
    """Return the error for an unknown topic or partition."""
    return NotFound(f"topic {topic} has no partition {number}, or does not exist")


# --- Closes topics, so that they reject appends; the mark is set in a transaction ---
#
# Appends are transactions of the same file. So each comes before the mark, and its events are within the bounds that
# closing returns, or after it, and is rejected, regardless of its process and of how long it has waited.


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


# --- Pads a partition that lost events, so that no offset is assigned twice ---

PADDED_EVENTS = 10_000
"""Maximum number of lost events that one chunk replaces."""

_UPDATE = "UPDATE partitions SET oldest = ?, next = ?, checksum = ?, head = ? WHERE id = ?"
_INSERT_CHUNK = "INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"


def pad(database: EventsDatabase, topic: str, ends: Sequence[int]) -> int:
    """Create a topic's missing partitions, and extend each at least to an end position; blocks on the disk.

    The positions in between count as events removed by compaction; those of an empty partition as expired.

    Args:
        database: the database of the event store.
        topic: created if it does not exist.
        ends: minimum position of the next event, for each partition by number.

    Returns:
        The number of lost events.

    Raises:
        DamagedEvents: the record of a partition is damaged.
        Unavailable: the store can't write.
    """
    lost = 0
    with database.writing() as connection:
        (existing,) = connection.execute("SELECT count(*) FROM partitions WHERE topic = ?", (topic,)).fetchone()
        insert_partitions(connection, topic, range(existing, len(ends)))
        for number, end in enumerate(ends):
            row = connection.execute(SELECT_PARTITION, (topic, number)).fetchone()
            partition = check(topic, number, row)
            if partition.next < end:
                lost += end - partition.next
                _pad(connection, topic, number, partition, end)
    return lost


def _pad(connection: sqlite3.Connection, topic: str, number: int, partition: Partition, end: int) -> None:
    oldest = partition.oldest
    (head,) = connection.execute("SELECT head FROM partitions WHERE id = ?", (partition.id,)).fetchone()
    heads = {partition.id: bytes.fromhex(head)} if head else {}
    if oldest == partition.next:
        oldest = end
    else:
        for first in range(partition.next, end, PADDED_EVENTS):
            count = min(PADDED_EVENTS, end - first)
            piece = EventRun(b"," * (count - 1), [1] * count, [COMPACTED] * count)
            chunks = join([piece], first, partition.recorded_at_ms)
            connection.executemany(_INSERT_CHUNK, encode_chain(((partition.id, chunk) for chunk in chunks), heads))
    after = partition._replace(oldest=oldest, next=end)
    connection.execute(
        _UPDATE, (oldest, end, after.checksum(topic, number), heads.get(partition.id, b"").hex(), partition.id)
    )
