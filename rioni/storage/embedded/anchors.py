"""The anchors of the embedded stores and their marks; see `rioni.domain.system.anchors`."""

import sqlite3
from pathlib import Path
from typing import NamedTuple

from rioni.domain.hash_chain import LogHead
from rioni.domain.system.anchors import Anchor, Marks
from rioni.domain.timelines.position import EventTypePartition
from rioni.storage.embedded.sqlite_file import SQLiteFile
from rioni.storage.sql.read_only import opened_read_only
from rioni.storage.sql.store_marks import ends_text, topic_mark


# --- Reads and writes the anchor of an SQLite file and its marks; see `rioni.domain.system.anchors` ---

ANCHOR_SCHEMA = """
CREATE TABLE anchor (                      -- one row at most: what ties the file to its installation
    one INTEGER PRIMARY KEY CHECK (one = 1),
    installation TEXT NOT NULL,
    log_position INTEGER NOT NULL,         -- an entry of the internal log that was recorded before
    log_hash BLOB NOT NULL,
    sequence INTEGER NOT NULL              -- grows with changes of the file, where it has no other mark
);
"""

_SELECT = "SELECT installation, log_position, log_hash, sequence FROM anchor"
_SELECT_ENDS = "SELECT topic, number, next FROM partitions ORDER BY topic, number"
_SELECT_CHANGED = """
    SELECT topic, number, next FROM partitions
    WHERE topic IN (SELECT topic FROM partitions WHERE recorded_at_ms >= ?) ORDER BY topic, number
"""

Ends = dict[str, list[int]]
"""The next position of every partition of each topic, by number."""


class Found(NamedTuple):
    """The anchor and marks that a file contains."""

    anchor: Anchor | None
    """None if it has not been anchored yet."""
    sequence: int = 0
    ends: Ends = {}  # noqa: RUF012 - never changed
    """The end positions of an event store."""
    version: int = 0
    """The version of the file's schema."""


def read_anchor(connection: sqlite3.Connection) -> tuple[Anchor | None, int]:
    """Return the anchor, or None, and the sequence number."""
    row = connection.execute(_SELECT).fetchone()
    if row is None:
        return None, 0
    installation, position, last, sequence = row
    return Anchor(installation, LogHead(position, last)), sequence


def write_anchor(connection: sqlite3.Connection, anchor: Anchor, sequence: int = 0) -> None:
    """Store an anchor; needs a transaction."""
    connection.execute("INSERT OR REPLACE INTO anchor VALUES (1, ?, ?, ?, ?)", (anchor[0], *anchor.log, sequence))


def read_ends(connection: sqlite3.Connection, since_ms: int | None = None) -> Ends:
    """Return the end positions of an event store's topics; with `since_ms`, only of those that have grown since."""
    rows = connection.execute(_SELECT_ENDS) if since_ms is None else connection.execute(_SELECT_CHANGED, (since_ms,))
    ends: Ends = {}
    for topic, _, position in rows:
        ends.setdefault(topic, []).append(position)
    return ends


def inspect(path: Path) -> Found:
    """Read the anchor and marks of an existing file of any version; read-only, blocks on the disk.

    Raises:
        sqlite3.Error: the file can't be read.
    """
    with opened_read_only(path) as connection:
        tables = _tables(connection)
        anchor, sequence = read_anchor(connection) if "anchor" in tables else (None, 0)
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        return Found(anchor, sequence, read_ends(connection) if "chunks" in tables else {}, version)


def table_names(path: Path) -> set[str]:
    """Return the names of the tables of an SQLite file; as `inspect`."""
    with opened_read_only(path) as connection:
        return _tables(connection)


def _tables(connection: sqlite3.Connection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def committed_offsets(path: Path) -> list[tuple[str, EventTypePartition, str]]:
    """Return subscription, partition and offset of every committed cursor of a coordination database; as `inspect`."""
    with opened_read_only(path) as connection:
        rows = connection.execute("SELECT subscription, event_type, partition, offset FROM partitions").fetchall()
    return [(subscription, EventTypePartition(*key), offset) for subscription, *key, offset in rows]


# --- Writes the anchors of the embedded stores and reads their marks, cheaply when nothing has changed ---

COORDINATION = "coordination"
"""Key of the coordination database's mark."""

OVERLAP_MS = 60_000
"""Topics that grew within this time before the last read are read again: clocks may be set back a little."""

_CHANGES = "SELECT count(*) + total(epoch) + total(revision) FROM subscriptions"


class EventAnchors:
    """Anchors an event store; its marks are the end positions of its topics."""

    def __init__(self, database: SQLiteFile) -> None:
        self._database = database
        self._since_ms: int | None = None

    def note(self, anchor: Anchor, now_ms: int, *, everything: bool) -> Marks:
        """Implement `Anchored.anchor`; blocks on the disk."""
        with self._database.reading() as connection:
            stored, _ = read_anchor(connection)
        if stored != anchor:
            with self._database.writing() as connection:
                write_anchor(connection, anchor)
        since_ms = None if everything else self._since_ms
        with self._database.reading() as connection:
            ends: Ends = read_ends(connection, since_ms)
        self._since_ms = now_ms - OVERLAP_MS
        return {topic_mark(topic): ends_text(each) for topic, each in ends.items()}


class CoordinationAnchors:
    """Anchors the coordination database; its mark is a sequence number that grows with every change."""

    def __init__(self, database: SQLiteFile) -> None:
        self._database = database
        self._noted: tuple[Anchor, float] | None = None
        self._sequence = 0

    def note(self, anchor: Anchor) -> Marks:
        """Implement `Anchored.anchor`; blocks on the disk."""
        ((changes,),) = self._database.fetch(_CHANGES)
        if self._noted != (anchor, changes):
            with self._database.writing() as connection:
                self._sequence = read_anchor(connection)[1] + 1
                write_anchor(connection, anchor, self._sequence)
            self._noted = anchor, changes
        return {COORDINATION: str(self._sequence)}
