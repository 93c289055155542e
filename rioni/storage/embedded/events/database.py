"""The SQLite file of the published events: its schema, and the record of an interrupted write."""

import contextlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

import structlog

from rioni.storage.embedded.anchors import ANCHOR_SCHEMA
from rioni.storage.embedded.events.chunks import Damage, DamagedEvents
from rioni.storage.embedded.sqlite_file import SQLiteFile


SCHEMA_VERSION = 8

PARTITIONS = """
CREATE TABLE partitions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,  -- never used again, so nothing that is known about one can become wrong
    topic TEXT NOT NULL,
    number INTEGER NOT NULL,
    oldest INTEGER NOT NULL,               -- the first position that can be read
    next INTEGER NOT NULL,                 -- the position of the next event
    recorded_at_ms INTEGER NOT NULL,       -- of the last chunk
    checksum INTEGER NOT NULL,             -- CRC-32 of everything before
    compacted INTEGER NOT NULL DEFAULT 0,  -- grows with each transaction of a compaction: caches are out of date then
    head TEXT NOT NULL DEFAULT '',         -- hash of the last chunk, in hexadecimal; empty before the first
    foot TEXT NOT NULL DEFAULT '',         -- hash of the last chunk that was deleted
    chained_from INTEGER NOT NULL DEFAULT 0,  -- the position at which the hash chain begins
    anchored_first INTEGER,                -- what the internal log holds of the hash chain: where it begins,
    anchored_next INTEGER,                 -- and the position behind its end
    UNIQUE (topic, number)
);
"""

SCHEMA = """
CREATE TABLE chunks (
    key INTEGER PRIMARY KEY,               -- the partition's id and the position of the first event
    recorded_at_ms INTEGER NOT NULL,
    count INTEGER NOT NULL,
    checksum INTEGER NOT NULL,             -- CRC-32 of everything else
    ends BLOB NOT NULL,                    -- for each event the index behind its last byte, uint32, little endian
    data BLOB NOT NULL,                    -- the events' JSON, joined by commas
    headers BLOB NOT NULL DEFAULT x'',     -- for each event what is stored with it, MessagePack; empty for nothing
    hash BLOB NOT NULL DEFAULT x'',        -- SHA-256 over the hash of the chunk before and this chunk; see chunks.link
    digests BLOB NOT NULL DEFAULT x''      -- what the hash needs of events that compaction has removed
);
CREATE TABLE ids (                         -- of events that must not be stored twice
    hash BLOB PRIMARY KEY,                 -- BLAKE2b of the id, 16 bytes
    recorded_at_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX ids_by_time ON ids (recorded_at_ms);
CREATE TABLE claims (
    id TEXT PRIMARY KEY,                   -- the name that a publisher gave to a batch
    digest TEXT NOT NULL,                  -- of that batch
    recorded_at_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX claims_by_time ON claims (recorded_at_ms);
CREATE TABLE closed_topics (
    topic TEXT PRIMARY KEY                 -- nothing may be appended to it any more
) WITHOUT ROWID;
"""

COMPACTION = """
CREATE TABLE keys (                        -- of compacted event types
    partition_id INTEGER NOT NULL,
    hash BLOB NOT NULL,                    -- BLAKE2b of the key, 16 bytes
    position INTEGER NOT NULL,             -- of the last event with this key
    recorded_at_ms INTEGER NOT NULL,       -- of that event
    PRIMARY KEY (partition_id, hash)
) WITHOUT ROWID;
CREATE INDEX keys_by_position ON keys (partition_id, position);
CREATE TABLE superseded (                  -- what the next compaction removes
    partition_id INTEGER NOT NULL,
    recorded_at_ms INTEGER NOT NULL,       -- since when
    position INTEGER NOT NULL,
    PRIMARY KEY (partition_id, recorded_at_ms, position)
) WITHOUT ROWID;
CREATE TRIGGER superseding AFTER UPDATE ON keys WHEN old.position < new.position BEGIN
    INSERT INTO superseded SELECT old.partition_id, new.recorded_at_ms, old.position
    WHERE NOT EXISTS (                     -- a deletion is there already
        SELECT 1 FROM superseded
        WHERE (partition_id, recorded_at_ms, position) = (old.partition_id, new.recorded_at_ms, old.position)
    );
END;
"""

SCHEMA = PARTITIONS + SCHEMA + COMPACTION + ANCHOR_SCHEMA

UPGRADES = {
    1: """
    ALTER TABLE chunks ADD COLUMN headers BLOB NOT NULL DEFAULT x'';
    CREATE TABLE ids (hash BLOB PRIMARY KEY, recorded_at_ms INTEGER NOT NULL) WITHOUT ROWID;
    CREATE INDEX ids_by_time ON ids (recorded_at_ms);
    CREATE TABLE IF NOT EXISTS claims (
        id TEXT PRIMARY KEY, digest TEXT NOT NULL, recorded_at_ms INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS claims_by_time ON claims (recorded_at_ms);
    """,
    2: "CREATE TABLE closed_topics (topic TEXT PRIMARY KEY) WITHOUT ROWID;",
    3: COMPACTION,
    4: ANCHOR_SCHEMA,
    5: "ALTER TABLE partitions ADD COLUMN compacted INTEGER NOT NULL DEFAULT 0;",
    6: """
    ALTER TABLE chunks ADD COLUMN hash BLOB NOT NULL DEFAULT x'';
    ALTER TABLE chunks ADD COLUMN digests BLOB NOT NULL DEFAULT x'';
    ALTER TABLE partitions ADD COLUMN head TEXT NOT NULL DEFAULT '';
    ALTER TABLE partitions ADD COLUMN foot TEXT NOT NULL DEFAULT '';
    ALTER TABLE partitions ADD COLUMN chained_from INTEGER NOT NULL DEFAULT 0;
    UPDATE partitions SET chained_from = next;
    """,
    # Files with this version have or lack the columns `anchored_*`. The next id stays: ids are never used again.
    7: f"""
    ALTER TABLE partitions RENAME TO partitions_7;
    {PARTITIONS}
    INSERT INTO partitions SELECT id, topic, number, oldest, next, recorded_at_ms, checksum, compacted, head, foot,
        chained_from, NULL, NULL FROM partitions_7;
    DELETE FROM sqlite_sequence WHERE name = 'partitions';
    INSERT INTO sqlite_sequence SELECT 'partitions', seq FROM sqlite_sequence WHERE name = 'partitions_7';
    DROP TABLE partitions_7;
    """,  # noqa: S608 - constants
}
"""Upgrades each older schema version to the next one; no chunk is rewritten, so that it takes only milliseconds."""

_log = structlog.get_logger("rioni.storage")


class EventsDatabase(SQLiteFile):
    """One process's connections to the file of the published events."""

    schema = SCHEMA
    schema_version = SCHEMA_VERSION
    upgrades = UPGRADES
    contents = "event store"
    full_disk = "Free space or shorten retention times"

    def __init__(self, path: Path) -> None:
        """Open the file as `SQLiteFile` does.

        Raises:
            DataDirectoryError: the file was written by a newer version.
            DamagedEvents: the file is damaged.
            Unavailable: it can't be opened.
        """
        self._unknown = Path(f"{path}-unknown")
        super().__init__(path)

    def note_unknown(self, ends: Sequence[tuple[str, int, int]]) -> None:
        """Record, if the disk permits, a note from which the next start determines whether a write was stored.

        Args:
            ends: topic, partition, and the position of the next event if the write was stored.
        """
        with contextlib.suppress(OSError):
            self._unknown.write_text(json.dumps(ends))

    def settle_unknown(self) -> None:
        """Determine whether a write whose outcome was unknown when the last broker ended was stored, and log it.

        Call it before any write: SQLite itself has recovered the file when it was opened.
        """
        try:
            ends = json.loads(self._unknown.read_text())
        except (OSError, ValueError):
            return
        for topic, number, end in ends:
            rows = self.fetch("SELECT next FROM partitions WHERE topic = ? AND number = ?", (topic, number))
            outcome = "stored" if rows and rows[0][0] >= end else "not stored"
            where = {"file": self._path.name, "topic": topic, "partition": number, "last_position": end - 1}
            _log.warning("recovered the outcome of an interrupted write", outcome=outcome, **where)
        self._unknown.unlink(missing_ok=True)

    def _committed(self) -> None:
        # The commit overwrote the one whose outcome was unknown, regardless of its process. A disk that fails only now
        # does not change what is committed.
        with contextlib.suppress(OSError):
            if not os.path.exists(self._unknown):  # noqa: PTH110 - PERF: for each commit; pathlib takes 10 µs more
                return
            self._unknown.unlink(missing_ok=True)
            _log.warning("a write whose outcome was unknown was not stored", file=self._path.name)

    def _damaged(self, what: str) -> DamagedEvents:
        return DamagedEvents(Damage("", -1, -1, what))
