"""Appends to the event store: all pending batches are written in one transaction, with few calls of SQLite."""

import contextlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

import msgspec

from rioni.domain.errors import (
    CommitOutcomeUnknown,
    IdempotencyKeyReused,
    NotFound,
    OutcomeUnknown,
    PartiallyStored,
    TopicClosed,
    Unavailable,
)
from rioni.domain.ports.event_store import Appended, Chunk
from rioni.domain.ports.host import Clock, ThreadPool, direct
from rioni.domain.publishing.headers import IdempotencyClaim
from rioni.storage.clock import not_before
from rioni.storage.embedded.events import stored_once
from rioni.storage.embedded.events.chunks import (
    POSITION_MAX,
    ChainedRow,
    DamagedEvents,
    EventRun,
    encode_chain,
    join,
    split,
)
from rioni.storage.embedded.events.database import EventsDatabase
from rioni.storage.embedded.events.partitions import Partition, check, is_closed, not_found
from rioni.storage.embedded.events.retention import note_keys
from rioni.storage.embedded.events.stored_once import AllHeaders, AllIds, Batches, Identified, Ids
from rioni.storage.group_commit import GroupCommit, WriteJob


# PERF: every call of sqlite3 releases and reacquires the GIL, so rows are inserted in groups, with statements that
# stay prepared.
_ROWS_PER_INSERT = (32, 8, 1)
_INSERTS = {n: f"INSERT INTO chunks VALUES {', '.join(['(?, ?, ?, ?, ?, ?, ?, ?, ?)'] * n)}" for n in _ROWS_PER_INSERT}  # noqa: S608 - constants

OUTCOME_UNKNOWN = "outcome unknown"
"""Reason for a possibly unstored event: the disk failed while the transaction was committed."""

# One row, and so one call, for all partitions of a group.
_SELECT_TARGETS = """
    SELECT json_group_array(json_array(p.topic, p.number, p.id, p.oldest, p.next, p.recorded_at_ms, p.checksum, p.head))
    FROM json_each(?) AS w
    JOIN partitions AS p ON p.topic = json_extract(w.value, '$[0]') AND p.number = json_extract(w.value, '$[1]')
    WHERE NOT EXISTS (SELECT 1 FROM closed_topics AS c WHERE c.topic = p.topic)
"""
_UPDATE_TARGETS = """
    UPDATE partitions SET
        next = json_extract(w.value, '$[1]'),
        recorded_at_ms = json_extract(w.value, '$[2]'),
        checksum = json_extract(w.value, '$[3]'),
        head = json_extract(w.value, '$[4]')
    FROM json_each(?) AS w WHERE partitions.id = json_extract(w.value, '$[0]')
"""


def _json(values: Sequence[object]) -> str:
    return msgspec.json.encode(values).decode()  # SQLite takes bytes for another format


class _Target:
    """A partition to which a group of batches is appended."""

    def __init__(self, before: Partition, head: bytes) -> None:
        self.before, self.next, self.head = before, before.next, head
        self.pieces: list[EventRun] = []


class _Batch(WriteJob):
    """A waiting call of `append`, and its result."""

    def __init__(
        self,
        topic: str,
        batches: Batches,
        headers: AllHeaders | None = None,
        ids: AllIds | None = None,
        claim: IdempotencyClaim | None = None,
    ) -> None:
        self.topic, self.claim = topic, claim
        headers = headers or {}
        self.pieces = {number: split(events, headers.get(number)) for number, events in batches.items()}
        self.identified = Identified(batches, headers, ids) if ids else None
        self.count = sum([len(events) for events in batches.values()])
        self.appended = Appended()
        super().__init__(sum([piece.size for pieces in self.pieces.values() for piece in pieces]))


SPLIT_EVENTS_MAX = 10_000
"""PERF: splitting this many events into pieces takes 1 ms; larger batches are split in a thread."""

Publish = Callable[[Iterable[tuple[int, Chunk]], Iterable[str]], None]
"""Receives the chunks that are now durable, by partition id, and the topics that have grown."""


class Appender:
    """Appends batches in groups: one transaction, and one wait for the disk, for all pending batches."""

    def __init__(
        self,
        database: EventsDatabase,
        clock: Clock,
        pool: ThreadPool,
        publish: Publish,
        timeout_s: float,
        compute: ThreadPool = direct,
    ) -> None:
        """Append nothing yet; `pool` waits for the disk, and `compute` splits large batches."""
        self._compute = compute
        self._database, self._clock, self._publish, self._timeout_s = database, clock, publish, timeout_s
        self._commits = GroupCommit[_Batch](self._write, pool)

    def append(
        self,
        topic: str,
        batches: Batches,
        headers: AllHeaders | None,
        ids: AllIds | None,
        claim: IdempotencyClaim | None,
    ) -> Appended:
        """Append events durably and return their positions; see the port `EventStore`."""
        assert all(batches.values()), "a batch without events has no first position"
        run = self._compute if sum(map(len, batches.values())) > SPLIT_EVENTS_MAX else direct
        batch = run(_Batch, topic, batches, headers, ids, claim)
        try:
            self._commits.submit(batch, self._timeout_s)
        except CommitOutcomeUnknown as ex:
            raise PartiallyStored(dict.fromkeys(batches, OUTCOME_UNKNOWN)) from ex
        except OutcomeUnknown as ex:
            raise PartiallyStored(dict.fromkeys(batches, "timed out")) from ex
        return batch.appended

    def close(self) -> None:
        """Refuse further batches and wait until the pending ones are written."""
        self._commits.close()

    def _write(self, group: list[_Batch]) -> Callable[[], None]:
        try:
            return self._write_together(group, lambda: self._commits.add_pending(group))
        except DamagedEvents:
            # A damaged partition must not block the others: write each batch on its own.
            if len(group) == 1:
                raise
        done: list[Callable[[], None]] = []
        for batch in group:
            try:
                done.append(self._write_together([batch], lambda: None))
            except Unavailable as ex:
                batch.error = ex

        def publish() -> None:
            for each in done:
                each()

        return publish

    def _write_together(self, group: Sequence[_Batch], complete: Callable[[], None]) -> Callable[[], None]:
        """Write a group of batches, to which `complete` may add while others hold the lock."""
        written: list[tuple[int, Chunk]] = []
        targets: dict[tuple[str, int], _Target] = {}
        with self._noting(targets), self._database.writing() as connection:
            complete()
            targets |= self._targets(connection, group)
            now_ms = self._clock.now_ms()
            ids = Ids(connection, now_ms, [batch.identified for batch in group if batch.identified])
            for batch in _without_repeated(connection, group, now_ms):
                _allocate(batch, targets, ids)
                if isinstance(batch.error, NotFound) and is_closed(connection, batch.topic):
                    batch.error = TopicClosed(batch.topic)
            ids.store()
            changes = []
            heads: dict[int, bytes] = {}
            for (topic, number), target in targets.items():
                if not target.pieces:
                    continue
                recorded_at_ms = not_before(target.before.recorded_at_ms, now_ms)
                after = target.before._replace(next=target.next, recorded_at_ms=recorded_at_ms)
                changes.append((after.id, after.next, recorded_at_ms, after.checksum(topic, number)))
                if target.head:
                    heads[after.id] = target.head
                written += ((after.id, chunk) for chunk in join(target.pieces, target.before.next, recorded_at_ms))
            note_keys(connection, written)
            _insert(connection, list(encode_chain(written, heads)))
            connection.execute(_UPDATE_TARGETS, (_json([(*each, heads[each[0]].hex()) for each in changes]),))
        return partial(self._publish, written, {batch.topic for batch in group if not batch.error})

    @contextlib.contextmanager
    def _noting(self, targets: Mapping[tuple[str, int], _Target]) -> Iterator[None]:
        """After a commit with unknown outcome, store a note from which the next start determines it."""
        try:
            yield
        except CommitOutcomeUnknown:
            self._database.note_unknown([(*place, target.next) for place, target in targets.items() if target.pieces])
            raise

    def _targets(self, connection: sqlite3.Connection, group: Iterable[_Batch]) -> dict[tuple[str, int], _Target]:
        wanted = list({(batch.topic, number) for batch in group for number in batch.pieces})
        ((found,),) = connection.execute(_SELECT_TARGETS, (_json(wanted),))
        return {
            (topic, number): _Target(check(topic, number, row), bytes.fromhex(head))
            for topic, number, *row, head in msgspec.json.decode(found)
        }


def _without_repeated(connection: sqlite3.Connection, group: Sequence[_Batch], now_ms: int) -> Iterator[_Batch]:
    """Yield the batches to be stored, and record the idempotency keys of those that succeed."""
    claimed = [batch.claim for batch in group if batch.claim is not None]
    if not claimed:
        yield from group
        return
    known, new = stored_once.digests(connection, claimed), []
    for batch in group:
        if batch.claim is None or batch.claim.id not in known:
            yield batch
            if batch.claim is not None and batch.error is None:
                known[batch.claim.id] = batch.claim.digest
                new.append(batch.claim)
        elif batch.claim.digest == known[batch.claim.id]:
            batch.appended.duplicates = batch.count
        else:
            batch.error = IdempotencyKeyReused()
    stored_once.add_keys(connection, new, now_ms)


def _allocate(batch: _Batch, targets: Mapping[tuple[str, int], _Target], ids: Ids) -> None:
    """Assign positions to a batch, or set its error."""
    # A batch may be allocated again on its own, after the transaction of its group has failed.
    batch.appended, batch.error = Appended(), None
    for number, pieces in batch.pieces.items():
        target = targets.get((batch.topic, number))
        if target is None:
            batch.error = not_found(batch.topic, number)
            return
        if target.next + sum(len(piece.lengths) for piece in pieces) > POSITION_MAX:
            batch.error = Unavailable(f"Partition {number} of topic {batch.topic} is full. Begin a new timeline.")
            return
    left: Mapping[int, list[EventRun]] = batch.pieces
    if batch.identified:
        left = ids.claim(batch.identified, batch.pieces)
        kept = sum(len(piece.lengths) for pieces in left.values() for piece in pieces)
        batch.appended.duplicates = batch.count - kept
    for number, pieces in left.items():
        target = targets[batch.topic, number]
        batch.appended[number] = target.next
        target.pieces += pieces
        target.next += sum(len(piece.lengths) for piece in pieces)


def _insert(connection: sqlite3.Connection, rows: Sequence[ChainedRow]) -> None:
    done = 0
    for size in _ROWS_PER_INSERT:
        while len(rows) - done >= size:
            connection.execute(_INSERTS[size], [value for row in rows[done : done + size] for value in row])
            done += size
