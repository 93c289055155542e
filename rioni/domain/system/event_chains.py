"""Anchors of published events in the internal log: how far each partition had got, and the hash of its last chunk.

Every partition of an embedded storage carries a hash chain over its chunks of events. Its head is recorded in the log
from time to time: since then events that were changed, cut off or lost are found by comparing the store with the log,
and the log itself by its checkpoints. Of a partition in Kafka, which keeps no chain, the range is recorded; what its
records were, `rioni.domain.timelines.topics` says once the topic is closed.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import msgspec

from rioni.domain.events import DomainEvent


class ChainHead(msgspec.Struct, frozen=True):
    """The range of one partition at one moment, and the hash of its chain."""

    topic: str
    partition: int
    first: int
    """The position of the first event, or of the first that the chain covers; it moves when events expire."""
    next: int
    """The position after the last event."""
    hash: str
    """The hash of the last chunk, in hexadecimal; empty before the first, and in a store without chains."""


class EventChains(msgspec.Struct, frozen=True, kw_only=True):
    """The state: the log holds the heads themselves, in its events."""

    storage: str
    anchored: int
    """How many heads the last event named."""


class EventChainsAnchored(DomainEvent, frozen=True, kw_only=True):
    """The heads of partitions that had changed since they were recorded last."""

    TOPIC = "event-chains.anchored"
    KEY = "storage"

    storage: str
    heads: tuple[ChainHead, ...]


def evolve(_state: EventChains | None, event: DomainEvent) -> EventChains:
    """The state after an event; total."""
    assert isinstance(event, EventChainsAnchored)
    return EventChains(storage=event.storage, anchored=len(event.heads))


@runtime_checkable
class Chained(Protocol):
    """An event store whose partitions carry hash chains."""

    def unanchored_heads(self, limit: int) -> Sequence[ChainHead]:
        """Return heads that have changed since they were noted as anchored; blocks on the disk.

        Raises:
            Unavailable: the store can't be used.
        """

    def note_anchored(self, heads: Sequence[ChainHead]) -> None:
        """Note that the log holds these heads; blocks on the disk.

        Raises:
            Unavailable: the store can't write.
        """


@runtime_checkable
class Ranged(Protocol):
    """An event store whose partitions have ranges, but no hash chains."""

    def ranges(self, topics: Collection[str]) -> Sequence[ChainHead]:
        """Return the ranges of all partitions of topics, without those that have no leader now; blocks on the store.

        Topics that do not exist are left out.

        Raises:
            Unavailable: the store does not answer in time.
        """


class AnchoredPartition(NamedTuple):
    """A partition, as the key of the log's records about it."""

    storage: str
    topic: str
    partition: int
