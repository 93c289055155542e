"""Pads a partition that lost events, so that no offset is assigned twice."""

import sqlite3
from collections.abc import Sequence

from rioni.domain.publishing.headers import COMPACTED
from rioni.storage.embedded.events.chunks import Piece, encode_chain, join
from rioni.storage.embedded.events.database import EventsDatabase
from rioni.storage.embedded.events.partitions import SELECT_PARTITION, Partition, check, insert_partitions


PADDED_EVENTS = 10_000
"""Maximum number of lost events that one chunk replaces."""

_UPDATE = "UPDATE partitions SET oldest = ?, next = ?, checksum = ?, head = ? WHERE id = ?"
_INSERT_CHUNK = "INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"


def pad(database: EventsDatabase, topic: str, ends: Sequence[int]) -> int:
    """Create a topic's missing partitions, and extend each at least to an end position; blocks on the disk.

    The positions in between count as events removed by compaction; those of an empty partition as expired.

    Args:
        database: of the event store.
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
            piece = Piece(b"," * (count - 1), [1] * count, [COMPACTED] * count)
            chunks = join([piece], first, partition.recorded_at_ms)
            connection.executemany(_INSERT_CHUNK, encode_chain(((partition.id, chunk) for chunk in chunks), heads))
    after = partition._replace(oldest=oldest, next=end)
    connection.execute(
        _UPDATE, (oldest, end, after.checksum(topic, number), heads.get(partition.id, b"").hex(), partition.id)
    )
