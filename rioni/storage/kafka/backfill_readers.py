"""Reads events from Kafka after a cache miss, with a small pool of consumers for one stream's partitions each."""

import contextlib
import time
from collections.abc import Mapping
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from rioni.domain.errors import Unavailable
from rioni.domain.ports.event_store import Chunk, StoreMeasurements
from rioni.domain.ports.host import ThreadPool
from rioni.storage.kafka.client import (
    END,
    OUT_OF_RANGE,
    KafkaConnection,
    TopicPartitionRef,
    next_message,
    to_unavailable,
)
from rioni.storage.kafka.records import Record, chunks_of, record_of
from rioni.storage.threads import ThreadSafeSemaphore


KEPT = 8
"""Number of idle consumers that are kept."""

BUFFER_KB = 8_192
"""How much unread data each consumer may buffer."""

FETCH_BYTES, FETCH_BYTES_MIN = 1_048_576, 16_384
"""Bytes of a fetch: in total, and the minimum per partition. PERF: a consumer delivers everything fetched from one
partition before the next one, so larger fetches delay the first records of the last partition."""

MESSAGES_MAX = 1_000
"""Maximum number of messages consumed at once."""

BESIDE_S = 0.1
"""How long to wait for the first records of other partitions once those requested have arrived."""

AHEAD_BYTES_MAX = 1_048_576
"""How much is read from a partition without being requested; then it is unassigned."""

LOOK_EVERY_S = 0.01
METADATA_TIMEOUT_S = 2.0


class WantedRecords(NamedTuple):
    """The range to be read from a partition."""

    position: int
    """The start; before the end of the partition."""
    stop: int
    """The position after the last one known to be written."""


class OutOfRange(Exception):
    """The offset does not exist, or not any more."""


class _Loader:
    """A consumer and its assignment."""

    def __init__(self, consumer: Consumer, *, shared: bool) -> None:
        self.consumer, self.shared = consumer, shared
        """Whether it was created for several partitions, with a small fetch size for each."""
        self.at: dict[TopicPartitionRef, int] = {}
        """The next position of each assigned partition."""
        self.ahead: dict[TopicPartitionRef, int] = {}
        """The bytes read of a partition since it was last requested."""

    def assign(self, wanted: Mapping[TopicPartitionRef, WantedRecords], timeout_s: float) -> None:
        """Continue reading these partitions, or start."""
        new = {place: each for place, each in wanted.items() if self.at.get(place) != each.position}
        if len(new) == len(wanted):
            self.leave(list(self.at))
        self.leave([place for place in new if place in self.at])
        # Unknown topics would be retried by the consumer only once a second.
        with contextlib.suppress(KafkaException):
            for name in {place.topic for place in new} - {place.topic for place in self.at}:
                self.consumer.list_topics(name, min(timeout_s, METADATA_TIMEOUT_S))
        self.consumer.incremental_assign([TopicPartition(*place, each.position) for place, each in new.items()])
        self.at |= {place: each.position for place, each in new.items()}
        self.ahead = {place: 0 if place in wanted else self.ahead[place] for place in self.at}

    def leave(self, places: list[TopicPartitionRef]) -> None:
        """Unassign partitions."""
        if places:
            self.consumer.incremental_unassign([TopicPartition(*place) for place in places])
        for place in places:
            del self.at[place]


class BackfillReaders:
    """Reads chunks for any number of callers at once."""

    def __init__(self, connection: KafkaConnection, pool: ThreadPool, measurements: StoreMeasurements) -> None:
        self._connection, self._pool, self._measurements = connection, pool, measurements
        self._lock = ThreadSafeSemaphore()
        self._idle: list[_Loader] = []

    def load(
        self,
        place: TopicPartitionRef,
        wanted: WantedRecords,
        bytes_max: int,
        prefetch: Mapping[TopicPartitionRef, WantedRecords] | None = None,
    ) -> dict[TopicPartitionRef, list[Chunk]]:
        """Read chunks of a partition, and of others at the same time.

        Args:
            place: the partition.
            wanted: the range to read.
            bytes_max: reading ends with the event that reaches it.
            prefetch: other partitions of which at least the first chunks are wanted, if they arrive soon. With them,
                reading ends as soon as there is something of each.

        Returns:
            At least one chunk of the partition, and chunks of others, requested or not.

        Raises:
            OutOfRange: a position does not exist, or not any more, in one of the partitions.
            Unavailable: Kafka does not answer.
        """
        loader = self._take(place, wanted.position)
        others: dict[TopicPartitionRef, WantedRecords] = {}
        if loader is None or len(loader.at) > KEPT:
            others = self._unread(prefetch or {})
        elif loader.shared:
            # PERF: a consumer for each partition is three times as fast from then on, as long as they are few.
            try:
                self._pool(loader.leave, [place])
            finally:
                self._release(loader)
            loader = None
        loader = loader or self._free(1 + len(others))
        all_wanted = {place: wanted, **others}
        try:
            reading = _Reading(loader, all_wanted, self._connection.request_timeout_s)
            found = self._pool(reading.load, place, bytes_max)
        except BaseException:
            self._pool(loader.consumer.close)
            raise
        self._release(loader)
        self._measurements.loaded_bytes(sum(len(chunk.data) for chunks in found.values() for chunk in chunks))
        return found

    def close(self) -> None:
        """Close all consumers."""
        while self._idle:
            self._pool(self._idle.pop().consumer.close)

    def _take(self, place: TopicPartitionRef, position: int) -> _Loader | None:
        """Take the idle consumer whose next position this is, or None."""
        with self._lock:
            found = next((loader for loader in self._idle if loader.at.get(place) == position), None)
            if found is not None:
                self._idle.remove(found)
            return found

    def _unread(self, wanted: Mapping[TopicPartitionRef, WantedRecords]) -> dict[TopicPartitionRef, WantedRecords]:
        """Return the partitions that no idle consumer is positioned for."""
        with self._lock:
            read = {item for loader in self._idle for item in loader.at.items()}
        return {place: each for place, each in wanted.items() if (place, each.position) not in read}

    def _free(self, partitions: int) -> _Loader:
        """Return a consumer for some partitions: a new one, or for one partition the least recently used idle one.

        An unassigned consumer is no faster than a new one: it may be in the middle of a fetch that waits for events.
        """
        with self._lock:
            if partitions == 1 and len(self._idle) >= KEPT:
                return self._idle.pop(0)
        fetch_bytes = max(FETCH_BYTES // partitions, FETCH_BYTES_MIN)
        settings = {"queued.max.messages.kbytes": BUFFER_KB, "max.partition.fetch.bytes": fetch_bytes}
        return _Loader(Consumer(self._connection.consumer(**settings)), shared=partitions > 1)

    def _release(self, loader: _Loader) -> None:
        surplus: _Loader | None = loader
        if loader.at or not loader.shared:
            with self._lock:
                self._idle.append(loader)
                surplus = self._idle.pop(0) if len(self._idle) > KEPT else None
        if surplus is not None:
            self._pool(surplus.consumer.close)


class _Run:
    """The records read from a partition."""

    def __init__(self, begin: int) -> None:
        self.begin = self.end = begin
        self.size = 0
        self.records: list[Record] = []


class _Reading:
    """One call of `load`, in a native thread."""

    def __init__(self, loader: _Loader, wanted: Mapping[TopicPartitionRef, WantedRecords], timeout_s: float) -> None:
        self._loader, self._wanted, self._timeout_s = loader, wanted, timeout_s
        self._runs: dict[TopicPartitionRef, _Run] = {}
        self._awaited: dict[int | None, _Run] = {}

    def load(self, place: TopicPartitionRef, bytes_max: int) -> dict[TopicPartitionRef, list[Chunk]]:
        deadline_s = time.monotonic() + self._timeout_s
        try:
            self._loader.assign(self._wanted, self._timeout_s)
        except KafkaException as ex:
            raise to_unavailable(ex.args[0]) from ex
        self._runs = {each: _Run(position) for each, position in self._loader.at.items()}
        # All partitions of a consumer are of one topic.
        self._awaited = {each.partition: self._runs[each] for each in self._wanted}
        run, stop = self._runs[place], self._wanted[place].stop
        bytes_max = 1 if len(self._wanted) > 1 else bytes_max
        while run.end < stop and run.size < bytes_max:
            # Records that have arrived are taken at once; only the first is awaited.
            if not self._take_over(deadline_s - time.monotonic()):
                raise Unavailable("Kafka does not respond. Retry later.")
        missing, until_s = len(self._wanted), 0.0
        while (still := self._missing()) > 0 and (still < missing or time.monotonic() < until_s):
            if still < missing:
                missing, until_s = still, min(deadline_s, time.monotonic() + BESIDE_S)
            self._take_over(LOOK_EVERY_S)
        self._loader.at |= {each: self._runs[each].end for each in self._wanted}
        # At the end of a partition every fetch waits, and would delay the partition assigned next.
        self._loader.leave([each for each in self._wanted if self._runs[each].end >= self._wanted[each].stop])
        return {
            each: chunks_of(found.records, found.begin, found.end)
            for each, found in self._runs.items()
            if found.end > found.begin
        }

    def _missing(self) -> int:
        """Return the number of partitions without any records yet."""
        return sum(self._runs[place].end == self._runs[place].begin for place in self._wanted)

    def _take_over(self, wait_s: float) -> bool:
        """Consume messages that have arrived, or wait for the next one; return False on timeout."""
        consumer = self._loader.consumer
        messages = consumer.consume(MESSAGES_MAX, 0) or next_message(consumer, wait_s)
        for message in messages:
            run = self._awaited.get(message.partition())
            # PERF: almost every message comes through here.
            if run is not None and message.error() is None:
                record = record_of(message)
                run.records.append(record)
                run.size += len(record.value)
                run.end = record.offset + 1
                continue
            place = TopicPartitionRef(message.topic() or "", message.partition() or 0)
            # A partition that was just unassigned may still have had messages in the queue.
            if place in self._loader.at:
                self._note(place, self._runs[place], message)
        return bool(messages)

    def _note(self, place: TopicPartitionRef, run: _Run, message: Message) -> None:
        if (error := message.error()) is None:
            record = record_of(message)
            run.records.append(record)
            run.size += len(record.value)
            run.end = record.offset + 1
            self._loader.ahead[place] += len(record.value)
        elif error.code() == END:
            run.end = max(run.end, message.offset())
        elif place not in self._wanted:
            self._loader.leave([place])
            return
        elif error.code() == OUT_OF_RANGE:
            raise OutOfRange
        elif not error.retriable():
            raise to_unavailable(error)
        self._loader.at[place] = run.end
        if self._loader.ahead[place] > AHEAD_BYTES_MAX:
            self._loader.leave([place])
