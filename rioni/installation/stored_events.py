"""Compares stored events with the records of the internal log, and so with the log's checkpoints.

Partitions of an embedded store carry hash chains, whose heads the log records. Of partitions in Kafka it records the
ranges of positions, and digests of closed topics. `rioni.storage.embedded.events.verification` checks the consistency
of each chain in itself.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
from sqlalchemy import Connection, Engine, func, select

from rioni.domain.errors import NotFound
from rioni.domain.event_types.event_type import EventType
from rioni.domain.events import DomainEvent, stream_id
from rioni.domain.ports.event_store import EventStore
from rioni.domain.system.anchors import AnchoredPartition, ChainHead, EventChainsAnchored
from rioni.domain.system.settings import LossAccepted
from rioni.domain.system.storages import StorageMoved
from rioni.domain.timelines.position import POSITION_MAX, Bounds
from rioni.domain.timelines.timeline import Timeline, TimelineDigested
from rioni.domain.timelines.topics import DigestedBlock, DigestsTopics
from rioni.domain.timestamps import milliseconds
from rioni.installation.kafka import KafkaStorage
from rioni.installation.stores import registered
from rioni.projections.tables import AUDIT_LOG
from rioni.sql.log_tables import HEAD, LOG
from rioni.storage.embedded.data_directory import events_path
from rioni.storage.embedded.events.verification import ReadOnlyDatabase, hash_at, present_heads
from rioni.storage.sql.engines import reading


# --- The entries of the log about a storage ---

ENTRIES_PER_READ = 100
"""An entry may name 500 partitions, or have 100 blocks."""

E = TypeVar("E", bound=DomainEvent)


class Span(NamedTuple):
    """The entries of the log that record what a storage must still have."""

    after: int
    """The position of the last entry that does not: an operator accepted a loss, or the storage was moved."""
    until: int
    """The position of the last entry that does: later ones may name events that came while the store was read."""


def span_of(connection: Connection, storage_id: str) -> Span:
    """Return the entries that hold for a storage; ask before its store is read."""
    moved = (LOG.c.topic == StorageMoved.TOPIC) & (LOG.c.stream == str(stream_id("storage", storage_id)))
    query = select(func.max(LOG.c.position)).where((LOG.c.topic == LossAccepted.TOPIC) | moved)
    return Span(connection.scalar(query) or 0, connection.execute(select(HEAD.c.position)).scalar_one())


def _entries(engine: Engine, kind: type[E], span: Span) -> Iterator[tuple[int, str, E]]:
    """Yield position, time and event of the entries of a kind, but for damaged ones, which other checks find."""
    query = select(LOG.c.position, LOG.c.recorded_at, LOG.c.data).where(LOG.c.topic == kind.TOPIC)
    after = span.after
    while True:
        later = query.where(LOG.c.position > after, LOG.c.position <= span.until).order_by(LOG.c.position)
        with reading(engine) as connection:
            rows = connection.execute(later.limit(ENTRIES_PER_READ)).all()
        if not rows:
            return
        for row in rows:
            # A damaged integer is no buffer.
            with contextlib.suppress(TypeError, ValueError):
                yield row.position, row.recorded_at, kind.decode(bytes(memoryview(row.data)))
        after = rows[-1].position


def last_anchoring(connection: Connection) -> str | None:
    """Return when heads of hash chains were last recorded in the log."""
    query = select(LOG.c.recorded_at).where(LOG.c.topic == EventChainsAnchored.TOPIC).order_by(LOG.c.position.desc())
    return connection.scalar(query.limit(1))


# --- Compares the partitions of a storage with the recorded heads ---

TOLERANCE_MS = 60_000
"""Events may have been stored a little before the time of the entry that does not have them yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A storage as it is."""

    storage_id: str
    timelines: Mapping[str, Timeline]
    """The readable timelines, by topic."""
    present: Mapping[tuple[str, int], ChainHead]
    """The present heads by topic and partition."""
    hash_at: Callable[[ChainHead, int], str]
    """Returns the hash of a chain, given its present head, at a position that it covers; empty if none ends there."""


class _Anchor(NamedTuple):
    """The content of one entry of the log about one partition."""

    position: int
    """The position of the entry."""
    recorded_at_ms: int
    head: ChainHead


@dataclass
class _Partition:
    """A partition of a store, and the contents of the anchors read so far about it."""

    present: ChainHead | None
    """The present head of the partition; None if the store does not have it."""
    last: _Anchor | None = None
    before_first: _Anchor | None = None
    """The last anchor that does not reach the event before the present first one: that was appended later."""
    findings: list[str] = field(default_factory=list)


def chain_findings(engine: Engine, data: Path, now_ms: int) -> Iterator[str]:
    """Yield a sentence for each partition of an embedded storage that differs from the log; blocks on the disk.

    Args:
        engine: of the registry's database, with the current schema.
        data: the data directory.
        now_ms: the present time.

    Raises:
        Unavailable: a database can't be read.
    """
    with reading(engine) as connection:
        timelines = {timeline.topic: timeline for timeline in registered(connection).timelines}
    for storage_id in sorted({timeline.storage_id for timeline in timelines.values()}):
        path = events_path(data, storage_id)
        if not path.exists():
            continue  # embedded storages whose file is missing are reported with the other files
        with reading(engine) as connection:
            span = span_of(connection, storage_id)
        with contextlib.closing(ReadOnlyDatabase(path)) as database:
            stored = Stored(
                storage_id=storage_id,
                timelines=timelines,
                present={(head.topic, head.partition): head for head in present_heads(database)},
                hash_at=partial(hash_at, database),
            )
            for place, text in _head_findings(engine, stored, span, now_ms):
                yield f"{path.name}, topic {place.topic}, partition {place.partition}: {text}"


def _head_findings(engine: Engine, stored: Stored, span: Span, now_ms: int) -> Iterator[tuple[AnchoredPartition, str]]:
    """Yield a sentence for each partition that differs from the log; the storage was read after the span."""
    partitions: dict[AnchoredPartition, _Partition] = {}
    for position, recorded_at, event in _entries(engine, EventChainsAnchored, span):
        for head in event.heads if event.storage == stored.storage_id else ():
            if head.topic in stored.timelines:  # others were deleted since
                place = AnchoredPartition(stored.storage_id, head.topic, head.partition)
                partition = partitions.setdefault(place, _Partition(stored.present.get((head.topic, head.partition))))
                _compare(stored, partition, _Anchor(position, milliseconds(recorded_at), head))
    for place, partition in sorted(partitions.items()):
        early = _expired_too_early(engine, stored.timelines[place.topic], partition, now_ms)
        yield from ((place, text) for text in [*partition.findings, *early])


def _compare(stored: Stored, partition: _Partition, anchor: _Anchor) -> None:
    present, head, last = partition.present, anchor.head, partition.last
    partition.last = anchor
    if partition.findings:
        return  # one is enough: what follows depends on it
    recorded = f"entry {anchor.position} of the log recorded"
    if present is None:
        partition.findings.append(f"the partition is missing; {recorded} {head.next} events")
    elif last is not None and (head.next < last.head.next or head.first < last.head.first):
        partition.findings.append(f"{recorded} an earlier state than entry {last.position} before it")
    elif head.next > present.next:
        partition.findings.append(
            f"the events from position {present.next} to {head.next - 1} are missing; {recorded} them"
        )
    elif _stored_hash(stored, present, head) != head.hash:
        partition.findings.append(
            f"the events before position {head.next} were changed, or replaced: {recorded} another hash"
        )
    elif head.first > present.first:
        partition.findings.append(
            f"there are events from position {present.first} on; {recorded} that they had expired up to {head.first}"
        )
    if present is not None and head.next < present.first:
        partition.before_first = anchor


def _stored_hash(stored: Stored, present: ChainHead, head: ChainHead) -> str:
    """The hash that the store has at the end of a recorded chain; that one itself if the events there have expired."""
    if head.next == present.next:
        return present.hash
    return stored.hash_at(present, head.next) if head.next > present.first else head.hash


def _expired_too_early(engine: Engine, timeline: Timeline, partition: _Partition, now_ms: int) -> Iterator[str]:
    """Yield a sentence if events were deleted though their retention time can't be over."""
    present, since = partition.present, partition.before_first
    if present is None or since is None or partition.findings:
        return
    retention_ms = _shortest_retention_ms(engine, timeline.event_type, since.recorded_at_ms)
    # A time in the future was recorded, or carried on, while a clock was wrong, and shows nothing about the age.
    if retention_ms is None or now_ms >= since.recorded_at_ms > now_ms - retention_ms + TOLERANCE_MS:
        yield (
            f"the events before position {present.first} are gone, the last of which was stored after entry "
            f"{since.position} of the log; that is not as long ago as the retention time"
        )


def _shortest_retention_ms(engine: Engine, event_type: str, since_ms: int) -> int | None:
    """The shortest retention time that an event type has had since a moment; None if its events did not expire."""
    query = (
        select(AUDIT_LOG.c.recorded_at, AUDIT_LOG.c.after)
        .where(AUDIT_LOG.c.resource_type == "event-type", AUDIT_LOG.c.resource == event_type)
        .order_by(AUDIT_LOG.c.position)
    )
    shortest: int | None = None
    with reading(engine) as connection:
        for row in connection.execute(query):
            if row.after is None:
                continue
            retention_ms = msgspec.json.decode(row.after, type=EventType).retention_ms
            if milliseconds(row.recorded_at) <= since_ms:
                shortest = retention_ms  # the setting in effect then
            elif retention_ms is not None:
                shortest = retention_ms if shortest is None else min(shortest, retention_ms)
    return shortest


# --- Compares the events of a storage in Kafka with the ranges of partitions and the digests in the log ---


class StoredEventsFinding(NamedTuple):
    """A difference between Kafka and the records of the log."""

    topic: str
    partition: int
    position: int | None
    """The first one; None if the finding is about the partition."""
    text: str

    def __str__(self) -> str:
        return f"topic {self.topic}, partition {self.partition}, {self.text}"


def kafka_findings(
    engine: Engine, store: EventStore, kafka: KafkaStorage, now_ms: int
) -> Iterator[StoredEventsFinding]:
    """Yield the events that were cut off, deleted too early, changed or replaced; reads closed topics once; blocks.

    Args:
        engine: of the registry's database, with the current schema.
        store: of the storage.
        kafka: the storage.
        now_ms: the present time.

    Raises:
        Unavailable: Kafka or the database does not answer.
    """
    storage_id, timelines = kafka.storage.id, kafka.timelines
    with reading(engine) as connection:
        span = span_of(connection, storage_id)
    present = {
        (topic, number): ChainHead(topic, number, bounds.oldest, bounds.newest + 1, "")
        for topic in timelines
        for number, bounds in enumerate(_bounds(store, topic))
    }
    # There is no chain in Kafka, and so no hash.
    stored = Stored(storage_id=storage_id, timelines=timelines, present=present, hash_at=lambda *_: "")
    for place, text in _head_findings(engine, stored, span, now_ms):
        yield StoredEventsFinding(place.topic, place.partition, None, text)
    for position, _, event in _entries(engine, TimelineDigested, span):
        if event.storage == storage_id and event.topic in timelines and event.topic not in kafka.compacted:
            for block in event.blocks:
                found = _differing(store, event.topic, block, present.get((event.topic, block.partition)))
                if found:
                    text = f"{found}; entry {position} of the log recorded another digest"
                    yield StoredEventsFinding(event.topic, block.partition, block.first, text)


def _bounds(store: EventStore, topic: str) -> Sequence[Bounds]:
    try:
        return store.bounds(topic)
    except NotFound:
        return ()


def _differing(store: EventStore, topic: str, block: DigestedBlock, present: ChainHead | None) -> str:
    """Return what differs if a block is there, from its first record to its last, and has another digest."""
    assert isinstance(store, DigestsTopics), "storages of type kafka make digests"
    if present is None or block.first < present.first or block.next > present.next:
        return ""  # expired, or missing: the range of the partition says which
    found = store.digest(topic, block.partition, block.first, block.next, POSITION_MAX)
    if found is None or found == block:  # None: it has expired meanwhile
        return ""
    where = f"positions {block.first} to {block.next - 1}: "
    if found.records < block.records:
        return f"{where}{block.records - found.records} of {block.records} records are missing"
    return f"{where}records were changed, or replaced"
