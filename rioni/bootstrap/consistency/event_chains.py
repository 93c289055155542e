"""Compares the stored events with their hash chains in the internal log: finds changed, cut and vanished events.

That a partition's chain is consistent in itself is checked by `rioni.storage.embedded.events.verification`; this module
compares it with what the log recorded, and so with the log's checkpoints.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from sqlalchemy import Connection, Engine, func, select

from rioni.domain.event_types.event_type import EventType
from rioni.domain.system.event_chains import AnchoredPartition, ChainHead, EventChainsAnchored
from rioni.domain.system.settings import LossAccepted
from rioni.domain.timelines.timeline import Timeline
from rioni.domain.timestamps import milliseconds
from rioni.log_tables import LOG
from rioni.projections.queries.states import all_states
from rioni.projections.tables import AUDIT_LOG
from rioni.storage.embedded.data_directory import events_path
from rioni.storage.embedded.events.chain_heads import hash_at, present_heads
from rioni.storage.embedded.events.read_only import ReadOnlyDatabase
from rioni.storage.sql.engines import reading


ENTRIES_PER_READ = 100
"""An entry may name 500 partitions."""

TOLERANCE_MS = 60_000
"""Events may have been stored a little before the time of the entry that does not have them yet."""


class _Anchor(msgspec.Struct, frozen=True):
    """What one entry of the log says about one partition."""

    position: int
    """Of the entry."""
    recorded_at_ms: int
    head: ChainHead


@dataclass
class _Partition:
    """A partition of a store, and what the anchors that were read so far say about it."""

    present: ChainHead | None
    """Its present head; None if the store does not have the partition."""
    last: _Anchor | None = None
    before_first: _Anchor | None = None
    """The last anchor that does not reach the event before the present first one: that was appended later."""
    findings: list[str] = field(default_factory=list)


def chain_findings(engine: Engine, data: Path, now_ms: int) -> Iterator[str]:
    """Yield a sentence for each partition that is not what the log says; blocks on the disk.

    Args:
        engine: of the registry's database, with the current schema.
        data: the data directory.
        now_ms: the present time.

    Raises:
        Unavailable: a database can't be read.
    """
    with reading(engine) as connection:
        accepted = _position_of_last_loss(connection)
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
        with contextlib.closing(ReadOnlyDatabase(path)) as database:
            partitions = _compared(engine, database, storage_id, accepted, timelines)
        for place, partition in sorted(partitions.items()):
            where = f"{path.name}, topic {place.topic}, partition {place.partition}: "
            early = _expired_too_early(engine, timelines[place.topic], partition, now_ms)
            yield from (where + text for text in [*partition.findings, *early])


def _position_of_last_loss(connection: Connection) -> int:
    """The position of the entry with which an operator accepted a loss: older anchors no longer hold."""
    query = select(func.max(LOG.c.position)).where(LOG.c.topic == LossAccepted.TOPIC)
    return connection.scalar(query) or 0


def _compared(
    engine: Engine,
    database: ReadOnlyDatabase,
    storage_id: str,
    after: int,
    timelines: Mapping[str, Timeline],
) -> dict[AnchoredPartition, _Partition]:
    present = {(head.topic, head.partition): head for head in present_heads(database)}
    partitions: dict[AnchoredPartition, _Partition] = {}
    while anchors := _anchors(engine, storage_id, after):
        for anchor in anchors:
            head = anchor.head
            if head.topic in timelines:  # others were deleted since
                place = AnchoredPartition(storage_id, head.topic, head.partition)
                partition = partitions.setdefault(place, _Partition(present.get((head.topic, head.partition))))
                _compare(database, partition, anchor)
        after = anchors[-1].position
    return partitions


def _anchors(engine: Engine, storage_id: str, after: int) -> Sequence[_Anchor]:
    query = (
        select(LOG.c.position, LOG.c.recorded_at, LOG.c.data)
        .where(LOG.c.topic == EventChainsAnchored.TOPIC, LOG.c.position > after)
        .order_by(LOG.c.position)
        .limit(ENTRIES_PER_READ)
    )
    with reading(engine) as connection:
        rows = connection.execute(query).all()
    found = []
    for row in rows:
        heads: Sequence[ChainHead] = ()
        # Damage of the log is found elsewhere. A damaged integer is no buffer.
        with contextlib.suppress(TypeError, ValueError):
            event = EventChainsAnchored.decode(bytes(memoryview(row.data)))
            heads = event.heads if event.storage == storage_id else ()
        # An empty head stands for an entry of another storage, so that reading goes on behind it.
        found += [_Anchor(row.position, milliseconds(row.recorded_at), head) for head in heads or (_NOTHING,)]
    return found


_NOTHING = ChainHead("", 0, 0, 0, "")


def _compare(database: ReadOnlyDatabase, partition: _Partition, anchor: _Anchor) -> None:
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
            f"the events from position {present.next} to {head.next - 1} are missing; {recorded} their hash"
        )
    elif _stored_hash(database, present, head) != head.hash:
        partition.findings.append(
            f"the events before position {head.next} were changed, or replaced: {recorded} another hash"
        )
    elif head.first > present.first:
        partition.findings.append(
            f"there are events from position {present.first} on; {recorded} that they had expired up to {head.first}"
        )
    if present is not None and head.next < present.first:
        partition.before_first = anchor


def _stored_hash(database: ReadOnlyDatabase, present: ChainHead, head: ChainHead) -> str:
    """The hash that the store has at the end of a recorded chain; that one itself if the events there have expired."""
    if head.next == present.next:
        return present.hash
    return hash_at(database, present, head.next) if head.next > present.first else head.hash


def _expired_too_early(engine: Engine, timeline: Timeline, partition: _Partition, now_ms: int) -> Iterator[str]:
    """Yield a sentence if events were deleted though their retention time can't be over."""
    present, since = partition.present, partition.before_first
    if present is None or since is None or partition.findings:
        return
    retention_ms = _shortest_retention_ms(engine, timeline.event_type, since.recorded_at_ms)
    if retention_ms is None or since.recorded_at_ms > now_ms - retention_ms + TOLERANCE_MS:
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
                shortest = retention_ms  # what was in effect then
            elif retention_ms is not None:
                shortest = retention_ms if shortest is None else min(shortest, retention_ms)
    return shortest
