"""Tells when records were stored, with consumers of its own: what streams follow, read and cache is left as it is."""

import time
from typing import Any

from confluent_kafka import Consumer, Message, TopicPartition

from rioni.domain.errors import Unavailable
from rioni.storage.kafka.client import (
    END,
    OUT_OF_RANGE,
    Connection,
    TopicPartitionRef,
    to_unavailable,
    translate_errors,
)
from rioni.storage.threads.greenlet_semaphore import ThreadSafeSemaphore


KEPT = 1
"""Number of idle consumers that are kept; further callers at the same time open one each."""

FETCH_BYTES, BUFFER_KB, FETCH_WAIT_MS = 16_384, 64, 20
"""One record is wanted, so little is fetched; a broker holds a fetch that finds nothing for no longer than this."""

_SILENT = "Kafka does not respond. Retry later."


class RecordTimes:
    """Looks at single records, for any number of callers; each waits for the request timeout at most."""

    def __init__(self, connection: Connection) -> None:
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
