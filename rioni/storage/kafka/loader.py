"""Reads what is no longer in memory: a few consumers, each of which goes on where it is for whoever reads there."""

import time

from confluent_kafka import Consumer, Message, TopicPartition

from rioni.domain.errors import Unavailable
from rioni.domain.ports import Chunk, Offload
from rioni.domain.store_measurements import StoreMeasurements
from rioni.storage.kafka.client import END, OUT_OF_RANGE, Connection, Place, unavailable
from rioni.storage.kafka.records import Record, chunks_of, record_of
from rioni.storage.places import Places


KEPT = 8
"""Consumers that stay when nobody needs them."""

BUFFER_KB = 8_192
"""What each of them may hold that nobody has read."""

MESSAGES_MAX = 1_000
"""What is taken over at once."""


class OutOfRange(Exception):
    """There is no such offset, or no longer."""


class _Loader:
    """A consumer, and what it comes to next."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.at: tuple[Place, int] | None = None


class Loaders:
    """Reads chunks for any number of callers at once."""

    def __init__(self, connection: Connection, offload: Offload, measurements: StoreMeasurements) -> None:
        self._connection, self._offload, self._measurements = connection, offload, measurements
        self._lock = Places()
        self._idle: list[_Loader] = []

    def load(self, place: Place, position: int, stop: int, bytes_max: int) -> list[Chunk]:
        """The chunks from a position on, which is not at the end; about as many bytes as wanted, or fewer.

        Args:
            place: the partition.
            position: where to begin.
            stop: the position behind the last one that is known to be written.
            bytes_max: reading ends with the event that reaches it.

        Raises:
            OutOfRange: there is no such position, or no longer.
            Unavailable: Kafka does not answer.
        """
        loader = self._take(place, position)
        try:
            chunks = self._offload(_load, loader, place, position, stop, bytes_max, self._connection.request_timeout_s)
        except BaseException:
            self._offload(loader.consumer.close)
            raise
        self._give_back(loader)
        self._measurements.loaded_bytes(sum(len(chunk.data) for chunk in chunks))
        return chunks

    def close(self) -> None:
        """Let go of all consumers."""
        while self._idle:
            self._offload(self._idle.pop().consumer.close)

    def _take(self, place: Place, position: int) -> _Loader:
        with self._lock:
            for index, loader in enumerate(self._idle):
                if loader.at == (place, position):
                    return self._idle.pop(index)
            if len(self._idle) >= KEPT:
                return self._idle.pop(0)
        return _Loader(Consumer(self._connection.consumer(**{"queued.max.messages.kbytes": BUFFER_KB})))

    def _give_back(self, loader: _Loader) -> None:
        with self._lock:
            self._idle.append(loader)
            surplus = self._idle.pop(0) if len(self._idle) > KEPT else None
        if surplus is not None:
            self._offload(surplus.consumer.close)


def _load(loader: _Loader, place: Place, position: int, stop: int, bytes_max: int, timeout_s: float) -> list[Chunk]:
    consumer = loader.consumer
    if loader.at != (place, position):
        consumer.assign([TopicPartition(*place, position)])
    loader.at = None
    records: list[Record] = []
    size, end = 0, position
    deadline_s = time.monotonic() + timeout_s
    while end < stop and size < bytes_max:
        # What is there is taken at once; only the first has to be waited for.
        messages = consumer.consume(MESSAGES_MAX, 0) or _next(consumer, deadline_s - time.monotonic())
        for message in messages:
            if message.error() is None:
                records.append(record_of(message))
                size += len(records[-1].value)
                end = records[-1].offset + 1
            elif message.error().code() == END:
                end = max(end, message.offset())
            elif message.error().code() == OUT_OF_RANGE:
                raise OutOfRange
            elif not message.error().retriable():
                raise unavailable(message.error())
        if not messages:
            raise Unavailable("Kafka does not answer. Read again later.")
    loader.at = place, end
    return chunks_of(records, position, end)


def _next(consumer: Consumer, timeout_s: float) -> list[Message]:
    message = consumer.poll(max(0.0, timeout_s))
    return [] if message is None else [message]
