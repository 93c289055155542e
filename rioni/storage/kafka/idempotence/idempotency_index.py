"""Stores the idempotency keys of Kafka appends, of batches and events, in the shared database.

Events and their keys can't be written in one transaction, so keys are written twice: before the events, as keys of an
attempt, with the positions from which its records can be found; and after Kafka has acknowledged them, as stored. If a
key belongs to an unfinished attempt, the topic is searched for its records (`AttemptRecovery`).
"""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    Engine,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Row,
    Table,
    Text,
    delete,
    exc,
    insert,
    select,
    update,
)
from sqlalchemy import create_engine as in_memory
from sqlalchemy.engine import Connection as SqlConnection

from rioni.storage.event_stores import HASH_BYTES, short_hash
from rioni.storage.sql.engines import create_engine, reading, writing


NAME_TABLES = MetaData()

NAMES = Table(
    "stored_names",
    NAME_TABLES,
    Column("hash", LargeBinary, primary_key=True),
    Column("store", Text, nullable=False),
    Column("digest", Text),
    Column("recorded_at_ms", BigInteger, nullable=False),
    Column("attempt", LargeBinary),
    Column("partition", Integer, nullable=False),
    Column("place", Integer, nullable=False),
    Index("ix_stored_names_attempt", "attempt"),
    Index("ix_stored_names_store_time", "store", "recorded_at_ms"),
)
"""Keys already stored, or in progress if they have an attempt. Batches have a digest, events an index (`place`)."""

ATTEMPTS = Table(
    "attempts",
    NAME_TABLES,
    Column("id", LargeBinary, primary_key=True),
    Column("store", Text, nullable=False),
    Column("begun_ms", BigInteger, nullable=False),
    Column("data", LargeBinary, nullable=False),
)
"""Attempts in progress, or interrupted because a process died or lost its connection to Kafka."""

ATTEMPT_BYTES = 16

LOOKUP_MAX = 1_000
"""Maximum number of keys that one query looks up."""

DELETED_MAX = 5_000
"""Maximum number of keys that one transaction deletes."""

EventRef = tuple[int, int]
"""An event of a batch: the number of the partition, and its index among the batch's events there."""


class IndexConflict(Exception):
    """Another process has used one of the keys concurrently: look them up again."""


class IdempotencyKey(NamedTuple):
    """An idempotency key to be recorded."""

    hash: bytes
    digest: str | None
    """The digest of a batch; None for an event."""
    event: EventRef


class IndexEntry(NamedTuple):
    """An idempotency key found in the index."""

    digest: str | None
    attempt: bytes | None
    """The attempt in progress; None if the batch or event is stored."""


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt to append a batch to Kafka."""

    id: bytes
    begun_ms: int
    """The start time, which is the timestamp of its records."""
    topic: str
    counts: dict[int, int]
    """The number of events of the whole batch, by partition, including duplicates."""
    starts: dict[int, int] = {}
    """An offset for each written partition that all records of the attempt are at or after."""
    indexes: dict[int, list[int]] = {}
    """The events to be written, by their index in the batch."""
    done: dict[int, list[int]] = {}
    """The events already stored, or left out as duplicates."""
    settled: bool = False
    """Whether the attempt has ended: the remaining events are not stored, and left to a retry of the batch."""

    @property
    def whole(self) -> frozenset[EventRef]:
        """All events to be written."""
        return frozenset((number, index) for number, indexes in self.indexes.items() for index in indexes)


class IdempotencyIndex:
    """The idempotency keys of one store."""

    def __init__(self, engine: Engine, store: str) -> None:
        """Use the tables, which must exist.

        Args:
            engine: owned by this index.
            store: the id of the storage.
        """
        self._engine, self._store = engine, store

    def batch(self, claim_id: str) -> bytes:
        """Return the hash of a batch's idempotency key."""
        return self._hash(b"batch", claim_id.encode())

    def event(self, event_id: str) -> bytes:
        """Return the hash of an event id."""
        return self.event_of(short_hash(event_id))

    def event_of(self, hashed: bytes) -> bytes:
        """Return the hash of an event id given by its short hash, as in an embedded store."""
        return self._hash(b"event", hashed)

    def known(self, hashes: Sequence[bytes]) -> dict[bytes, IndexEntry]:
        """Return the entries of the keys that are stored or in progress, by hash."""
        query = select(NAMES.c.hash, NAMES.c.digest, NAMES.c.attempt)
        found: dict[bytes, IndexEntry] = {}
        with reading(self._engine) as connection:
            for first in range(0, len(hashes), LOOKUP_MAX):
                rows = connection.execute(query.where(NAMES.c.hash.in_(hashes[first : first + LOOKUP_MAX])))
                found |= {row.hash: IndexEntry(row.digest, row.attempt) for row in rows}
        return found

    def begin(self, attempts: Iterable[tuple[Attempt, Sequence[IdempotencyKey], bytes | None]]) -> None:
        """Record attempts durably, before their batches are produced.

        Args:
            attempts: each with its unused keys, and the id of the settled attempt that it completes.

        Raises:
            IndexConflict: one of the keys was used concurrently; nothing was recorded.
        """
        keys: list[dict[str, object]] = []
        rows: list[dict[str, object]] = []
        replaced: list[tuple[bytes, bytes]] = []
        for attempt, new_keys, completes in attempts:
            rows.append(
                {"id": attempt.id, "store": self._store, "begun_ms": attempt.begun_ms, "data": _encode(attempt)}
            )
            keys += [
                {
                    "hash": key.hash,
                    "store": self._store,
                    "digest": key.digest,
                    "recorded_at_ms": attempt.begun_ms,
                    "attempt": attempt.id,
                    "partition": key.event[0],
                    "place": key.event[1],
                }
                for key in new_keys
            ]
            if completes is not None:
                replaced.append((completes, attempt.id))
        # Sorted in the same order by all processes, so they wait for each other's rows without deadlocks.
        keys.sort(key=lambda row: row["hash"])  # type: ignore[arg-type, return-value]  # bytes
        try:
            with writing(self._engine) as connection:
                if keys:
                    _execute(connection, insert(NAMES), keys)
                for old, new in replaced:
                    if not connection.execute(delete(ATTEMPTS).where(ATTEMPTS.c.id == old)).rowcount:
                        raise IndexConflict
                    connection.execute(update(NAMES).where(NAMES.c.attempt == old).values(attempt=new))
                _execute(connection, insert(ATTEMPTS), rows)
        except exc.IntegrityError as ex:
            raise IndexConflict from ex

    def attempt(self, attempt_id: bytes) -> Attempt | None:
        """Return an attempt that is unfinished or partially stored; None if it is completed."""
        with reading(self._engine) as connection:
            row = connection.execute(select(ATTEMPTS.c.data).where(ATTEMPTS.c.id == attempt_id)).one_or_none()
        return None if row is None else _decode(row)

    def unfinished(self, before_ms: int) -> list[Attempt]:
        """Return the unfinished attempts of this store that began before a time."""
        query = select(ATTEMPTS.c.data).where(ATTEMPTS.c.store == self._store, ATTEMPTS.c.begun_ms < before_ms)
        with reading(self._engine) as connection:
            return [attempt for row in connection.execute(query) if not (attempt := _decode(row)).settled]

    def settle(self, outcomes: Mapping[bytes, tuple[Attempt, frozenset[EventRef]]]) -> None:
        """Record the outcome of attempts: keys of stored records are kept, the others deleted.

        For a partially stored batch the stored events are recorded, so that the rest can be stored later. Attempts
        already settled by another process are unchanged.

        Args:
            outcomes: for each attempt, its stored events.
        """
        with writing(self._engine) as connection:
            for attempt, stored in outcomes.values():
                self._settle(connection, attempt, stored)

    def _settle(self, connection: SqlConnection, attempt: Attempt, stored: frozenset[EventRef]) -> None:
        ours = NAMES.c.attempt == attempt.id
        if stored == attempt.whole:
            # PERF: the common case, two statements regardless of the number of events.
            connection.execute(update(NAMES).where(ours).values(attempt=None))
            connection.execute(delete(ATTEMPTS).where(ATTEMPTS.c.id == attempt.id))
            return
        if not connection.execute(delete(ATTEMPTS).where(ATTEMPTS.c.id == attempt.id)).rowcount:
            return
        keys = connection.execute(select(NAMES.c.hash, NAMES.c.digest, NAMES.c.partition, NAMES.c.place).where(ours))
        done = {number: set(indexes) for number, indexes in attempt.done.items()}
        for number, index in stored:
            done.setdefault(number, set()).add(index)
        for key in keys.all():
            this = NAMES.c.hash == key.hash
            if key.digest is not None and any(done.values()):
                rest = msgspec.structs.replace(
                    attempt, settled=True, done={number: sorted(each) for number, each in done.items()}
                )
                row = {"id": attempt.id, "store": self._store, "begun_ms": attempt.begun_ms, "data": _encode(rest)}
                connection.execute(insert(ATTEMPTS), row)
            elif key.digest is None and (key.partition, key.place) in stored:
                connection.execute(update(NAMES).where(this).values(attempt=None))
            else:
                connection.execute(delete(NAMES).where(this))

    def delete_before(self, before_ms: int) -> None:
        """Delete the keys stored before a time, and old attempts of partially stored batches."""
        old = (
            select(NAMES.c.hash)
            .where(NAMES.c.store == self._store, NAMES.c.recorded_at_ms < before_ms)
            .limit(DELETED_MAX)
        )
        left = delete(ATTEMPTS).where(
            ATTEMPTS.c.store == self._store,
            ATTEMPTS.c.begun_ms < before_ms,
            ATTEMPTS.c.id.not_in(select(NAMES.c.attempt).where(NAMES.c.attempt.is_not(None))),
        )
        removed = DELETED_MAX
        while removed == DELETED_MAX:
            with writing(self._engine) as connection:
                removed = connection.execute(delete(NAMES).where(NAMES.c.hash.in_(old))).rowcount
        with writing(self._engine) as connection:
            connection.execute(left)

    def close(self) -> None:
        """Close the database."""
        self._engine.dispose()

    def _hash(self, kind: bytes, name: bytes) -> bytes:
        return blake2b(b"%s\0%s" % (kind, name), digest_size=HASH_BYTES, key=self._store.encode()[:64]).digest()


def open_index(url: str, store: str) -> IdempotencyIndex:
    """Open the index of a store: in PostgreSQL, with tables from the migrations, or in an SQLite file.

    Raises:
        Unavailable: the database can't be used.
    """
    engine = create_engine(url)
    if engine.dialect.name == "sqlite":
        with writing(engine) as connection:
            NAME_TABLES.create_all(connection)
    return IdempotencyIndex(engine, store)


def empty_index(store: str) -> IdempotencyIndex:
    """Return an index without tables, for a store to which nothing will be appended; no file is opened."""
    return IdempotencyIndex(in_memory("sqlite://"), store)


def _execute(connection: SqlConnection, statement: object, rows: list[dict[str, object]]) -> None:
    connection.execute(statement, rows)  # type: ignore[call-overload]  # of all executables


def _encode(attempt: Attempt) -> bytes:
    return msgspec.msgpack.encode(attempt)


def _decode(row: Row[tuple[bytes]]) -> Attempt:
    return msgspec.msgpack.decode(row.data, type=Attempt)
