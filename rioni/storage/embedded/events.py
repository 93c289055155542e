"""The event store of one machine: published events in SQLite, durable before they are acknowledged.

A topic is the set of its partitions; a partition is a contiguous range of the table of chunks. Any number of processes
may have the store open at once.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, ParamSpec, TypeVar

from rioni.domain.errors import Conflict, NotFound, Unavailable
from rioni.domain.ports import Bounds, Chunk, Clock, Offload, Signals
from rioni.storage.embedded.appender import Appender, partition_not_found
from rioni.storage.embedded.chunk_cache import ChunkCache
from rioni.storage.embedded.chunks import (
    CHUNK_COLUMNS,
    PARTITION_ID_MAX,
    POSITION_MAX,
    Damage,
    DamagedEvents,
    chunk_key,
    decode,
)
from rioni.storage.embedded.events_database import EventsDatabase
from rioni.storage.embedded.verification import verify


EXPIRE_CHUNKS = 64
"""How many chunks one transaction removes: about 4 MiB, some milliseconds that appends have to wait."""

_SELECT_PARTITION = "SELECT id, oldest, next FROM partitions WHERE topic = ? AND number = ?"
_SELECT_TOPIC = "SELECT id, oldest, next FROM partitions WHERE topic = ? ORDER BY number"
# From the chunk that holds a position on, if it is there: the last one that does not begin behind it.
_SELECT_CHUNKS = f"""
    SELECT {CHUNK_COLUMNS} FROM chunks
    WHERE key >= coalesce((SELECT max(key) FROM chunks WHERE key BETWEEN ? AND ?), ?) AND key < ? ORDER BY key
"""  # noqa: S608 - constants


P = ParamSpec("P")
T = TypeVar("T")


class _Partition(NamedTuple):
    id: int
    oldest: int
    next: int


def direct(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """The offload where blocking stops nobody else: a direct call."""
    return function(*args, **kwargs)


class EmbeddedEventStore:
    """The port `EventStore` on SQLite. A forked process must open its own."""

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock,
        signals: Signals,
        offload: Offload = direct,
        cache_bytes_max: int = 64 * 2**20,
    ) -> None:
        """Open the store, creating it where it doesn't exist; blocks on the disk.

        Args:
            path: of the database; further files lie beside it.
            clock: says when events are recorded.
            signals: told `topic:<topic>` after every append.
            offload: where the disk is waited for.
            cache_bytes_max: of chunks kept in memory.

        Raises:
            RioniError: the file can't be used; the text says why.
        """
        self._signals, self._offload = signals, offload
        self._database = EventsDatabase(path)
        self._cache = ChunkCache(cache_bytes_max)
        self._appender = Appender(self._database, clock, offload, self._publish)

    # --- topics ---

    def create_topic(self, topic: str, partitions: int) -> None:
        """Create a topic; creating it again with the same number of partitions changes nothing.

        Raises:
            Conflict: it exists with another number of partitions.
            Unavailable: the store can't write.
        """
        self._offload(self._create, topic, partitions)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with its events; deleting an unknown one changes nothing."""
        for partition_id in self._offload(self._delete, topic):
            self._cache.drop(partition_id)
        self._signals.notify(f"topic:{topic}")

    # --- appending ---

    def append(self, topic: str, batches: Mapping[int, Sequence[bytes]]) -> Mapping[int, int]:
        """Append events durably; see the port."""
        return self._appender.append(topic, batches)

    # --- reading ---

    def read(self, topic: str, partition: int, first: int, bytes_max: int) -> Sequence[Chunk]:
        """The chunks from a position on; see the port. From memory without waiting, or else offloaded.

        Raises:
            NotFound: topic or partition unknown.
            DamagedEvents: the next events are damaged.
        """
        while True:
            found = self._partition(topic, partition)
            position = max(first, found.oldest)
            if position >= found.next:
                return []
            if chunks := self._cache.run(found.id, position, found.next, bytes_max):
                return chunks
            chunks, damage = self._offload(self._load, found, position, bytes_max)
            for chunk in chunks:
                self._cache.add(found.id, chunk)
            if chunks:
                return chunks
            again = self._partition(topic, partition)
            if again.id == found.id and again.oldest <= position:
                raise DamagedEvents(Damage(topic, partition, position, damage or "they are missing"))
            # In the meantime retention has removed the position, or the topic was created anew.

    def bounds(self, topic: str) -> Sequence[Bounds]:
        """The bounds of all partitions, by number; see the port.

        PERF: asked of SQLite every time, so that it is right across processes: 5 us, and 0.4 us for each more.
        """
        return [Bounds(found.oldest, found.next - 1) for found in self._topic(topic)]

    def first_since(self, topic: str, partition: int, recorded_at_ms: int) -> int:
        """The position of the first chunk stored at this time or later; behind the newest where there is none."""
        return self._offload(self._first_since, self._partition(topic, partition), recorded_at_ms)

    # --- retention ---

    def expire(self, topic: str, before_ms: int) -> int:
        """Remove the chunks stored before this time and return the number of events removed."""
        return self._offload(self._expire, self._topic(topic), before_ms)

    def verify(self) -> Sequence[Damage]:
        """Read everything and name all damage; takes as long as the disk needs, others go on meanwhile."""
        return self._offload(verify, self._database)

    def close(self) -> None:
        """Let go of all files, after what is being appended is written."""
        self._appender.close()
        self._offload(self._database.close)

    # --- what runs in the offload ---

    def _create(self, topic: str, partitions: int) -> None:
        with self._database.writing() as connection:
            (existing,) = connection.execute("SELECT count(*) FROM partitions WHERE topic = ?", (topic,)).fetchone()
            if existing not in {0, partitions}:
                raise Conflict(f"topic {topic} exists with {existing} partitions")
            if existing:
                return
            rows = [(topic, number) for number in range(partitions)]
            connection.executemany(
                "INSERT INTO partitions (topic, number, oldest, next, recorded_at_ms) VALUES (?, ?, 0, 0, 0)", rows
            )
            (newest_id,) = connection.execute("SELECT max(id) FROM partitions").fetchone()
            if newest_id > PARTITION_ID_MAX:
                raise Unavailable(
                    f"This event store has had {PARTITION_ID_MAX} partitions, its limit. Begin a new data directory."
                )

    def _delete(self, topic: str) -> list[int]:
        partitions = [_Partition(*row) for row in self._database.fetch(_SELECT_TOPIC, (topic,))]
        for found in partitions:
            self._remove(found, found.next)
        with self._database.writing() as connection:
            for found in partitions:
                # What was appended meanwhile.
                connection.execute(
                    "DELETE FROM chunks WHERE key >= ? AND key < ?",
                    (chunk_key(found.id, 0), chunk_key(found.id + 1, 0)),
                )
                connection.execute("DELETE FROM partitions WHERE id = ?", (found.id,))
        return [found.id for found in partitions]

    def _publish(self, written: Iterable[tuple[int, Chunk]], topics: Iterable[str]) -> None:
        for partition_id, chunk in written:
            self._cache.add(partition_id, chunk)
        for topic in topics:
            self._signals.notify(f"topic:{topic}")

    def _load(self, found: _Partition, position: int, bytes_max: int) -> tuple[list[Chunk], str]:
        """Read chunks up to the first damage, and say what that is."""
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

    def _first_since(self, found: _Partition, recorded_at_ms: int) -> int:
        # Positions are dense and times never go back, so that this is a binary search; both bounds are always the begin
        # of a chunk.
        low, high = found.oldest, found.next
        while low < high:
            middle = (low + high) // 2
            rows = self._database.fetch(
                "SELECT key, recorded_at_ms, count FROM chunks WHERE key BETWEEN ? AND ? ORDER BY key DESC LIMIT 1",
                (chunk_key(found.id, low), chunk_key(found.id, middle)),
            )
            if not rows:
                low = middle + 1  # removed meanwhile
                continue
            key, at_ms, count = rows[0]
            if at_ms >= recorded_at_ms:
                high = key & POSITION_MAX
            else:
                low = (key & POSITION_MAX) + count
        return low

    def _expire(self, partitions: Iterable[_Partition], before_ms: int) -> int:
        return sum(self._remove(found, self._first_since(found, before_ms)) for found in partitions)

    def _remove(self, found: _Partition, stop: int) -> int:
        """Remove the chunks before a position, in small transactions, and return the number of events."""
        removed = 0
        position = found.oldest
        while position < stop:
            with self._database.writing() as connection:
                row = connection.execute("SELECT oldest FROM partitions WHERE id = ?", (found.id,)).fetchone()
                if not row or row[0] >= stop:
                    break
                begin, end = chunk_key(found.id, row[0]), chunk_key(found.id, stop)
                cut = connection.execute(
                    "SELECT key FROM chunks WHERE key >= ? AND key < ? ORDER BY key LIMIT 1 OFFSET ?",
                    (begin, end, EXPIRE_CHUNKS),
                ).fetchone()
                position = cut[0] & POSITION_MAX if cut else stop
                connection.execute(
                    "DELETE FROM chunks WHERE key >= ? AND key < ?", (begin, chunk_key(found.id, position))
                )
                connection.execute("UPDATE partitions SET oldest = ? WHERE id = ?", (position, found.id))
            removed += position - row[0]
        return removed

    # --- what runs on the caller's side ---

    def _topic(self, topic: str) -> list[_Partition]:
        if rows := self._database.fetch(_SELECT_TOPIC, (topic,)):
            return [_Partition(*row) for row in rows]
        raise NotFound(f"topic {topic} does not exist")

    def _partition(self, topic: str, number: int) -> _Partition:
        for row in self._database.fetch(_SELECT_PARTITION, (topic, number)):
            return _Partition(*row)
        raise partition_not_found(topic, number)
