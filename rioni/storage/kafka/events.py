"""The event store on Kafka: acknowledged events are in as many replicas as the topic requires."""

from collections.abc import Callable, Collection, Mapping, Sequence

from rioni.domain.errors import NotFound
from rioni.domain.ports.clock import Clock
from rioni.domain.ports.event_store import Appended, Bounds, Chunk, IdempotencyClaim
from rioni.domain.ports.health import Health
from rioni.domain.ports.notifier import Notifier
from rioni.domain.ports.store_measurements import StoreMeasurements
from rioni.domain.ports.thread_pool import StoreOffloads
from rioni.domain.publishing.headers import Headers
from rioni.storage.chunk_cache import ChunkCache
from rioni.storage.kafka.appender import Appender
from rioni.storage.kafka.backfill_readers import BackfillReaders, OutOfRange, Wanted
from rioni.storage.kafka.client import Connection, TopicPartitionRef
from rioni.storage.kafka.idempotence.idempotency_index import IdempotencyIndex
from rioni.storage.kafka.idempotence.idempotent_appender import IdempotentAppender
from rioni.storage.kafka.records import Record, fitting
from rioni.storage.kafka.tail_follower import Tail, TailFollower
from rioni.storage.kafka.topics.topics import Topics


class KafkaEventStore:
    """The port `EventStore` on a cluster of Kafka; positions are Kafka's offsets. A forked process opens its own."""

    def __init__(
        self,
        connection: Connection,
        names: IdempotencyIndex,
        *,
        clock: Clock,
        signals: Notifier,
        offloads: StoreOffloads = StoreOffloads(),  # noqa: B008 - immutable
        cache_bytes_max: int = 64 * 2**20,
        append_timeout_s: float = 30.0,
        measurements: StoreMeasurements = StoreMeasurements(),  # noqa: B008 - immutable
    ) -> None:
        """Prepare the clients; nothing is asked of Kafka yet.

        Args:
            connection: where the brokers are.
            names: what was stored under them; closed with the store.
            clock: says when events are recorded.
            signals: told `topic:<topic>` after every append here, and when others have appended to what is read here.
            offloads: where Kafka is waited for.
            cache_bytes_max: of chunks kept in memory.
            append_timeout_s: how long an append waits for Kafka.
            measurements: told how it fares.
        """
        self._clock, self._signals, self._offloads = clock, signals, offloads
        self._prefix = connection.topic_prefix
        self._cluster_id: str | None = None
        self._reached: dict[TopicPartitionRef, int] = {}
        """The positions behind what was acknowledged here since they were last taken; a partition at a time."""
        self._cache = ChunkCache(cache_bytes_max)
        self._topics = Topics(connection)
        self._tails = TailFollower(connection, self._topics, self._cache, self._notify, offloads, measurements)
        self._loaders = BackfillReaders(connection, offloads.read, measurements)
        self._appender = Appender(connection, clock, offloads.append, self._publish, append_timeout_s, measurements)
        self._named = IdempotentAppender(
            connection, names, self._topics, clock, offloads, self._publish, append_timeout_s, measurements
        )

    # --- topics ---

    def create_topic(self, topic: str, partitions: int) -> None:
        """Create a topic; see the port.

        Raises:
            Conflict: it exists with another number of partitions.
            Unavailable: Kafka does not do it.
        """
        self._offloads.topics(self._topics.create, topic, partitions)

    def extend_topic(self, topic: str, partitions: int) -> None:
        """Add partitions up to a number; see the port."""
        self._offloads.topics(self._topics.extend, topic, partitions)

    def close_topic(self, topic: str) -> Sequence[Bounds]:
        """Refuse all further appends; see the port. The brokers themselves do so, whoever appends."""
        bounds = self._offloads.topics(self._topics.close, topic)
        self._tails.learn(topic, bounds)
        return bounds

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with its events; deleting an unknown one changes nothing."""
        self._tails.forget(topic)
        self._named.forget_topic(topic)
        self._offloads.topics(self._topics.delete, topic)
        self._notify(topic)

    def is_safe(self, topic: str) -> bool:
        """Whether no broker may ever lead the topic that lacks acknowledged events; raises as `bounds`."""
        return self._offloads.topics(self._topics.is_safe, topic)

    def health(self) -> Health:
        """Whether the brokers answer, and whether they keep what they acknowledge; see the port `Examined`."""
        return self._offloads.topics(self._topics.health)

    # --- marks ---

    def take_ends(self) -> tuple[str, Mapping[str, Mapping[int, int]]] | None:
        """The id of the cluster, and where appends have got to since the last call; see `domain.installation.Marked`.

        Raises:
            Unavailable: Kafka does not say its id, which it is asked for once; nothing was taken.
        """
        if not self._reached:
            return None
        if self._cluster_id is None:
            self._cluster_id = self._offloads.topics(self._topics.cluster_id)
        taken, self._reached = self._reached, {}
        ends: dict[str, dict[int, int]] = {}
        for place, next_ in taken.items():
            ends.setdefault(place.topic.removeprefix(self._prefix), {})[place.partition] = next_
        return self._cluster_id, ends

    # --- appending ---

    def append(
        self,
        topic: str,
        batches: Mapping[int, Sequence[bytes]],
        *,
        headers: Mapping[int, Sequence[Headers]] | None = None,
        ids: Mapping[int, Sequence[str]] | None = None,
        claim: IdempotencyClaim | None = None,
    ) -> Appended:
        """Append events durably; see the port. Those with ids or a claim cost two transactions of the database more.

        Raises:
            Unavailable: also while it is not known what has become of a batch, or an event, that was stored before.
        """
        assert all(batches.values()), "a batch without events has no first position"
        if not self._topics.knows(topic, batches):
            self._find(topic, max(batches))
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
        """The digest of the batch that is stored under a name; see the port.

        Raises:
            Unavailable: it is not known what has become of the batch, or the database can't be reached.
        """
        return self._named.claimed(claim_id)

    def known_ids(self, ids: Collection[str]) -> Collection[str]:
        """Those of some ids that an event is stored under; raises as `claimed`."""
        return self._named.known_ids(ids)

    def forget_ids(self, before_ms: int) -> None:
        """Forget the ids and claims stored before this time; see the port."""
        self._offloads.keep(self._named.forget, before_ms)

    # --- reading ---

    def read(
        self, topic: str, partition: int, first: int, bytes_max: int, beside: Callable[[], Mapping[int, int]] = dict
    ) -> Sequence[Chunk]:
        """The chunks from a position on; see the port. From memory without waiting, or else offloaded.

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
                others = self._not_in_memory(topic, partition, beside())
                loaded = self._loaders.load(place, Wanted(position, tail.next), bytes_max, others)
            except OutOfRange:
                # Retention has removed it, or the topic is another one.
                self._tails.forget(topic)
                continue
            for each, chunks in loaded.items():
                self._tails.keep(each, chunks)
            return fitting(loaded[place], bytes_max)

    def bounds(self, topic: str) -> Sequence[Bounds]:
        """The bounds of all partitions, by number; see the port. Kafka is asked."""
        bounds = self._offloads.topics(self._topics.bounds, topic)
        self._tails.learn(topic, bounds)
        return bounds

    def newest(self, topic: str, partitions: int = 1) -> Sequence[int]:
        """The last position of every partition; see the port. Blocks only where nobody has asked for a while."""
        return [tail.next - 1 for tail in self._tails.of(topic, partitions)]

    def first_since(self, topic: str, partition: int, recorded_at_ms: int) -> int:
        """The position of the first event recorded at this time or later; see the port."""
        return self._offloads.topics(self._topics.first_since, topic, partition, recorded_at_ms)

    def recorded_at_ms(self, topic: str, partition: int, first: int) -> int | None:
        """When the event at a position was stored, or the next one that is left; None behind the newest."""
        chunks = self.read(topic, partition, first, 1)
        return chunks[0].recorded_at_ms if chunks else None

    # --- retention ---

    def expire(self, topic: str, before_ms: int) -> int:
        """Remove the events recorded before this time and return their number; see the port."""
        removed = self._offloads.keep(self._topics.expire, topic, before_ms)
        if removed:
            self.bounds(topic)
        return removed

    def compact(self, topic: str, before_ms: int, keyed_since_ms: int = 0) -> int:
        """Let Kafka compact the topic by itself from now on; returns 0, for nobody is told what it removes.

        Kafka drops what has no key. So as long as such events may be left, nothing is compacted.
        """
        for number, bounds in enumerate(self.bounds(topic) if keyed_since_ms else ()):
            recorded_at_ms = self.recorded_at_ms(topic, number, bounds.oldest)
            if recorded_at_ms is not None and recorded_at_ms < keyed_since_ms:
                return 0
        self._offloads.keep(self._topics.compact, topic, self._clock.now_ms() - before_ms)
        return 0

    def close(self) -> None:
        """Close all connections, after pending appends are written."""
        self._appender.close()
        self._named.close()
        self._tails.close()
        self._loaders.close()

    def _tail(self, topic: str, partition: int) -> Tail:
        tails = self._tails.of(topic, partition + 1)
        if partition >= len(tails):
            raise NotFound(f"topic {topic} has no partition {partition}")
        return tails[partition]

    def _not_in_memory(
        self, topic: str, partition: int, positions: Mapping[int, int]
    ) -> dict[TopicPartitionRef, Wanted]:
        """What there is in other partitions from some positions on, where it is not in memory."""
        name, tails, found = self._topics.name(topic), self._tails.of(topic), {}
        for number, first in positions.items():
            if number != partition and number < len(tails):
                tail = tails[number]
                position = max(first, tail.oldest)
                if position < tail.next and not self._cache.run(tail.id, position, tail.next, 1):
                    found[TopicPartitionRef(name, number)] = Wanted(position, tail.next)
        return found

    def _find(self, topic: str, partition: int) -> None:
        if partition >= self._offloads.topics(self._topics.count, topic):
            raise NotFound(f"topic {topic} has no partition {partition}")

    def _publish(self, written: Mapping[TopicPartitionRef, Sequence[Sequence[Record]]], topics: set[str]) -> None:
        for place, runs in written.items():
            for records in runs:
                self._tails.add(place, records)
            self._reached[place] = max(self._reached.get(place, 0), runs[-1][-1].offset + 1)
        for topic in topics:
            self._notify(topic)

    def _notify(self, topic: str) -> None:
        self._signals.notify(f"topic:{topic}")
