"""Stores events in Kafka: acknowledged events are in as many replicas as the topic requires."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import ParamSpec, TypeVar

from rioni.domain.ports.event_store import Appended, Chunk, StoreMeasurements
from rioni.domain.ports.host import CHANGED, TOPIC, Clock, Health, Notifier, StorePools
from rioni.domain.publishing.headers import Headers, IdempotencyClaim
from rioni.domain.system.anchors import ChainHead
from rioni.domain.timelines.position import Bounds
from rioni.domain.timelines.topics import DigestedBlock
from rioni.storage.event_stores import CACHE_BYTES_MAX, CacheMemory, ChunkCache
from rioni.storage.kafka.appender import KafkaAppender
from rioni.storage.kafka.backfill_readers import BackfillReaders, OutOfRange, WantedRecords
from rioni.storage.kafka.client import KafkaConnection, TopicPartitionRef
from rioni.storage.kafka.idempotence.idempotency_index import IdempotencyIndex
from rioni.storage.kafka.idempotence.idempotent_appender import IdempotentAppender
from rioni.storage.kafka.record_reads import DigestReader, RecordTimes
from rioni.storage.kafka.records import Record, fitting
from rioni.storage.kafka.tail_follower import Tail, TailFollower
from rioni.storage.kafka.topics.inspection import ranges
from rioni.storage.kafka.topics.topics import Topics, until_known


RANGES_REACH_S, RANGES_S = 5.0, 30.0
"""Timeouts for the first answer, and for all further ones, when the ranges of all topics are read."""

P = ParamSpec("P")

T = TypeVar("T")


class KafkaEventStore:
    """The port `EventStore` on a cluster of Kafka; positions are Kafka's offsets. A forked process opens its own."""

    def __init__(
        self,
        connection: KafkaConnection,
        index: IdempotencyIndex,
        *,
        clock: Clock,
        signals: Notifier,
        pools: StorePools = StorePools(),  # noqa: B008 - immutable
        cache_memory: CacheMemory | None = None,
        append_timeout_s: float = 30.0,
        measurements: StoreMeasurements = StoreMeasurements(),  # noqa: B008 - immutable
    ) -> None:
        """Create the clients; nothing is requested from Kafka yet.

        Args:
            connection: how to reach the brokers.
            index: the idempotency index; closed with the store.
            clock: supplies the times when events are recorded.
            signals: notified with `topic:<topic>` after appends here, and after appends by others to topics read here.
            pools: the pools that wait for Kafka.
            cache_memory: holds chunks of this store, and maybe of others; by default separate memory.
            append_timeout_s: how long an append waits for Kafka.
            measurements: records durations, failures and lags.
        """
        self._clock, self._signals, self._pools = clock, signals, pools
        self._connection, self._prefix = connection, connection.topic_prefix
        self._cluster_id: str | None = None
        self._reached: dict[TopicPartitionRef, int] = {}
        """End positions of acknowledged appends since the last `take_ends`, by partition."""
        self._cache = ChunkCache(cache_memory or CacheMemory(CACHE_BYTES_MAX))
        self._topics = Topics(connection)
        self._follower = TailFollower(connection, self._topics, self._cache, self._notify, pools, measurements)
        self._backfill = BackfillReaders(connection, pools.read, measurements)
        self._digests = DigestReader(connection)
        self._times = RecordTimes(connection)
        self._appender = KafkaAppender(connection, clock, pools.append, self._publish, append_timeout_s, measurements)
        self._named = IdempotentAppender(
            connection, index, self._topics, clock, pools, self._publish, append_timeout_s, measurements
        )

    # --- Topics ---

    def create_topic(self, topic: str, partitions: int) -> None:
        """Create a topic; see the port.

        Raises:
            Conflict: it exists with another number of partitions.
            Unavailable: Kafka does not create it.
        """
        self._pools.topics(self._topics.create, topic, partitions)

    def extend_topic(self, topic: str, partitions: int) -> None:
        """Add partitions up to a number; see the port."""
        self._ask(self._topics.extend, topic, partitions)

    def close_topic(self, topic: str) -> Sequence[Bounds]:
        """Reject all further appends, from any client, in the Kafka brokers themselves; see the port."""
        bounds = self._ask(self._topics.close, topic)
        self._follower.learn(topic, bounds)
        return bounds

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with its events; deleting an unknown one changes nothing."""
        self._follower.drop(topic)
        self._named.drop_topic(topic)
        self._pools.topics(self._topics.delete, topic)
        self._notify(topic)

    def is_safe(self, topic: str) -> bool:
        """Whether unclean leader election is disabled for the topic; raises as `bounds`."""
        return self._ask(self._topics.is_safe, topic)

    def health(self) -> Health:
        """Check whether the brokers respond, and whether acknowledged events are durable; see the port `Examined`."""
        return self._pools.topics(self._topics.health)

    # --- Marks ---

    def take_ends(self) -> tuple[str, Mapping[str, Mapping[int, int]]] | None:
        """Return the cluster id and the end positions of appends since the last call; see the port `Marked`.

        Raises:
            Unavailable: Kafka does not return its cluster id, which is requested once; no positions were taken.
        """
        if not self._reached:
            return None
        if self._cluster_id is None:
            self._cluster_id = self._pools.topics(self._topics.cluster_id)
        taken, self._reached = self._reached, {}
        ends: dict[str, dict[int, int]] = {}
        for place, next_ in taken.items():
            ends.setdefault(place.topic.removeprefix(self._prefix), {})[place.partition] = next_
        return self._cluster_id, ends

    def ranges(self, topics: Collection[str]) -> Sequence[ChainHead]:
        """Return the ranges of all partitions of topics; see the port `Ranged`."""
        reach_s = min(RANGES_REACH_S, self._connection.request_timeout_s)
        return self._pools.topics(ranges, self._connection, topics, reach_s=reach_s, timeout_s=RANGES_S)

    def digest(self, topic: str, partition: int, first: int, stop: int, bytes_max: int) -> DigestedBlock | None:
        """Return the digest of the records from a position on; see the port `DigestsTopics`."""
        place = TopicPartitionRef(self._topics.name(topic), partition)
        return self._pools.keep(self._digests.digest, place, first, stop, bytes_max)

    # --- Appending ---

    def append(
        self,
        topic: str,
        batches: Mapping[int, Sequence[bytes]],
        *,
        headers: Mapping[int, Sequence[Headers]] | None = None,
        ids: Mapping[int, Sequence[str]] | None = None,
        claim: IdempotencyClaim | None = None,
    ) -> Appended:
        """Append events durably; see the port. Event ids or a claim cost two database transactions more.

        Raises:
            Unavailable: also while the outcome of an earlier attempt at this batch, or one of its events, is unknown.
        """
        assert all(batches.values()), "a batch without events has no first position"
        if not self._topics.knows(topic, batches):
            self._ask(self._topics.count, topic, max(batches) + 1)
        if ids or claim is not None:
            return self._named.append(topic, batches, headers or {}, ids or {}, claim)
        name = self._topics.name(topic)
        firsts = self._appender.append(
            topic,
            {TopicPartitionRef(name, number): events for number, events in batches.items()},
            {TopicPartitionRef(name, number): each for number, each in (headers or {}).items()},
        )
        return Appended({place.partition: first for place, first in firsts.items()})

    def claimed(self, claim_id: str) -> str | None:
        """Return the digest of the batch stored under an idempotency key; see the port.

        Raises:
            Unavailable: the outcome of the batch is unknown, or the database can't be reached.
        """
        return self._named.claimed(claim_id)

    def existing_ids(self, ids: Collection[str]) -> Collection[str]:
        """Return the ids under which an event is stored; raises as `claimed`."""
        return self._named.existing_ids(ids)

    def expire_ids(self, before_ms: int) -> None:
        """Delete the event ids and idempotency keys stored before this time; see the port."""
        self._pools.keep(self._named.delete_before, before_ms)

    # --- Reading ---

    def read(
        self, topic: str, partition: int, first: int, bytes_max: int, prefetch: Callable[[], Mapping[int, int]] = dict
    ) -> Sequence[Chunk]:
        """Return chunks from a position on; see the port. Cached chunks without blocking, others from a pool thread.

        Raises:
            NotFound: topic or partition unknown.
            Unavailable: Kafka does not answer.
        """
        while True:
            tail = self._tail(topic, partition)
            position = max(first, tail.oldest)
            if position >= tail.next:
                return []
            if chunks := self._cache.run(tail.id, position, tail.next, bytes_max):
                return chunks
            try:
                place = TopicPartitionRef(self._topics.name(topic), partition)
                others = self._not_in_memory(topic, partition, prefetch())
                loaded = self._backfill.load(place, WantedRecords(position, tail.next), bytes_max, others)
            except OutOfRange:
                # Retention has removed the position, or the topic was recreated.
                self._follower.drop(topic)
                continue
            for each, chunks in loaded.items():
                self._follower.keep(each, chunks)
            return fitting(loaded[place], bytes_max)

    def bounds(self, topic: str) -> Sequence[Bounds]:
        """Return the bounds of all partitions, by number, from Kafka; see the port."""
        bounds = self._ask(self._topics.bounds, topic)
        self._follower.learn(topic, bounds)
        return bounds

    def bounds_of(self, topics: Mapping[str, int]) -> Mapping[str, Sequence[Bounds]]:
        """Return the bounds of many topics, from Kafka; see the port."""
        return self._pools.topics(self._topics.bounds_of, topics)

    def newest(self, topic: str, partitions: int = 1) -> Sequence[int]:
        """Return the last position of every partition; see the port. Blocks only for topics not requested recently."""
        return [tail.next - 1 for tail in self._follower.of(topic, partitions)]

    def offset_at_time(self, topic: str, partition: int, recorded_at_ms: int) -> int:
        """Return the position of the first event recorded at this time or later; see the port."""
        return self._ask(self._topics.offset_at_time, topic, partition, recorded_at_ms)

    def recorded_at_ms(self, topic: str, partition: int, first: int) -> int | None:
        """Return when the event at a position, or the next existing one, was stored; None after the newest.

        Reads separately from streams: nothing is followed or cached for it.
        """
        place = TopicPartitionRef(self._topics.name(topic), partition)
        return until_known(lambda: self._pools.read(self._times.recorded_at_ms, place, first))

    # --- Retention ---

    def delete_before(self, topic: str, before_ms: int) -> int:
        """Delete the events recorded before this time and return their number; see the port."""
        removed = self._pools.keep(self._topics.delete_before, topic, before_ms)
        if removed:
            self.bounds(topic)
            self._signals.notify(CHANGED + topic)
        return removed

    def compact(self, topic: str, before_ms: int, keyed_since_ms: int = 0) -> int:
        """Make Kafka compact the topic from now on; returns 0, as Kafka does not report what it removes.

        Kafka removes records without a key. So nothing is compacted while such events may remain.
        """
        for number, bounds in enumerate(self.bounds(topic) if keyed_since_ms else ()):
            recorded_at_ms = self.recorded_at_ms(topic, number, bounds.oldest)
            if recorded_at_ms is not None and recorded_at_ms < keyed_since_ms:
                return 0
        self._pools.keep(self._topics.compact, topic, self._clock.now_ms() - before_ms)
        return 0

    def close(self) -> None:
        """Close all connections, after pending appends are written."""
        self._appender.close()
        self._named.close()
        self._follower.close()
        self._backfill.close()
        self._pools.keep(self._digests.close)
        self._pools.read(self._times.close)
        self._cache.close()

    def _tail(self, topic: str, partition: int) -> Tail:
        return self._follower.of(topic, partition + 1)[partition]

    def _not_in_memory(
        self, topic: str, partition: int, positions: Mapping[int, int]
    ) -> dict[TopicPartitionRef, WantedRecords]:
        """Return the uncached ranges of other partitions from some positions on."""
        name, tails, found = self._topics.name(topic), self._follower.of(topic), {}
        for number, first in positions.items():
            if number != partition and number < len(tails):
                tail = tails[number]
                position = max(first, tail.oldest)
                if position < tail.next and not self._cache.run(tail.id, position, tail.next, 1):
                    found[TopicPartitionRef(name, number)] = WantedRecords(position, tail.next)
        return found

    def _ask(self, question: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Ask Kafka about an existing topic; blocks the caller only."""
        return until_known(lambda: self._pools.topics(question, *args, **kwargs))

    def _publish(self, written: Mapping[TopicPartitionRef, Sequence[Sequence[Record]]], topics: set[str]) -> None:
        for place, runs in written.items():
            for records in runs:
                self._follower.add(place, records)
            self._reached[place] = max(self._reached.get(place, 0), runs[-1][-1].offset + 1)
        for topic in topics:
            self._notify(topic)

    def _notify(self, topic: str) -> None:
        self._signals.notify(TOPIC + topic)
