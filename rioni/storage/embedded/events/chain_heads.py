"""Heads of the hash chains of partitions: which have changed since the internal log holds them."""

import sqlite3
from collections.abc import Sequence

from rioni.domain.system.event_chains import ChainHead
from rioni.storage.embedded.events.chunks import POSITION_BITS, POSITION_MAX
from rioni.storage.embedded.events.database import EventsDatabase


_SELECT_UNANCHORED = """
    SELECT topic, number, max(oldest, chained_from), next, head FROM partitions
    WHERE anchored_next IS NOT next OR anchored_first IS NOT max(oldest, chained_from) ORDER BY id LIMIT ?
"""
_SELECT_HEADS = "SELECT topic, number, max(oldest, chained_from), next, head FROM partitions ORDER BY id"
_SELECT_CHUNK_BEFORE = f"""
    SELECT c.key, c.count, c.hash FROM partitions AS p JOIN chunks AS c
    ON c.key >= (p.id << {POSITION_BITS}) AND c.key < (p.id << {POSITION_BITS} | ?3)
    WHERE p.topic = ?1 AND p.number = ?2 ORDER BY c.key DESC LIMIT 1
"""  # noqa: S608 - a constant
_UPDATE_ANCHORED = "UPDATE partitions SET anchored_first = ?, anchored_next = ? WHERE topic = ? AND number = ?"


def unanchored(database: EventsDatabase, limit: int) -> list[ChainHead]:
    """Return heads that have changed since they were noted as anchored; see the port `Chained`."""
    return [ChainHead(*row) for row in database.fetch(_SELECT_UNANCHORED, (limit,))]


def note_anchored(database: EventsDatabase, heads: Sequence[ChainHead]) -> None:
    """Note that the log holds these heads; see the port `Chained`."""
    with database.writing() as connection:
        rows = [(head.first, head.next, head.topic, head.partition) for head in heads]
        connection.executemany(_UPDATE_ANCHORED, rows)


def forget_anchored(connection: sqlite3.Connection) -> None:
    """Have all heads recorded again: what the log held of them counts no more, since a loss was accepted."""
    connection.execute("UPDATE partitions SET anchored_first = NULL, anchored_next = NULL")


def present_heads(database: EventsDatabase) -> list[ChainHead]:
    """Return the heads of all partitions; blocks on the disk."""
    return [ChainHead(*row) for row in database.fetch(_SELECT_HEADS)]


def hash_at(database: EventsDatabase, head: ChainHead, position: int) -> str:
    """Return the hash of the chunk that ends before a position, in hexadecimal; empty if none ends there.

    Args:
        database: of the store.
        head: the present head of the partition.
        position: one that the chain covers.
    """
    for key, count, stored in database.fetch(_SELECT_CHUNK_BEFORE, (head.topic, head.partition, position)):
        if (key & POSITION_MAX) + count == position and isinstance(stored, bytes):
            return stored.hex()
    return ""
