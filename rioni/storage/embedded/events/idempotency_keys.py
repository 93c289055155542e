"""Stores the idempotency keys of batches: a batch is stored once per key."""

import json
import sqlite3
from collections.abc import Iterator, Sequence

from rioni.domain.publishing.headers import IdempotencyClaim
from rioni.storage.embedded.events.database import EventsDatabase
from rioni.storage.embedded.events.retention import Steps


DELETED_MAX = 1_000
"""Maximum number of keys that one transaction deletes: some milliseconds."""


_SELECT_DIGEST = "SELECT digest FROM claims WHERE id = ?"
_SELECT = "SELECT c.id, c.digest FROM json_each(?) AS w JOIN claims AS c ON c.id = w.value"
_INSERT = "INSERT INTO claims SELECT value ->> 0, value ->> 1, ? FROM json_each(?)"
_PAGE = f"SELECT id, digest, recorded_at_ms FROM claims WHERE id > ? ORDER BY id LIMIT {DELETED_MAX}"  # noqa: S608 - constants
_DELETE = f"DELETE FROM claims WHERE id IN (SELECT id FROM claims WHERE recorded_at_ms < ? LIMIT {DELETED_MAX})"  # noqa: S608 - constants


def digest_of(database: EventsDatabase, claim_id: str) -> str | None:
    """Return the digest of the batch stored under a key, or None."""
    rows = database.fetch(_SELECT_DIGEST, (claim_id,))
    return str(rows[0][0]) if rows else None


def digests(connection: sqlite3.Connection, claims: Sequence[IdempotencyClaim]) -> dict[str, str]:
    """Return the digests of the batches stored under known keys, by key."""
    return dict(connection.execute(_SELECT, (json.dumps([claim.id for claim in claims]),)).fetchall())


def add(connection: sqlite3.Connection, claims: Sequence[IdempotencyClaim], recorded_at_ms: int) -> None:
    """Store keys that do not exist yet, with the digests of their batches."""
    connection.execute(_INSERT, (recorded_at_ms, json.dumps(claims)))


def delete_before(database: EventsDatabase, before_ms: int) -> Steps[None]:
    """Delete the keys of batches stored before a time; blocks on the disk."""
    removed = DELETED_MAX
    while removed == DELETED_MAX:
        with database.writing() as connection:
            removed = connection.execute(_DELETE, (before_ms,)).rowcount
        yield


def pages(database: EventsDatabase) -> Iterator[Sequence[tuple[str, str, int]]]:
    """Yield all keys with the digest of their batch and when it was stored; blocks on the disk."""
    after = ""
    while rows := database.fetch(_PAGE, (after,)):
        yield rows
        after = rows[-1][0]
