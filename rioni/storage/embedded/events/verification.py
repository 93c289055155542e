"""Checks stored events: opens files to be read only, finds heads of hash chains, and reports all damage."""

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rioni.domain.errors import NotFound, Unavailable
from rioni.domain.system.anchors import ChainHead
from rioni.storage.embedded.data_directory import DataDirectoryError
from rioni.storage.embedded.events.chunks import (
    CHAINED_COLUMNS,
    GENESIS,
    POSITION_BITS,
    POSITION_MAX,
    ChainedRow,
    Damage,
    DamagedEvents,
    chain_hash,
    chunk_key,
    decode,
    digests_fit,
)
from rioni.storage.embedded.events.database import EventsDatabase
from rioni.storage.embedded.events.partitions import Chain, find_chain
from rioni.storage.embedded.sqlite_file import BUSY_TIMEOUT_S
from rioni.storage.sql.read_only import read_only_uri


# --- Reads the SQLite file of an event store without changing anything, not even an older schema ---


class OtherVersion(DataDirectoryError):
    """A file was written by a newer or an older version of Rioni."""


class ReadOnlyDatabase(EventsDatabase):
    """Read-only `EventsDatabase`; writing raises an error."""

    def __init__(self, path: Path) -> None:
        """Open an existing file; blocks on the disk.

        Raises:
            OtherVersion: the file was written by a newer or an older version.
            DamagedEvents: the file is damaged.
            Unavailable: it can't be opened.
        """
        self._path, self._pid, self._closed = path, os.getpid(), False
        self._readers: list[sqlite3.Connection] = []
        self._opened = contextlib.ExitStack()
        try:
            with self._translated():
                self._uri = self._opened.enter_context(read_only_uri(path))
                self._check_version()
        except BaseException:
            self.close()
            raise

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Raise Unavailable: the file is read-only."""
        raise Unavailable(f"{self._path.name} was opened for reading only.")
        yield

    def close(self) -> None:
        """Close all connections; none may be in use."""
        self._closed = True
        while self._readers:
            self._readers.pop().close()
        self._opened.close()

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._uri, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA query_only = ON")
        return connection

    def _check_version(self) -> None:
        ((version,),) = self.fetch("PRAGMA user_version")
        if version > self.schema_version:
            raise OtherVersion(
                f"{self._path} was written by a newer version of Rioni (schema {version}, known here: "
                f"{self.schema_version}). Use that version."
            )
        if version < self.schema_version:
            raise OtherVersion(
                f"{self._path} was written by an older version of Rioni (schema {version}, needed here: "
                f"{self.schema_version}). Use that version, or let `rioni serve` of this one bring it up to date."
            )


# --- Heads of the hash chains of partitions: which have changed since the internal log holds them ---

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
    """Have all heads recorded again: after an accepted loss, those in the log no longer count."""
    connection.execute("UPDATE partitions SET anchored_first = NULL, anchored_next = NULL")


def present_heads(database: EventsDatabase) -> list[ChainHead]:
    """Return the heads of all partitions; blocks on the disk."""
    return [ChainHead(*row) for row in database.fetch(_SELECT_HEADS)]


def hash_at(database: EventsDatabase, head: ChainHead, position: int) -> str:
    """Return the hash of the chunk that ends before a position, in hexadecimal; empty if none ends there.

    Args:
        database: the database of the store.
        head: the present head of the partition.
        position: one that the chain covers.
    """
    for key, count, stored in database.fetch(_SELECT_CHUNK_BEFORE, (head.topic, head.partition, position)):
        if (key & POSITION_MAX) + count == position and isinstance(stored, bytes):
            return stored.hex()
    return ""


# --- Reads every stored event and reports all damage ---

SLICE_CHUNKS = 64
"""Number of chunks read at once: short reads don't delay checkpoints."""

_SELECT_SLICE = f"SELECT {CHAINED_COLUMNS} FROM chunks WHERE key >= ? AND key < ? ORDER BY key LIMIT {SLICE_CHUNKS}"  # noqa: S608 - constants


def verify(database: EventsDatabase, progress: Callable[[int, int], None] = lambda _done, _total: None) -> list[Damage]:
    """Read everything and return all damage; blocks on the disk, without blocking other readers and appends.

    Args:
        database: the database of the events.
        progress: called with the number of events checked and their total.
    """
    damage: list[Damage] = []
    try:
        damage += (Damage("", -1, -1, text) for (text,) in database.fetch("PRAGMA integrity_check") if text != "ok")
        partitions = database.fetch("SELECT topic, number, next - oldest FROM partitions ORDER BY id")
        done, total = 0, sum(count for *_, count in partitions if isinstance(count, int))
        for topic, number, count in partitions:
            damage += _Partition(database, topic, number).verify()
            done += count if isinstance(count, int) else 0
            progress(done, total)
    except DamagedEvents as ex:
        damage.append(ex.damage)
    return damage


class _Partition:
    """The verification of one partition."""

    def __init__(self, database: EventsDatabase, topic: str, number: int) -> None:
        self._database, self._topic, self._number = database, topic, number
        self._position = 0
        """The next position to be checked."""
        self._last: bytes | None = GENESIS
        """The hash of the chunk before it; None if that is unknown, since it is damaged or missing."""
        self._damage: list[Damage] = []

    def verify(self) -> list[Damage]:
        """Return all damage; events appended meanwhile are not checked, and events deleted meanwhile are no damage."""
        stop, head = None, b""
        while stop is None or self._position < stop:
            try:
                partition, chain = find_chain(self._database, self._topic, self._number)
            except NotFound:
                return []  # deleted meanwhile
            except DamagedEvents as ex:
                return [*self._damage, ex.damage]
            if stop is None:
                stop, head = partition.next, chain.head
            if self._position < partition.oldest or self._position == 0:
                self._begin(partition.oldest, chain)
            keys = chunk_key(partition.id, self._position), chunk_key(partition.id, stop)
            rows = self._database.fetch(_SELECT_SLICE, keys)
            for row in rows:
                self._check(row, chained=row[0] & POSITION_MAX >= chain.begin)
            if not rows and self._position < stop:
                self._report(self._position, f"the events before position {stop} are missing")
                return self._damage
        if self._last is not None and head != (b"" if self._last == GENESIS else self._last):
            self._report(self._position, "the last chunk is not the one that the partition's hash chain ends with")
        return self._damage

    def _begin(self, oldest: int, chain: Chain) -> None:
        self._position = oldest
        self._last = (chain.foot or GENESIS) if oldest > chain.begin else GENESIS

    def _check(self, row: ChainedRow, *, chained: bool) -> None:
        first: int = row[0] & POSITION_MAX
        if first != self._position:
            self._report(self._position, f"the events before position {first} are missing")
            self._last = None
        try:
            chunk = decode(row[:7])
            self._position = chunk.next
            previous, self._last = self._last, row[7] if chained else GENESIS
            if tuple(map(type, row[7:])) != (bytes, bytes):
                self._report(first, "the hash or the digests have the wrong type")
                self._last = None
            elif chained and previous is not None and chain_hash(row, previous) != row[7]:
                self._report(first, "the hash does not fit: this chunk, or the hash before it, was changed")
            elif not digests_fit(chunk, row[8]):
                self._report(first, "the digests of events that compaction has removed were changed")
        except ValueError as ex:
            self._report(first, str(ex))
            # Its events are unknown, so that the gap after it will be reported too.
            self._position, self._last = first + 1, None

    def _report(self, position: int, what: str) -> None:
        self._damage.append(Damage(self._topic, self._number, position, what))
