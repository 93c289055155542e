"""Imports the events of another store, preserving positions and timestamps."""

import time
from collections.abc import Iterable
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from rioni.domain.errors import Conflict, Unavailable
from rioni.domain.ports.event_store import Chunk
from rioni.domain.publishing.headers import COMPACTED, NO_HEADERS, Headers
from rioni.storage.kafka.client import RECORD_BYTES_MAX, KafkaConnection, to_unavailable, translate_errors
from rioni.storage.kafka.records import headers_of, key_of
from rioni.storage.kafka.topics.admin import Admin
from rioni.storage.kafka.topics.topics import Topics


LOOK_EVERY_S = 0.1
HEADERS_BYTES = 10_000
SETTLE_TIMEOUT_S = 330.0
"""Longer than the time after which Kafka's producer abandons a record."""
FLUSH_EVERY = 100_000
"""Maximum number of events in flight; deliveries are confirmed at least this often."""


class EventImporter:
    """Imports events into existing topics without other writers; every method blocks."""

    def __init__(self, connection: KafkaConnection) -> None:
        """Create the clients, which connect when first used."""
        self._connection = connection
        self._admin = Admin(connection)
        self._topics = Topics(connection)
        settings = {
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 20,
            "message.max.bytes": RECORD_BYTES_MAX + HEADERS_BYTES,
            "queue.buffering.max.kbytes": 2**17,
        }
        self._producer = Producer(connection.client(**settings))

    def begin(self, topic: str) -> None:
        """Configure a topic to accept events with old timestamps, if it does not already.

        Raises:
            Unavailable: Kafka rejects the change or does not answer.
        """
        self._topics.accept_old_timestamps(topic, late=True)

    def finish(self, topic: str) -> None:
        """Restore the timestamp limit of topics for new events; raises as `begin`."""
        self._topics.accept_old_timestamps(topic, late=False)

    def write(self, topic: str, partition: int, position: int, chunks: Iterable[Chunk]) -> None:
        """Append chunks to a partition, preserving the position of every event.

        Args:
            topic: an existing topic.
            partition: its number.
            position: the next one of the partition.
            chunks: in order, none before that position. Missing positions become removed events.

        Raises:
            Conflict: the partition's next offset is not this position.
            Unavailable: Kafka does not confirm them all; an unknown number of the first ones is stored.
        """
        target = _Target(self._producer, self._connection.topic_prefix + topic, partition, position)
        for chunk in chunks:
            while target.position < chunk.first:
                target.produce(b"", COMPACTED, chunk.recorded_at_ms)
            for place in range(target.position, chunk.next):
                target.produce(chunk.cut(place, place + 1), chunk.headers_of(place), chunk.recorded_at_ms)
        target.settle()

    def skip(self, topic: str, partition: int, position: int, until: int, recorded_at_ms: int) -> None:
        """Advance a partition to a later position; raises as `write` does."""
        target = _Target(self._producer, self._connection.topic_prefix + topic, partition, position)
        while target.position < until:
            target.produce(b"", COMPACTED, recorded_at_ms)
        target.settle()

    def remove_before(self, topic: str, partition: int, position: int) -> None:
        """Remove all events before a position.

        Raises:
            Unavailable: Kafka rejects the request or does not answer.
        """
        place = TopicPartition(self._connection.topic_prefix + topic, partition, position)
        translate_errors(lambda: self._admin.request("delete_records", [place]), topic)


class _Target:
    """One partition, and the outcome of the events in flight to it."""

    def __init__(self, producer: Producer, name: str, partition: int, position: int) -> None:
        self.position = position
        self._producer, self._name, self._partition = producer, name, partition
        self._arrived = position
        self._error: KafkaError | None = None
        self._misplaced: int | None = None

    def produce(self, event: bytes, headers: Headers, recorded_at_ms: int) -> None:
        record: dict[str, Any] = {"key": key_of(headers), "headers": headers_of(headers)}
        while True:
            try:
                self._producer.produce(
                    self._name,
                    event or None,
                    partition=self._partition,
                    timestamp=recorded_at_ms,
                    on_delivery=self._delivered,
                    **({} if headers is NO_HEADERS else record),
                )
            except BufferError:
                self._producer.poll(LOOK_EVERY_S)
            except KafkaException as ex:
                raise to_unavailable(ex.args[0]) from ex
            else:
                break
        self.position += 1
        if self.position - self._arrived >= FLUSH_EVERY:
            self.settle()

    def settle(self) -> None:
        """Wait until all events in flight are delivered."""
        deadline_s = time.monotonic() + SETTLE_TIMEOUT_S
        while self._producer.flush(LOOK_EVERY_S) and time.monotonic() < deadline_s:
            pass
        if self._error is not None:
            raise to_unavailable(self._error)
        if self._misplaced is not None:
            raise Conflict(
                f"Unexpected offset in topic {self._name}: another producer writes to it. Delete the topic and "
                "restart the import."
            )
        if self._arrived != self.position:
            raise Unavailable(f"Delivery of events to {self._name} was not confirmed. Try again.")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._error = error
        elif message.offset() != self._arrived:
            self._misplaced = message.offset()
        else:
            self._arrived += 1
