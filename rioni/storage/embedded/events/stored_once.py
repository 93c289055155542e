"""Stores events once: by the ids of events, and by the idempotency keys of batches, in the transaction that appends."""

import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rioni.domain.publishing.headers import Headers, IdempotencyClaim
from rioni.storage.embedded.events.chunks import EventRun, split
from rioni.storage.embedded.events.database import EventsDatabase
from rioni.storage.embedded.events.retention import Steps
from rioni.storage.event_stores import HASH_BYTES, short_hash


Batches = Mapping[int, Sequence[bytes]]
AllHeaders = Mapping[int, Sequence[Headers]]
AllIds = Mapping[int, Sequence[str]]

DELETED_IDS_MAX, DELETED_KEYS_MAX = 5_000, 1_000
"""Maximum numbers of ids and of keys that one transaction deletes, while appends wait: some milliseconds."""

# --- Event ids ---

# PERF: all hashes in one value and one call, as every call of sqlite3 releases and reacquires the GIL.
_EACH = """
    WITH RECURSIVE each (n) AS (SELECT 1 UNION ALL SELECT n + :size FROM each WHERE n + :size <= length(:hashes))
"""
_SELECT = f"{_EACH} SELECT hash FROM each CROSS JOIN ids ON hash = substr(:hashes, n, :size)"  # noqa: S608 - constants
_INSERT = f"{_EACH} INSERT INTO ids SELECT substr(:hashes, n, :size), :now_ms FROM each"  # noqa: S608 - constants
_ID_PAGE = f"SELECT hash, recorded_at_ms FROM ids WHERE hash > ? ORDER BY hash LIMIT {DELETED_IDS_MAX}"  # noqa: S608 - constants
_DELETE_IDS = f"""
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

    def split(self, number: int, kept: Sequence[int]) -> list[EventRun]:
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

    def claim(self, batch: Identified, pieces: Mapping[int, list[EventRun]]) -> Mapping[int, list[EventRun]]:
        """Add the ids of a batch, and return its events without the duplicates.

        Args:
            batch: the batch.
            pieces: all of its events.
        """
        left: dict[int, list[EventRun]] = {}
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


def known_ids(database: EventsDatabase, ids: Collection[str]) -> frozenset[str]:
    """Return the ids under which an event is stored; blocks on the disk."""
    names = {short_hash(each): each for each in ids}
    if not names:
        return frozenset()
    rows = database.fetch(_SELECT, {"hashes": b"".join(names), "size": HASH_BYTES})
    return frozenset([names[found] for (found,) in rows])


def delete_before(database: EventsDatabase, before_ms: int) -> Steps[None]:
    """Delete the ids and keys stored before a time; blocks on the disk, appends continue in between."""
    for statement, most in ((_DELETE_KEYS, DELETED_KEYS_MAX), (_DELETE_IDS, DELETED_IDS_MAX)):
        removed = most
        while removed == most:
            with database.writing() as connection:
                removed = connection.execute(statement, (before_ms,)).rowcount
            yield


def id_pages(database: EventsDatabase) -> Iterator[Sequence[tuple[bytes, int]]]:
    """Yield the hashes of all ids with the time when their event was stored; blocks on the disk."""
    return _pages(database, _ID_PAGE, b"")


def _pages(database: EventsDatabase, query: str, after: bytes | str) -> Iterator[Sequence[Any]]:
    while rows := database.fetch(query, (after,)):
        yield rows
        after = rows[-1][0]


# --- Idempotency keys of batches ---

_SELECT_DIGEST = "SELECT digest FROM claims WHERE id = ?"
_SELECT_DIGESTS = "SELECT c.id, c.digest FROM json_each(?) AS w JOIN claims AS c ON c.id = w.value"
_INSERT_KEYS = "INSERT INTO claims SELECT value ->> 0, value ->> 1, ? FROM json_each(?)"
_KEY_PAGE = f"SELECT id, digest, recorded_at_ms FROM claims WHERE id > ? ORDER BY id LIMIT {DELETED_KEYS_MAX}"  # noqa: S608 - constants
_DELETE_KEYS = (
    f"DELETE FROM claims WHERE id IN (SELECT id FROM claims WHERE recorded_at_ms < ? LIMIT {DELETED_KEYS_MAX})"  # noqa: S608 - constants
)


def digest_of(database: EventsDatabase, claim_id: str) -> str | None:
    """Return the digest of the batch stored under a key, or None."""
    rows = database.fetch(_SELECT_DIGEST, (claim_id,))
    return str(rows[0][0]) if rows else None


def digests(connection: sqlite3.Connection, claims: Sequence[IdempotencyClaim]) -> dict[str, str]:
    """Return the digests of the batches stored under known keys, by key."""
    return dict(connection.execute(_SELECT_DIGESTS, (json.dumps([claim.id for claim in claims]),)).fetchall())


def add_keys(connection: sqlite3.Connection, claims: Sequence[IdempotencyClaim], recorded_at_ms: int) -> None:
    """Store keys that do not exist yet, with the digests of their batches."""
    connection.execute(_INSERT_KEYS, (recorded_at_ms, json.dumps(claims)))


def key_pages(database: EventsDatabase) -> Iterator[Sequence[tuple[str, str, int]]]:
    """Yield all keys with the digest of their batch and when it was stored; blocks on the disk."""
    return _pages(database, _KEY_PAGE, "")
