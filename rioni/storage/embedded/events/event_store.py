"""Stores the events of one machine in SQLite, durably before they are acknowledged.

A topic is the set of its partitions; a partition is a contiguous range of the table of chunks. Any number of processes
may open the store at once.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path

from rioni.domain.errors import NotFound
from rioni.domain.ports.event_store import Appended, Chunk
from rioni.domain.ports.host import CHANGED, TOPIC, Clock, Health, Notifier, StorePools
from rioni.domain.publishing.headers import Headers, IdempotencyClaim
from rioni.domain.system.anchors import Anchor, ChainHead, Marks
from rioni.domain.timelines.position import Bounds
from rioni.storage.embedded.anchors import EventAnchors
from rioni.storage.embedded.events import stored_once
from rioni.storage.embedded.events.appender import Appender
from rioni.storage.embedded.events.chunks import CHUNK_COLUMNS, Damage, DamagedEvents, chunk_key, decode
from rioni.storage.embedded.events.database import EventsDatabase
from rioni.storage.embedded.events.partitions import (
    Partition,
    close,
    create,
    extend,
    find,
    find_all,
    find_compacted,
    names,
)
from rioni.storage.embedded.events.retention import (
    compact,
    delete,
    delete_before,
    in_steps,
    offset_at_time,
    recorded_at_ms,
)
from rioni.storage.embedded.events.verification import note_anchored, unanchored, verify
from rioni.storage.event_stores import CACHE_BYTES_MAX, CacheMemory, ChunkCache


COMPACTED_MAX = 100_000
"""Maximum number of partitions whose compaction state is kept; beyond it, all states are dropped and reloaded."""

# Starts with the chunk containing the position, if it exists: the last one that does not begin after it.
_SELECT_CHUNKS = f"""
    SELECT {CHUNK_COLUMNS} FROM chunks
    WHERE key >= coalesce((SELECT max(key) FROM chunks WHERE key BETWEEN ? AND ?), ?) AND key < ? ORDER BY key
"""  # noqa: S608 - constants


class EmbeddedEventStore:
    """The port `EventStore` on SQLite. A forked process must open its own."""

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock,
        signals: Notifier,
        pools: StorePools = StorePools(),  # noqa: B008 - immutable
        cache_memory: CacheMemory | None = None,
        append_timeout_s: float = 30.0,
    ) -> None:
        """Open the store, creating it if it doesn't exist; blocks on the disk.

        Args:
            path: the path of the database; further files are created next to it.
            clock: supplies the times when events are recorded.
            signals: notified with `topic:<topic>` after every append.
            pools: the pools that wait for the disk.
            cache_memory: holds chunks of this store, and maybe of others; by default separate memory.
            append_timeout_s: how long an append waits for the disk.

        Raises:
            RioniError: the file can't be used; the message says why.
        """
        self._signals, self._pools, self._clock = signals, pools, clock
        self._database = EventsDatabase(path)
        self._anchors = EventAnchors(self._database)
        self._cache = ChunkCache(cache_memory or CacheMemory(CACHE_BYTES_MAX))
        self._compacted: dict[int, int] = {}
        """The compaction counter that the cached chunks of each compacted partition correspond to."""
        self._appender = Appender(self._database, clock, pools.append, self._publish, append_timeout_s, pools.read)

    def health(self) -> Health:
        """Check whether the store can write; see the port `Examined`."""
        self._pools.topics(self._database.probe)
        return Health()

    # --- Topics ---

    def create_topic(self, topic: str, partitions: int) -> None:
        """Create a topic; creating it again with the same number of partitions changes nothing.

        Raises:
            Conflict: it exists with another number of partitions.
            Unavailable: the store can't write.
        """
        self._pools.topics(create, self._database, topic, partitions)

    def extend_topic(self, topic: str, partitions: int) -> None:
        """Add partitions up to a number; see the port."""
        self._pools.topics(extend, self._database, topic, partitions)

    def close_topic(self, topic: str) -> Sequence[Bounds]:
        """Reject all further appends; see the port."""
        partitions = self._pools.topics(close, self._database, topic)
        return [Bounds(partition.oldest, partition.next - 1) for partition in partitions]

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with its events; deleting an unknown one changes nothing."""
        for partition_id in in_steps(self._pools.topics, delete(self._database, topic)):
            self._cache.drop(partition_id)
        self._signals.notify(TOPIC + topic)

    def topics(self) -> Collection[str]:
        """Return the names of all topics; see the port `TopicNames`."""
        return self._pools.topics(names, self._database)

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
        """Append events durably; see the port."""
        return self._appender.append(topic, batches, headers, ids, claim)

    def claimed(self, claim_id: str) -> str | None:
        """Return the digest of the batch stored under an idempotency key; see the port."""
        return stored_once.digest_of(self._database, claim_id)

    def existing_ids(self, ids: Collection[str]) -> Collection[str]:
        """Return the ids under which an event is stored; see the port."""
        return self._pools.read(stored_once.known_ids, self._database, ids)

    def expire_ids(self, before_ms: int) -> None:
        """Delete the event ids and idempotency keys stored before this time; see the port."""
        in_steps(self._pools.keep, stored_once.delete_before(self._database, before_ms))

    # --- Reading ---

    def read(
        self,
        topic: str,
        partition: int,
        first: int,
        bytes_max: int,
        prefetch: Callable[[], Mapping[int, int]] = dict,  # noqa: ARG002 - of the port
    ) -> Sequence[Chunk]:
        """Return chunks from a position on; see the port. Cached chunks without blocking, others from a pool thread.

        Raises:
            NotFound: topic or partition unknown.
            DamagedEvents: the next events are damaged.
        """
        while True:
            found, compacted = find_compacted(self._database, topic, partition)
            if self._compacted.get(found.id, 0) != compacted:
                self._note_compaction(found.id, compacted)
            position = max(first, found.oldest)
            if position >= found.next:
                return []
            if chunks := self._cache.run(found.id, position, found.next, bytes_max):
                return chunks
            chunks, damage = self._pools.read(self._load, found, position, bytes_max)
            again, compacted_since = find_compacted(self._database, topic, partition)
            if compacted_since == compacted:
                for chunk in chunks:
                    self._cache.add(found.id, chunk)
            if chunks:
                return chunks
            if again.id == found.id and again.oldest <= position:
                raise DamagedEvents(Damage(topic, partition, position, damage or "they are missing"))
            # In the meantime retention has deleted the position, or the topic was recreated.

    def bounds(self, topic: str) -> Sequence[Bounds]:
        """Return the bounds of all partitions, by number; see the port.

        PERF: queried each time, so that it is correct across processes: 5 us, and 0.4 us per further partition.
        """
        partitions = find_all(self._database, topic)
        if not partitions:
            raise NotFound(f"topic {topic} does not exist")
        return [Bounds(partition.oldest, partition.next - 1) for partition in partitions]

    def bounds_of(self, topics: Mapping[str, int]) -> Mapping[str, Sequence[Bounds]]:
        """Return the bounds of many topics; see the port."""
        found = {}
        for topic in topics:
            with suppress(NotFound, DamagedEvents):
                found[topic] = self.bounds(topic)
        return found

    def newest(self, topic: str, partitions: int = 1) -> Sequence[int]:  # noqa: ARG002 - of the port
        """Return the last position of every partition; see the port. As fast and as accurate as `bounds`."""
        return [bounds.newest for bounds in self.bounds(topic)]

    def offset_at_time(self, topic: str, partition: int, recorded_at_ms: int) -> int:
        """Return the position of the first chunk stored at this time or later; without one, that after all events."""
        found = find(self._database, topic, partition)
        return self._pools.read(offset_at_time, self._database, found, recorded_at_ms, self._clock.now_ms())

    def recorded_at_ms(self, topic: str, partition: int, first: int) -> int | None:
        """Return when the event at a position, or the next existing one, was stored; None after the newest."""
        return self._pools.read(recorded_at_ms, self._database, find(self._database, topic, partition), first)

    # --- Retention ---

    def delete_before(self, topic: str, before_ms: int) -> int:
        """Delete the chunks stored before this time and return the number of events deleted."""
        removed = in_steps(self._pools.keep, delete_before(self._database, topic, before_ms, self._clock.now_ms()))
        if removed:
            self._signals.notify(CHANGED + topic)
        return removed

    def compact(self, topic: str, before_ms: int, keyed_since_ms: int = 0) -> int:  # noqa: ARG002 - of the port
        """Remove events superseded before this time and return their number; see the port."""
        removed = in_steps(self._pools.keep, compact(self._database, topic, before_ms))
        for partition_id in removed:
            self._cache.drop(partition_id)
        return sum(removed.values())

    def anchor(self, anchor: Anchor, *, everything: bool) -> Marks:
        """Store an anchor and return the ends of topics as marks; see the port `Anchored`."""
        return self._pools.topics(self._anchors.note, anchor, self._clock.now_ms(), everything=everything)

    def unanchored_heads(self, limit: int) -> Sequence[ChainHead]:
        """Return the heads of hash chains that have changed since they were anchored; see the port `Chained`."""
        return self._pools.keep(unanchored, self._database, limit)

    def note_anchored(self, heads: Sequence[ChainHead]) -> None:
        """Note that the internal log holds these heads; see the port `Chained`."""
        self._pools.keep(note_anchored, self._database, heads)

    def verify(self) -> Sequence[Damage]:
        """Read everything and return all damage; as slow as the disk; does not block appends and reads."""
        return self._pools.keep(verify, self._database)

    def close(self) -> None:
        """Close all files after pending appends are written."""
        self._appender.close()
        self._pools.topics(self._database.close)
        self._cache.close()

    def _note_compaction(self, partition_id: int, compacted: int) -> None:
        """Drop the cached chunks of a partition changed by a compaction in any process."""
        self._cache.drop(partition_id)
        if len(self._compacted) >= COMPACTED_MAX:
            self._compacted.clear()
        self._compacted[partition_id] = compacted

    def _publish(self, written: Iterable[tuple[int, Chunk]], topics: Iterable[str]) -> None:
        for partition_id, chunk in written:
            self._cache.add(partition_id, chunk)
        for topic in topics:
            self._signals.notify(TOPIC + topic)

    def _load(self, found: Partition, position: int, bytes_max: int) -> tuple[list[Chunk], str]:
        """Read chunks up to the first damage, and return its description."""
        begin, end = chunk_key(found.id, position), chunk_key(found.id, found.next)
        chunks: list[Chunk] = []
        size = 0
        try:
            with (
                self._database.reading() as connection,
                closing(connection.execute(_SELECT_CHUNKS, (chunk_key(found.id, 0), begin, begin, end))) as rows,
            ):
                for chunk in map(decode, rows):
                    size += len(chunk.data)
                    if not chunk.first <= position < chunk.next or (
                        chunks and (chunk.first != position or size > bytes_max)
                    ):
                        break
                    chunks.append(chunk)
                    position = chunk.next
        except (ValueError, DamagedEvents) as ex:
            return chunks, str(ex)
        return chunks, ""
