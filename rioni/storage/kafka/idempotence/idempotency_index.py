"""Idempotency index for Kafka appends: keys of batches and events, in the shared database.

Events and their names can't be written in one transaction, so names are written twice: before the events, as those of
an attempt, with where its records will be found if they are; and after Kafka has acknowledged them, as stored. Whoever
meets the names of an attempt that has not come to its end looks there (`attempt_recovery.py`).
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
from sqlalchemy.engine import Connection as SqlConnection

from rioni.storage.short_hash import HASH_BYTES, short_hash
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
"""What was stored, or is being stored where there is an attempt. Batches have a digest, events a place in it."""

ATTEMPTS = Table(
    "attempts",
    NAME_TABLES,
    Column("id", LargeBinary, primary_key=True),
    Column("store", Text, nullable=False),
    Column("begun_ms", BigInteger, nullable=False),
    Column("data", LargeBinary, nullable=False),
)
"""What is being stored, or was when a process died or heard nothing of Kafka any more."""

ATTEMPT_BYTES = 16

ASKED = 1_000
"""How many names one query asks for."""

FORGOTTEN = 5_000
"""How many names one transaction forgets."""

Place = tuple[int, int]
"""An event of a batch: the number of the partition, and its index among the batch's events there."""


class IndexConflict(Exception):
    """Another process has used one of the names in between: look again."""


class IdempotencyKey(NamedTuple):
    """A name to be used."""

    hash: bytes
    digest: str | None
    """Of a batch; None for an event."""
    place: Place


class IndexEntry(NamedTuple):
    """A name that was used."""

    digest: str | None
    attempt: bytes | None
    """What uses it at the moment; None where it is stored."""


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """A batch that is handed to Kafka."""

    id: bytes
    begun_ms: int
    """The time that its records bear."""
    topic: str
    counts: dict[int, int]
    """How many events the whole batch has, by partition: what was left out is counted."""
    starts: dict[int, int] = {}
    """For each partition that is written an offset that none of the records is before."""
    indexes: dict[int, list[int]] = {}
    """The events that are written, by their index in the batch."""
    done: dict[int, list[int]] = {}
    """The events that were stored already, or left out."""
    settled: bool = False
    """The attempt has ended: what is not done is not stored, and left to a retry of the batch."""

    @property
    def whole(self) -> frozenset[Place]:
        """All that is to be written."""
        return frozenset((number, index) for number, indexes in self.indexes.items() for index in indexes)


class IdempotencyIndex:
    """The names of one store."""

    def __init__(self, engine: Engine, store: str) -> None:
        """Use the tables, which are there.

        Args:
            engine: nobody else's.
            store: the id of the storage.
        """
        self._engine, self._store = engine, store

    def batch(self, claim_id: str) -> bytes:
        """The hash of a batch's name."""
        return self._hash(b"batch", claim_id.encode())

    def event(self, event_id: str) -> bytes:
        """The hash of an event's id."""
        return self.event_of(short_hash(event_id))

    def event_of(self, hashed: bytes) -> bytes:
        """The same of an id of which only a short hash is left, as in an embedded store."""
        return self._hash(b"event", hashed)

    def known(self, hashes: Sequence[bytes]) -> dict[bytes, IndexEntry]:
        """Those of the names that are used, or being used."""
        query = select(NAMES.c.hash, NAMES.c.digest, NAMES.c.attempt)
        found: dict[bytes, IndexEntry] = {}
        with reading(self._engine) as connection:
            for first in range(0, len(hashes), ASKED):
                rows = connection.execute(query.where(NAMES.c.hash.in_(hashes[first : first + ASKED])))
                found |= {row.hash: IndexEntry(row.digest, row.attempt) for row in rows}
        return found

    def begin(self, attempts: Iterable[tuple[Attempt, Sequence[IdempotencyKey], bytes | None]]) -> None:
        """Note, durably, what will be handed to Kafka now.

        Args:
            attempts: each with the names that nobody has used, and the settled attempt that it completes.

        Raises:
            Raced: one of them was used concurrently; nothing was recorded.
        """
        names: list[dict[str, object]] = []
        rows: list[dict[str, object]] = []
        replaced: list[tuple[bytes, bytes]] = []
        for attempt, own, completes in attempts:
            rows.append(
                {"id": attempt.id, "store": self._store, "begun_ms": attempt.begun_ms, "data": _encode(attempt)}
            )
            names += [
                {
                    "hash": name.hash,
                    "store": self._store,
                    "digest": name.digest,
                    "recorded_at_ms": attempt.begun_ms,
                    "attempt": attempt.id,
                    "partition": name.place[0],
                    "place": name.place[1],
                }
                for name in own
            ]
            if completes is not None:
                replaced.append((completes, attempt.id))
        # In the order that all processes keep: so they wait for each other's rows, and never in a circle.
        names.sort(key=lambda row: row["hash"])  # type: ignore[arg-type, return-value]  # bytes
        try:
            with writing(self._engine) as connection:
                if names:
                    _execute(connection, insert(NAMES), names)
                for old, new in replaced:
                    if not connection.execute(delete(ATTEMPTS).where(ATTEMPTS.c.id == old)).rowcount:
                        raise IndexConflict
                    connection.execute(update(NAMES).where(NAMES.c.attempt == old).values(attempt=new))
                _execute(connection, insert(ATTEMPTS), rows)
        except exc.IntegrityError as ex:
            raise IndexConflict from ex

    def attempt(self, attempt_id: bytes) -> Attempt | None:
        """What is known of an attempt; None where it has come to its end."""
        with reading(self._engine) as connection:
            row = connection.execute(select(ATTEMPTS.c.data).where(ATTEMPTS.c.id == attempt_id)).one_or_none()
        return None if row is None else _decode(row)

    def unsettled(self, before_ms: int) -> list[Attempt]:
        """The attempts of this store that began before a time and have not come to their ends."""
        query = select(ATTEMPTS.c.data).where(ATTEMPTS.c.store == self._store, ATTEMPTS.c.begun_ms < before_ms)
        with reading(self._engine) as connection:
            return [attempt for row in connection.execute(query) if not (attempt := _decode(row)).settled]

    def settle(self, outcomes: Mapping[bytes, tuple[Attempt, frozenset[Place]]]) -> None:
        """Record the outcome of attempts: keys of stored records are kept, the others deleted.

        Of a batch that was stored in part it is kept what is done, so that the rest can be stored later. Attempts that
        somebody else has settled stay as they are.

        Args:
            outcomes: for each attempt what was stored of it.
        """
        with writing(self._engine) as connection:
            for attempt, stored in outcomes.values():
                self._settle(connection, attempt, stored)

    def _settle(self, connection: SqlConnection, attempt: Attempt, stored: frozenset[Place]) -> None:
        ours = NAMES.c.attempt == attempt.id
        if stored == attempt.whole:
            # PERF: the common case, two statements however many events there are.
            connection.execute(update(NAMES).where(ours).values(attempt=None))
            connection.execute(delete(ATTEMPTS).where(ATTEMPTS.c.id == attempt.id))
            return
        if not connection.execute(delete(ATTEMPTS).where(ATTEMPTS.c.id == attempt.id)).rowcount:
            return
        names = connection.execute(select(NAMES.c.hash, NAMES.c.digest, NAMES.c.partition, NAMES.c.place).where(ours))
        done = {number: set(indexes) for number, indexes in attempt.done.items()}
        for number, index in stored:
            done.setdefault(number, set()).add(index)
        for name in names.all():
            this = NAMES.c.hash == name.hash
            if name.digest is not None and any(done.values()):
                rest = msgspec.structs.replace(
                    attempt, settled=True, done={number: sorted(each) for number, each in done.items()}
                )
                row = {"id": attempt.id, "store": self._store, "begun_ms": attempt.begun_ms, "data": _encode(rest)}
                connection.execute(insert(ATTEMPTS), row)
            elif name.digest is None and (name.partition, name.place) in stored:
                connection.execute(update(NAMES).where(this).values(attempt=None))
            else:
                connection.execute(delete(NAMES).where(this))

    def forget(self, before_ms: int) -> None:
        """Forget the names under which something was stored before a time, and those of batches left in part."""
        old = (
            select(NAMES.c.hash)
            .where(NAMES.c.store == self._store, NAMES.c.recorded_at_ms < before_ms)
            .limit(FORGOTTEN)
        )
        left = delete(ATTEMPTS).where(
            ATTEMPTS.c.store == self._store,
            ATTEMPTS.c.begun_ms < before_ms,
            ATTEMPTS.c.id.not_in(select(NAMES.c.attempt).where(NAMES.c.attempt.is_not(None))),
        )
        removed = FORGOTTEN
        while removed == FORGOTTEN:
            with writing(self._engine) as connection:
                removed = connection.execute(delete(NAMES).where(NAMES.c.hash.in_(old))).rowcount
        with writing(self._engine) as connection:
            connection.execute(left)

    def close(self) -> None:
        """Close the database."""
        self._engine.dispose()

    def _hash(self, kind: bytes, name: bytes) -> bytes:
        return blake2b(b"%s\0%s" % (kind, name), digest_size=HASH_BYTES, key=self._store.encode()[:64]).digest()


def opened_names(url: str, store: str) -> IdempotencyIndex:
    """The names of a store, in PostgreSQL, which has the tables from the migrations, or in a file of SQLite.

    Raises:
        Unavailable: the database can't be used.
    """
    engine = create_engine(url)
    if engine.dialect.name == "sqlite":
        with writing(engine) as connection:
            NAME_TABLES.create_all(connection)
    return IdempotencyIndex(engine, store)


def _execute(connection: SqlConnection, statement: object, rows: list[dict[str, object]]) -> None:
    connection.execute(statement, rows)  # type: ignore[call-overload]  # of all executables


def _encode(attempt: Attempt) -> bytes:
    return msgspec.msgpack.encode(attempt)


def _decode(row: Row[tuple[bytes]]) -> Attempt:
    return msgspec.msgpack.decode(row.data, type=Attempt)
