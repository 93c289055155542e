"""Deduplicates events by id: ids are looked up and stored in the transaction that appends the events."""

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from rioni.domain.publishing.headers import Headers
from rioni.storage.embedded.events.chunks import Piece, split
from rioni.storage.embedded.events.database import EventsDatabase
from rioni.storage.embedded.events.retention import Steps
from rioni.storage.short_hash import HASH_BYTES, short_hash


Batches = Mapping[int, Sequence[bytes]]
AllHeaders = Mapping[int, Sequence[Headers]]
AllIds = Mapping[int, Sequence[str]]

DELETED_IDS_MAX = 5_000
"""Maximum number of ids that one transaction deletes, while appends wait."""

# PERF: all hashes in one value and one call, as every call of sqlite3 releases and reacquires the GIL.
_EACH = """
    WITH RECURSIVE each (n) AS (SELECT 1 UNION ALL SELECT n + :size FROM each WHERE n + :size <= length(:hashes))
"""
_SELECT = f"{_EACH} SELECT hash FROM each CROSS JOIN ids ON hash = substr(:hashes, n, :size)"  # noqa: S608 - constants
_INSERT = f"{_EACH} INSERT INTO ids SELECT substr(:hashes, n, :size), :now_ms FROM each"  # noqa: S608 - constants
_PAGE = f"SELECT hash, recorded_at_ms FROM ids WHERE hash > ? ORDER BY hash LIMIT {DELETED_IDS_MAX}"  # noqa: S608 - constants
_DELETE = f"""
    DELETE FROM ids WHERE hash IN (
        SELECT hash FROM ids WHERE recorded_at_ms < ? ORDER BY recorded_at_ms LIMIT {DELETED_IDS_MAX}
    )
"""  # noqa: S608 - constants


class Identified:
    """A batch whose events have ids, in some or all of its partitions."""

    def __init__(self, batches: Batches, headers: AllHeaders, ids: AllIds) -> None:
        self._batches, self._headers = batches, headers
        self.hashes = {number: [short_hash(each) for each in ids[number]] for number in batches if number in ids}
        """The hash of each event, for partitions whose events have ids."""

    def split(self, number: int, kept: Sequence[int]) -> list[Piece]:
        """Split the remaining events of a partition, given by their indices, into pieces."""
        events, headers = self._batches[number], self._headers.get(number)
        return split([events[index] for index in kept], headers and [headers[index] for index in kept])


class Ids:
    """The ids that a transaction found and adds; blocks on the disk."""

    def __init__(self, connection: sqlite3.Connection, now_ms: int, group: Iterable[Identified]) -> None:
        """Look up the ids of all batches to be appended.

        Args:
            connection: in the appending transaction.
            now_ms: the time of the transaction.
            group: the batches that have ids.
        """
        self._connection, self._now_ms = connection, now_ms
        self._added: list[bytes] = []
        asked = b"".join([each for batch in group for hashes in batch.hashes.values() for each in hashes])
        self._known: set[bytes] = {found for (found,) in self._execute(_SELECT, asked)} if asked else set()

    def claim(self, batch: Identified, pieces: Mapping[int, list[Piece]]) -> Mapping[int, list[Piece]]:
        """Add the ids of a batch, and return its events without the duplicates.

        Args:
            batch: the batch.
            pieces: all of its events.
        """
        left: dict[int, list[Piece]] = {}
        for number, whole in pieces.items():
            hashes = batch.hashes.get(number)
            if hashes is None:
                left[number] = whole
                continue
            kept = [index for index, each in enumerate(hashes) if self._add(each)]
            if kept:
                left[number] = whole if len(kept) == len(hashes) else batch.split(number, kept)
        return left

    def store(self) -> None:
        """Write the added ids."""
        if self._added:
            self._execute(_INSERT, b"".join(self._added))

    def _add(self, hashed: bytes) -> bool:
        if hashed in self._known:
            return False
        self._known.add(hashed)
        self._added.append(hashed)
        return True

    def _execute(self, statement: str, hashes: bytes) -> sqlite3.Cursor:
        return self._connection.execute(statement, {"hashes": hashes, "size": HASH_BYTES, "now_ms": self._now_ms})


def known(database: EventsDatabase, ids: Collection[str]) -> frozenset[str]:
    """Return the ids under which an event is stored; blocks on the disk."""
    names = {short_hash(each): each for each in ids}
    if not names:
        return frozenset()
    rows = database.fetch(_SELECT, {"hashes": b"".join(names), "size": HASH_BYTES})
    return frozenset([names[found] for (found,) in rows])


def delete_before(database: EventsDatabase, before_ms: int) -> Steps[None]:
    """Delete the ids stored before a time; blocks on the disk, appends continue in between."""
    removed = DELETED_IDS_MAX
    while removed == DELETED_IDS_MAX:
        with database.writing() as connection:
            removed = connection.execute(_DELETE, (before_ms,)).rowcount
        yield


def pages(database: EventsDatabase) -> Iterator[Sequence[tuple[bytes, int]]]:
    """Yield the hashes of all ids with the time when their event was stored; blocks on the disk."""
    after = b""
    while rows := database.fetch(_PAGE, (after,)):
        yield rows
        after = rows[-1][0]
