"""Compares stored events with the internal log: by hash chains if embedded, by digests in Kafka."""

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Engine, select

from rioni.domain.errors import NotFound
from rioni.domain.ports.event_store import EventStore
from rioni.domain.system.event_chains import ChainHead
from rioni.domain.timelines.position import POSITION_MAX, Bounds
from rioni.domain.timelines.timeline import TimelineDigested
from rioni.domain.timelines.topics import DigestedBlock, DigestsTopics
from rioni.installation.anchored_heads import Span, Stored, head_findings, span_of
from rioni.installation.kafka import KafkaStorage
from rioni.projections.projector import all_states
from rioni.sql.log_tables import LOG
from rioni.storage.embedded.data_directory import events_path
from rioni.storage.embedded.events.verification import ReadOnlyDatabase, hash_at, present_heads
from rioni.storage.sql.engines import reading


# --- Compares the events of embedded storages with their hash chains in the internal log ---
#
# The consistency of each chain in itself is checked by `rioni.storage.embedded.events.verification`; this module
# compares it with what the log recorded: see `rioni.installation.anchored_heads`.


def chain_findings(engine: Engine, data: Path, now_ms: int) -> Iterator[str]:
    """Yield a sentence for each partition that differs from the log; blocks on the disk.

    Args:
        engine: of the registry's database, with the current schema.
        data: the data directory.
        now_ms: the present time.

    Raises:
        Unavailable: a database can't be read.
    """
    with reading(engine) as connection:
        timelines = {
            timeline.topic: timeline
            for kind, _, state in all_states(connection)
            if kind == "timeline"
            for timeline in state.readable
        }
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
            for place, text in head_findings(engine, stored, span, now_ms):
                yield f"{path.name}, topic {place.topic}, partition {place.partition}: {text}"


# Compares the events of a storage in Kafka with the ranges of partitions and the digests in the internal log.

ENTRIES_PER_READ = 100
"""An entry may have 100 blocks."""


class Finding(NamedTuple):
    """A difference between Kafka and the records of the log."""

    topic: str
    partition: int
    position: int | None
    """The first one; None if the finding is about the partition."""
    text: str

    def __str__(self) -> str:
        return f"topic {self.topic}, partition {self.partition}, {self.text}"


def kafka_findings(engine: Engine, store: EventStore, kafka: KafkaStorage, now_ms: int) -> Iterator[Finding]:
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
    stored = Stored(storage_id=storage_id, timelines=timelines, present=present, hash_at=_no_hash)
    for place, text in head_findings(engine, stored, span, now_ms):
        yield Finding(place.topic, place.partition, None, text)
    for position, event in _digested(engine, span):
        if event.storage == storage_id and event.topic in timelines and event.topic not in kafka.compacted:
            for block in event.blocks:
                yield from _compare(store, event.topic, block, present.get((event.topic, block.partition)), position)


def _bounds(store: EventStore, topic: str) -> Sequence[Bounds]:
    try:
        return store.bounds(topic)
    except NotFound:
        return ()


def _no_hash(_present: ChainHead, _position: int) -> str:
    """The hash of a chain in Kafka, which has none: an empty text."""
    return ""


def _digested(engine: Engine, span: Span) -> Iterator[tuple[int, TimelineDigested]]:
    """Yield the entries with digests, with their positions."""
    while True:
        query = (
            select(LOG.c.position, LOG.c.data)
            .where(LOG.c.topic == TimelineDigested.TOPIC, LOG.c.position > span.after, LOG.c.position <= span.until)
            .order_by(LOG.c.position)
            .limit(ENTRIES_PER_READ)
        )
        with reading(engine) as connection:
            rows = connection.execute(query).all()
        if not rows:
            return
        for row in rows:
            # Damage of the log is found elsewhere. A damaged integer is no buffer.
            with contextlib.suppress(TypeError, ValueError):
                yield row.position, TimelineDigested.decode(bytes(memoryview(row.data)))
        span = span._replace(after=rows[-1].position)


def _compare(
    store: EventStore, topic: str, block: DigestedBlock, present: ChainHead | None, position: int
) -> Iterator[Finding]:
    """Yield a finding if a block is there, from its first record to its last, and has another digest."""
    assert isinstance(store, DigestsTopics), "storages of type kafka make digests"
    if present is None or block.first < present.first or block.next > present.next:
        return  # expired, or missing: the range of the partition says which
    found = store.digest(topic, block.partition, block.first, block.next, POSITION_MAX)
    if found is None or found == block:  # None: it has expired meanwhile
        return
    where = f"positions {block.first} to {block.next - 1}: "
    if found.records < block.records:
        text = f"{block.records - found.records} of {block.records} records are missing"
    else:
        text = "records were changed, or replaced"
    recorded = f"; entry {position} of the log recorded another digest"
    yield Finding(topic, block.partition, block.first, where + text + recorded)
