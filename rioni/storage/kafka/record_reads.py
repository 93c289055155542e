"""Reads records with its own consumers: when they were stored, and digests of closed topics."""

import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from rioni.domain.errors import Unavailable
from rioni.domain.timelines.topics import BlockDigest, DigestedBlock
from rioni.storage.kafka.backfill_readers import OutOfRange
from rioni.storage.kafka.client import (
    END,
    OUT_OF_RANGE,
    KafkaConnection,
    TopicPartitionRef,
    to_unavailable,
    translate_errors,
)
from rioni.storage.threads import ThreadSafeSemaphore


# --- Reads the records of closed topics as they are stored, and makes digests of them; one block at a time ---

DIGESTS_BUFFER_KB = 8_192
"""How much unread data the consumer may buffer."""

MESSAGES_MAX = 500
"""Maximum number of messages consumed at once."""

METADATA_TIMEOUT_S = 2.0


class DigestReader:
    """Reads blocks of records with one consumer, which continues after the last block; for one caller at a time."""

    def __init__(self, connection: KafkaConnection) -> None:
        """Prepare; connects when it is first used."""
        self._connection = connection
        self._consumer: Any = None
        self._at: tuple[TopicPartitionRef, int] | None = None
        """The partition that is assigned, and the position that is consumed next."""

    def digest(self, place: TopicPartitionRef, first: int, stop: int, bytes_max: int) -> DigestedBlock | None:
        """Return the digest of a block; blocks a native thread. See the port `DigestsTopics`.

        Raises:
            Unavailable: Kafka does not answer within the request time-out, counted from the last record that arrived.
        """
        block = BlockDigest(place.partition, first)
        try:
            self._seek(place, first)
            return block.end(self._read(block, place, range(first, stop), bytes_max))
        except OutOfRange:
            self._leave()
            return None
        except KafkaException as ex:
            self.close()
            raise to_unavailable(ex.args[0]) from ex
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the consumer; the next block opens another one."""
        consumer, self._consumer, self._at = self._consumer, None, None
        if consumer is not None:
            consumer.close()

    def _seek(self, place: TopicPartitionRef, first: int) -> None:
        if self._at == (place, first):
            return
        if self._consumer is None:
            self._consumer = Consumer(self._connection.consumer(**{"queued.max.messages.kbytes": DIGESTS_BUFFER_KB}))
        # Unknown topics would be retried by the consumer only once a second.
        self._consumer.list_topics(place.topic, min(self._connection.request_timeout_s, METADATA_TIMEOUT_S))
        self._consumer.assign([TopicPartition(*place, first)])

    def _read(self, block: BlockDigest, place: TopicPartitionRef, positions: range, bytes_max: int) -> int:
        """Add records to a block; return the position after it."""
        position = consumed = positions.start
        timeout_s = self._connection.request_timeout_s
        deadline_s = time.monotonic() + timeout_s
        while position < positions.stop and block.size < bytes_max:
            count = min(MESSAGES_MAX, positions.stop - position)
            for message in self._consumer.consume(count, 0) or self._consumer.consume(1, timeout_s):
                # The queue may still hold messages of the partition before.
                if (message.topic(), message.partition()) == place:
                    consumed = max(consumed, _take(block, message, positions.stop))
            if consumed > position:
                position, deadline_s = min(consumed, positions.stop), time.monotonic() + timeout_s
            elif time.monotonic() >= deadline_s:
                raise Unavailable("Kafka does not respond. Retry later.")
        _, end = self._consumer.get_watermark_offsets(TopicPartition(*place), cached=True)
        if position == consumed < end:
            self._at = (place, position)
        else:
            self._leave()
        return position

    def _leave(self) -> None:
        self._at = None
        self._consumer.unassign()


def _take(block: BlockDigest, message: Message, stop: int) -> int:
    """Add a record to a block unless it lies after it; return up to where the partition has been consumed."""
    if (error := message.error()) is None:
        offset: Any = message.offset()
        if offset < stop:
            # Kafka's client returns the values of headers as bytes, or None.
            headers: Any = message.headers() or ()
            block.add(offset, message.timestamp()[1], message.key(), message.value(), headers)
        return int(offset) + 1
    if error.code() == END:
        return message.offset() or 0
    if error.code() == OUT_OF_RANGE:
        raise OutOfRange
    if not error.retriable():
        raise to_unavailable(error)
    return 0


# Finds when records were stored, with its own consumers: those of streams, and the cache, stay as they are.

KEPT = 1
"""Number of idle consumers that are kept; further callers at the same time open one each."""

FETCH_BYTES, BUFFER_KB, FETCH_WAIT_MS = 16_384, 64, 20
"""One record is wanted, so little is fetched; a broker holds a fetch that finds nothing for no longer than this."""

_SILENT = "Kafka does not respond. Retry later."


class RecordTimes:
    """Looks at single records, for any number of callers; each waits for the request timeout at most."""

    def __init__(self, connection: KafkaConnection) -> None:
        """Prepare; connects when it is first used."""
        self._connection = connection
        self._lock = ThreadSafeSemaphore()
        self._idle: list[Any] = []

    def recorded_at_ms(self, place: TopicPartitionRef, first: int) -> int | None:
        """When the record at a position, or the next existing one, was stored; None after the newest.

        Blocks a native thread.

        Raises:
            NotFound: topic or partition unknown.
            Unavailable: Kafka does not answer.
        """
        consumer = self._take()
        try:
            found = translate_errors(lambda: self._look(consumer, place, first), place.topic)
        except BaseException:
            consumer.close()
            raise
        self._release(consumer)
        return found

    def close(self) -> None:
        """Close the idle consumers; blocks a native thread."""
        while self._idle:
            self._idle.pop().close()

    def _take(self) -> Any:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        settings = {
            "queued.max.messages.kbytes": BUFFER_KB,
            "queued.min.messages": 1,
            "fetch.wait.max.ms": FETCH_WAIT_MS,
            "max.partition.fetch.bytes": FETCH_BYTES,
        }
        return Consumer(self._connection.consumer(**settings))

    def _release(self, consumer: Any) -> None:
        with self._lock:
            if len(self._idle) < KEPT:
                self._idle.append(consumer)
                return
        consumer.close()

    def _look(self, consumer: Any, place: TopicPartitionRef, first: int) -> int | None:
        timeout_s = self._connection.request_timeout_s
        deadline_s = time.monotonic() + timeout_s
        oldest, end = consumer.get_watermark_offsets(TopicPartition(*place), timeout_s)
        position = max(first, oldest)
        if position >= end:
            return None
        consumer.assign([TopicPartition(*place, position)])
        try:
            while (left_s := deadline_s - time.monotonic()) > 0:
                message = consumer.poll(left_s)
                # The queue may still hold a message of the partition before.
                if message is not None and (message.topic(), message.partition()) == place:
                    if message.error() is None and message.offset() >= position:
                        recorded_at_ms: int = message.timestamp()[1]
                        return recorded_at_ms
                    if _is_at_end(message):
                        return None
            raise Unavailable(_SILENT)
        finally:
            consumer.unassign()


def _is_at_end(message: Message) -> bool:
    """Whether nothing follows, as compaction may have removed all; raises Unavailable for other errors that stay."""
    error = message.error()
    if error is None or (error.retriable() and error.code() != OUT_OF_RANGE):
        return False
    if error.code() == END:
        return True
    raise to_unavailable(error)
