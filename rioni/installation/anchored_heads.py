"""Compares the partitions of a store with the records of the internal log, and so with the log's checkpoints.

The store is an embedded one, whose partitions carry hash chains, or Kafka, of which the log has ranges only.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
from sqlalchemy import Connection, Engine, func, select

from rioni.domain.event_types.event_type import EventType
from rioni.domain.events import stream_id
from rioni.domain.system.event_chains import AnchoredPartition, ChainHead, EventChainsAnchored
from rioni.domain.system.settings import LossAccepted
from rioni.domain.system.storages import StorageMoved
from rioni.domain.timelines.timeline import Timeline
from rioni.domain.timestamps import milliseconds
from rioni.projections.tables import AUDIT_LOG
from rioni.sql.log_tables import HEAD, LOG
from rioni.storage.sql.engines import reading


ENTRIES_PER_READ = 100
"""An entry may name 500 partitions."""

TOLERANCE_MS = 60_000
"""Events may have been stored a little before the time of the entry that does not have them yet."""


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


class _Anchor(msgspec.Struct, frozen=True):
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


def head_findings(engine: Engine, stored: Stored, span: Span, now_ms: int) -> Iterator[tuple[AnchoredPartition, str]]:
    """Yield a sentence for each partition that differs from the log; blocks on the disk.

    Args:
        engine: of the registry's database, with the current schema.
        stored: the storage, read after the span was asked for.
        span: the entries that hold for it.
        now_ms: the present time.

    Raises:
        Unavailable: a database can't be read.
    """
    for place, partition in sorted(_compared(engine, stored, span).items()):
        early = _expired_too_early(engine, stored.timelines[place.topic], partition, now_ms)
        yield from ((place, text) for text in [*partition.findings, *early])


def _compared(engine: Engine, stored: Stored, span: Span) -> dict[AnchoredPartition, _Partition]:
    partitions: dict[AnchoredPartition, _Partition] = {}
    while anchors := _anchors(engine, stored.storage_id, span):
        for anchor in anchors:
            head = anchor.head
            if head.topic in stored.timelines:  # others were deleted since
                place = AnchoredPartition(stored.storage_id, head.topic, head.partition)
                present = stored.present.get((head.topic, head.partition))
                _compare(stored, partitions.setdefault(place, _Partition(present)), anchor)
        span = span._replace(after=anchors[-1].position)
    return partitions


def last_anchoring(connection: Connection) -> str | None:
    """Return when heads of hash chains were last recorded in the log."""
    query = select(LOG.c.recorded_at).where(LOG.c.topic == EventChainsAnchored.TOPIC).order_by(LOG.c.position.desc())
    return connection.scalar(query.limit(1))


def _anchors(engine: Engine, storage_id: str, span: Span) -> Sequence[_Anchor]:
    query = (
        select(LOG.c.position, LOG.c.recorded_at, LOG.c.data)
        .where(LOG.c.topic == EventChainsAnchored.TOPIC, LOG.c.position > span.after, LOG.c.position <= span.until)
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
        # An empty head stands for an entry of another storage, so that reading goes on after it.
        found += [_Anchor(row.position, milliseconds(row.recorded_at), head) for head in heads or (_NOTHING,)]
    return found


_NOTHING = ChainHead("", 0, 0, 0, "")


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
