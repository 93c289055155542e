"""Follows the ends of all topics being read, with one consumer for all streams of a process."""

import contextlib
import itertools
import threading  # threads: a greenlet that polls Kafka
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import structlog
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from rioni.config.logs import FailureLog
from rioni.domain.errors import Unavailable
from rioni.domain.ports.event_store import Chunk, StoreMeasurements
from rioni.domain.ports.host import StorePools, without_deadline
from rioni.domain.timelines.position import Bounds
from rioni.storage.event_stores import ChunkCache
from rioni.storage.kafka.client import END, KafkaConnection, TopicPartitionRef
from rioni.storage.kafka.records import Record, chunks_of, record_of
from rioni.storage.kafka.topics.topics import Topics, until_known
from rioni.storage.threads import ThreadSafeSemaphore


POLL_S, POLLS = 0.01, 10
"""How long one poll waits for records, and how many polls run between two changes of the assignment."""

FETCH_WAIT_MS = 20
"""How long a broker holds a fetch that finds nothing. A partition that is added has to wait for the end of the pending
fetch, so this is how late the first event after the start of a stream can be; each worker sends each broker one fetch
in this time while nothing is published."""

METADATA_TIMEOUT_S = 2.0
"""Timeout for the metadata of all topics that are added together."""

MESSAGES_MAX = 10_000
"""Maximum number of messages consumed at once."""

IDLE_S = 60.0
"""Topics not requested for this time are no longer followed."""

BUFFER_KB = 16_384
"""How much unread data the consumer may buffer."""

_log = structlog.get_logger("rioni.kafka")

_FAILED = "tail consumer failed; restarting"


@dataclass(slots=True)
class Tail:
    """Known state of a followed partition."""

    id: int
    """The partition's id in the cache; never reused."""
    oldest: int
    """The first readable position when it was last requested."""
    next: int
    """The position after the last one known to be written."""
    followed: int
    """The position that the consumer reads next."""


class _Change(NamedTuple):
    tails: Mapping[TopicPartitionRef, Tail]
    follow: bool


class _Topic:
    def __init__(self, tails: Sequence[Tail]) -> None:
        self.tails = tails
        self.used_at_s = time.monotonic()


class TailFollower:
    """Keeps the ends of topics up to date and cached, in a separate thread (under gevent a greenlet)."""

    def __init__(
        self,
        connection: KafkaConnection,
        topics: Topics,
        cache: ChunkCache,
        notify: Callable[[str], None],
        pools: StorePools,
        measurements: StoreMeasurements,
    ) -> None:
        """Start without topics.

        Args:
            connection: how to reach the brokers.
            topics: provides the bounds of topics.
            cache: receives new chunks.
            notify: called with each topic that has grown or was deleted.
            pools: the pools that wait for Kafka.
            measurements: records the lag.
        """
        self._connection, self._names, self._cache = connection, topics, cache
        self._notify, self._pools, self._measurements = notify, pools, measurements
        self._ids = itertools.count(1)
        self._lock = ThreadSafeSemaphore()
        """Held for changes in memory only, never while waiting for Kafka."""
        self._asking: dict[str, ThreadSafeSemaphore] = {}
        """Locks of topics whose bounds are being requested: held by the requesting caller, awaited by the others."""
        self._topics: dict[str, _Topic] = {}
        self._places: dict[TopicPartitionRef, tuple[str, Tail]] = {}
        self._changes: deque[_Change] = deque()
        self._read: dict[TopicPartitionRef, Tail] = {}
        """The assignment of the consumer when it last changed. Some of its tails may be replaced by now: their messages
        do not continue the new ones."""
        self._thread: threading.Thread | None = None
        self._closed = False

    def of(self, topic: str, partitions: int = 1) -> Sequence[Tail]:
        """Return the ends of a topic's partitions; blocks only for topics not requested recently.

        Args:
            topic: the broker's name for it, without Kafka's prefix.
            partitions: the expected minimum number; if fewer are known, Kafka is asked.

        Raises:
            NotFound: topic or partition unknown.
            Unavailable: Kafka does not answer.
        """
        found = self._topics.get(topic)
        if found is None or len(found.tails) < partitions:
            found = self._follow(topic, partitions)
        found.used_at_s = time.monotonic()
        return found.tails

    def learn(self, topic: str, bounds: Sequence[Bounds]) -> None:
        """Update a followed topic with bounds read from Kafka; other topics are ignored."""
        found = self._topics.get(topic)
        for tail, each in zip(found.tails if found else (), bounds, strict=False):
            tail.oldest = max(tail.oldest, each.oldest)
            tail.next = max(tail.next, each.newest + 1)

    def add(self, place: TopicPartitionRef, records: Sequence[Record]) -> None:
        """Add records written by this process to a followed topic; other topics are ignored."""
        if (known := self._places.get(place)) is not None:
            first, end = records[0].offset, records[-1].offset + 1
            # With interleaved appends of others, only the consumer can read all records.
            if end - first == len(records):
                self._keep(known[1], records, first, end)
            known[1].next = max(known[1].next, end)

    def keep(self, place: TopicPartitionRef, chunks: Sequence[Chunk]) -> None:
        """Cache chunks loaded from a followed partition; other topics are ignored."""
        if (known := self._places.get(place)) is not None:
            for chunk in chunks:
                self._cache.add(known[1].id, chunk)

    def drop(self, topic: str) -> None:
        """Stop following a topic, and drop its cached chunks."""
        with self._lock:
            self._drop(topic)

    def close(self) -> None:
        """Stop the consumer; waits at most for the request timeout."""
        self._closed = True
        if self._thread is not None:
            self._thread.join(self._connection.request_timeout_s)

    def _follow(self, topic: str, partitions: int) -> _Topic:
        asking = self._asking.setdefault(topic, ThreadSafeSemaphore())
        if not asking.acquire(self._connection.request_timeout_s):
            raise Unavailable(f"Timed out reading the offsets of topic {topic} from Kafka. Try again later.")
        try:
            found = self._topics.get(topic)
            if found is not None and len(found.tails) >= partitions:
                return found
            bounds = until_known(lambda: self._pools.topics(self._names.bounds, topic, partitions))
            return self._begin(topic, bounds)
        finally:
            self._asking.pop(topic, None)
            asking.release()

    def _begin(self, topic: str, bounds: Sequence[Bounds]) -> _Topic:
        found = _Topic([Tail(next(self._ids), each.oldest, each.newest + 1, each.newest + 1) for each in bounds])
        with self._lock:
            self._drop(topic)
            self._topics[topic] = found
            tails = self._tails(topic, found)
            self._places |= {place: (topic, tail) for place, tail in tails.items()}
            self._changes.append(_Change(tails, follow=True))
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="rioni-kafka-tails")
                self._thread.start()
        return found

    def _drop(self, topic: str) -> None:
        found = self._topics.pop(topic, None)
        if found is None:
            return
        tails = self._tails(topic, found)
        for place, tail in tails.items():
            self._places.pop(place, None)
            self._cache.drop(tail.id)
        self._changes.append(_Change(tails, follow=False))

    def _tails(self, topic: str, found: _Topic) -> dict[TopicPartitionRef, Tail]:
        name = self._names.name(topic)
        return {TopicPartitionRef(name, number): tail for number, tail in enumerate(found.tails)}

    # --- The thread ---

    def _work(self) -> None:
        # A poll abandoned by a deadline would still consume records, which would then be missing after the restart.
        follow = without_deadline(self._pools.follow)
        consumer = Consumer(
            self._connection.consumer(**{"queued.max.messages.kbytes": BUFFER_KB, "fetch.wait.max.ms": FETCH_WAIT_MS})
        )
        failures = FailureLog(_log, KafkaException)
        while not self._closed:
            try:
                self._take(follow(_poll, consumer, self._changes, self._read))
                self._drop_idle()
                failures.succeeded(_FAILED)
            except Exception as ex:  # noqa: BLE001 - nothing may end this
                # Partially processed records would look like a gap left by compaction: restart all topics.
                failures.failed(_FAILED, ex)
                for topic in [*self._topics]:
                    self.drop(topic)
        follow(consumer.close)

    def _take(self, messages: Sequence[Message]) -> None:
        grown: set[str] = set()
        runs: dict[TopicPartitionRef, tuple[list[Record], int]] = {}
        for message in messages:
            place = TopicPartitionRef(message.topic() or "", message.partition() or 0)
            records, end = runs.get(place, ([], 0))
            if message.error() is None:
                records.append(record_of(message))
                runs[place] = records, message.offset() + 1
            elif message.error().code() == END:
                runs[place] = records, max(end, message.offset())
            else:
                self._fail(place)
        for place, (records, end) in runs.items():
            topic, tail = self._places.get(place, ("", None))
            if tail is not None and tail is self._read.get(place) and end > tail.followed:
                self._keep(tail, records, tail.followed, end)
                tail.followed, tail.next = end, max(tail.next, end)
                grown.add(topic)
        self._measurements.events_behind(sum([tail.next - tail.followed for _, tail in self._places.values()]))
        for topic in grown:
            self._notify(topic)

    def _fail(self, place: TopicPartitionRef) -> None:
        if (known := self._places.get(place)) is not None and known[1] is self._read.get(place):
            # The topic was deleted, recreated, or can't be read; the next reader asks Kafka again, and gets the error.
            self._measurements.topic_resyncs(1)
            self._names.drop(known[0])
            self.drop(known[0])
            self._notify(known[0])

    def _keep(self, tail: Tail, records: Sequence[Record], begin: int, end: int) -> None:
        for chunk in chunks_of(records, begin, end):
            if not self._cache.holds(tail.id, chunk):
                self._cache.add(tail.id, chunk)

    def _drop_idle(self) -> None:
        since_s = time.monotonic() - IDLE_S
        for topic in [topic for topic, found in self._topics.items() if found.used_at_s < since_s]:
            self.drop(topic)


def _poll(consumer: Consumer, changes: deque[_Change], read: dict[TopicPartitionRef, Tail]) -> list[Message]:
    for _ in range(POLLS):
        # Changed here, because changing the assignment while another thread polls the consumer blocks it.
        _change(consumer, changes, read)
        first = consumer.poll(POLL_S)
        if first is not None:
            return [first, *consumer.consume(MESSAGES_MAX, 0)]
    return []


def _change(consumer: Consumer, changes: deque[_Change], read: dict[TopicPartitionRef, Tail]) -> None:
    pending = []
    while changes:
        pending.append(changes.popleft())
    # Unknown topics would be retried by the consumer only once a second.
    until_s = time.monotonic() + METADATA_TIMEOUT_S
    with contextlib.suppress(KafkaException):
        for name in {place.topic for change in pending if change.follow for place in change.tails}:
            consumer.list_topics(name, max(0.0, until_s - time.monotonic()))
    for change in pending:
        try:
            if change.follow:
                consumer.incremental_assign(
                    [TopicPartition(*place, tail.followed) for place, tail in change.tails.items()]
                )
                read |= change.tails
            else:
                for place in change.tails:
                    read.pop(place, None)
                consumer.incremental_unassign([TopicPartition(*place) for place in change.tails])
        except KafkaException as ex:
            _log.warning("could not change which partitions of Kafka are followed", reason=str(ex.args[0]))
