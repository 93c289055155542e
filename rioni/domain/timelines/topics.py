"""Topics: those that are being created or are pending deletion, and the digests of closed ones."""

from collections.abc import Iterable
from hashlib import sha256
from typing import Protocol, runtime_checkable

import msgspec

from rioni.domain.events import DomainEvent


# Topics of new event types that are being created in a storage: recorded before the storage is asked to make them.


class TopicCreation(msgspec.Struct, frozen=True, kw_only=True):
    """A topic that a process is about to create, or has created, for an event type that does not exist yet."""

    topic: str
    storage_id: str
    event_type: str
    """The name of the event type that is to be created."""
    worker: str
    """The process that creates it; if it dies, the topic is abandoned."""


class TopicCreationStarted(DomainEvent, frozen=True, kw_only=True):
    """A process is about to ask a storage for the first topic of a new event type."""

    TOPIC = "topic-creation.started"
    KEY = "topic"

    topic: str
    storage_id: str
    event_type: str
    worker: str


class TopicCreationEnded(DomainEvent, frozen=True, kw_only=True):
    """The topic belongs to a timeline, or was abandoned: other events of the same command show which."""

    TOPIC = "topic-creation.ended"
    KEY = "topic"

    topic: str


def evolve_creation(state: TopicCreation | None, event: DomainEvent) -> TopicCreation | None:
    """The state after an event; total."""
    match event:
        case TopicCreationStarted(topic=topic, storage_id=storage_id, event_type=event_type, worker=worker):
            return TopicCreation(topic=topic, storage_id=storage_id, event_type=event_type, worker=worker)
        case TopicCreationEnded():
            return None
        case _:
            return state


# --- Topics pending deletion, until their stores have deleted them ---


class AbandonedTopic(msgspec.Struct, frozen=True, kw_only=True):
    """A topic that is to be deleted."""

    topic: str
    storage_id: str
    event_type: str
    """The event type of its events."""


class TopicAbandoned(DomainEvent, frozen=True, kw_only=True):
    """A topic is to be deleted: its event type or timeline was deleted, or never created."""

    TOPIC = "topic.abandoned"
    KEY = "topic"

    topic: str
    storage_id: str
    event_type: str


class TopicDeleted(DomainEvent, frozen=True, kw_only=True):
    """An abandoned topic was deleted, with its events."""

    TOPIC = "topic.deleted"
    KEY = "topic"

    topic: str


def evolve_abandoned(state: AbandonedTopic | None, event: DomainEvent) -> AbandonedTopic | None:
    """The state after an event; total."""
    match event:
        case TopicAbandoned(topic=topic, storage_id=storage_id, event_type=event_type):
            return AbandonedTopic(topic=topic, storage_id=storage_id, event_type=event_type)
        case TopicDeleted():
            return None
        case _:
            return state


# Digests of closed topics: SHA-256 over blocks of records, by which a changed or missing record is found later.
#
# The digest of a block is SHA-256 over its records in order. A record is its offset and its timestamp in milliseconds
# as 8 bytes each, the number of its headers as 4 bytes, its key, its value, and then name and value of each header in
# the order in which they are stored. Keys, values, and the names and values of headers follow their length as 4 bytes;
# a length of -1 means that there is none. Numbers are signed and big-endian.

NO_VALUE = -1


class DigestedBlock(msgspec.Struct, frozen=True):
    """The digest of a block of records of one partition."""

    partition: int
    first: int
    """The position at which the block begins."""
    next: int
    """The position after the block."""
    records: int
    """The number of records in it: less than positions if Kafka's own entries took some."""
    digest: str
    """The digest in hexadecimal."""


class BlockDigest:
    """The digest of a block whose records are added one by one."""

    def __init__(self, partition: int, first: int) -> None:
        self._partition, self._first = partition, first
        self._hash, self.records, self.size = sha256(), 0, 0
        """The number of records, and of the bytes hashed."""

    def add(
        self,
        offset: int,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Iterable[tuple[str, bytes | None]],
    ) -> None:
        """Add the next record."""
        # PERF: 2 µs; one join and one update.
        fields = [key, value, *(each for name, text in headers for each in (name.encode(), text))]
        parts = [_number(offset, 8), _number(timestamp_ms, 8), _number(len(fields) // 2 - 1, 4)]
        for field in fields:
            parts += (_number(NO_VALUE, 4),) if field is None else (_number(len(field), 4), field)
        data = b"".join(parts)
        self._hash.update(data)
        self.records += 1
        self.size += len(data)

    def end(self, next_: int) -> DigestedBlock:
        """Return the block, given the position after it."""
        return DigestedBlock(self._partition, self._first, next_, self.records, self._hash.hexdigest())


def _number(value: int, size: int) -> bytes:
    return value.to_bytes(size, "big", signed=True)


@runtime_checkable
class DigestsTopics(Protocol):
    """An event store that can make digests of its records."""

    def digest(self, topic: str, partition: int, first: int, stop: int, bytes_max: int) -> DigestedBlock | None:
        """Return the digest of the records from a position on; blocks on the store, but no other greenlet.

        Args:
            topic: an existing topic.
            partition: its number.
            first: the position of the first record.
            stop: the position at which the block ends; at most the one after the last record.
            bytes_max: the block ends soon after it has this size.

        Returns:
            The block; None if retention has removed its first record.

        Raises:
            Unavailable: the store does not answer.
        """
