"""Verifies the timelines' topics in Kafka: configuration, offsets and records."""

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import orjson

from rioni.domain.errors import NotFound
from rioni.domain.ports.event_store import Chunk, EventStore
from rioni.domain.publishing.headers import COMPACTED
from rioni.domain.timelines.position import Bounds
from rioni.domain.timelines.timeline import Timeline


READ_BYTES = 1_000_000


@runtime_checkable
class ChecksTopics(Protocol):
    """A store that can check the configuration of its topics; a protocol, since the driver of Kafka is an extra."""

    def is_safe(self, topic: str) -> bool:
        """Whether unclean leader election is disabled for the topic; blocks; raises Unavailable, NotFound."""


def verify(store: EventStore, timeline: Timeline, *, compacted: bool) -> Iterator[str]:
    """Yield all damage of a timeline; reads all of it, without blocking appends and other reads.

    Args:
        store: the store of the timeline's storage.
        timeline: one that is not deleted.
        compacted: whether events may be missing in between.

    Raises:
        Unavailable: Kafka does not answer.
    """
    topic = timeline.topic
    try:
        found = store.bounds(topic)
    except NotFound:
        yield f"topic {topic}: there is none"
        return
    if isinstance(store, ChecksTopics) and not store.is_safe(topic):
        yield (
            f"topic {topic}: unclean.leader.election.enable is not set to false, so that a broker that lacks "
            "acknowledged events may lead it; Rioni sets it with the next round of retention or compaction"
        )
    if len(found) < timeline.partitions:
        yield f"topic {topic}: has {len(found)} partitions, not {timeline.partitions}"
    for number, bounds in enumerate(found):
        end = bounds.newest if timeline.latest_position is None else timeline.latest_position[number]
        if end != bounds.newest:
            yield f"topic {topic}, partition {number}: ends at {bounds.newest}, and was closed at {end}"
        for damage in _verify_partition(store, topic, number, bounds, compacted=compacted):
            yield f"topic {topic}, partition {number}, {damage}"


def _verify_partition(store: EventStore, topic: str, number: int, bounds: Bounds, *, compacted: bool) -> Iterator[str]:
    position = bounds.oldest
    while position <= bounds.newest:
        chunks = store.read(topic, number, position, READ_BYTES)
        if not chunks:
            yield f"positions {position} to {bounds.newest}: can't be read"
            return
        for chunk in chunks:
            # Retention continues meanwhile.
            if chunk.first > position and not compacted and chunk.first > store.bounds(topic)[number].oldest:
                yield f"positions {position} to {chunk.first - 1}: missing"
            for place in range(max(position, chunk.first), chunk.next):
                if damage := _damage(chunk, place, compacted=compacted):
                    yield f"position {place}: {damage}"
            position = chunk.next


def _damage(chunk: Chunk, position: int, *, compacted: bool) -> str:
    event = chunk.cut(position, position + 1)
    headers = chunk.headers_of(position)
    if not event:
        if headers == COMPACTED:
            return "" if compacted else "missing"
        return "" if headers.key else "a deletion without a key"
    try:
        orjson.loads(event)
    except orjson.JSONDecodeError:
        return "no JSON"
    return ""
