"""Caches the chunks of events that this process has recently written or read, as many streams read the same tail."""

import sys
from bisect import bisect_right
from collections import OrderedDict

from rioni.domain.ports.event_store import Chunk
from rioni.storage.threads.greenlet_semaphore import ThreadSafeSemaphore


CACHE_BYTES_MAX = 48 * 2**20
"""By default."""
CHUNK_OVERHEAD_BYTES = 600
"""Memory that a chunk takes besides its data and index: objects, and its entries here. Without it, a cache of tiny
chunks would exceed its bound."""


class CacheMemory:
    """The memory that the chunk caches of a process share: the least recently used chunks of all are evicted."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self.chunks: OrderedDict[tuple[ChunkCache, int, int], Chunk] = OrderedDict()
        """By cache, partition and first position; the least recently used one first."""
        self.lock = ThreadSafeSemaphore()


class ChunkCache:
    """The chunks of one event store; ids of partitions are never used again."""

    def __init__(self, memory: CacheMemory) -> None:
        self._memory = memory
        self._firsts: dict[int, list[int]] = {}

    def add(self, partition_id: int, chunk: Chunk) -> None:
        """Add a chunk and evict the least recently used ones, of all caches, beyond the bound."""
        memory = self._memory
        with memory.lock:
            key = (self, partition_id, chunk.first)
            if key in memory.chunks:
                memory.chunks.move_to_end(key)
                return
            memory.chunks[key] = chunk
            firsts = self._firsts.setdefault(partition_id, [])
            firsts.insert(bisect_right(firsts, chunk.first), chunk.first)
            memory.bytes += _size(chunk)
            while memory.bytes > memory.bytes_max:
                cache, oldest, first = next(iter(memory.chunks))
                cache._forget(oldest, first)  # noqa: SLF001 - of the same class

    def run(self, partition_id: int, position: int, stop: int, bytes_max: int) -> list[Chunk]:
        """Return consecutive cached chunks, starting with the one that contains a position.

        Args:
            partition_id: the id of the partition.
            position: a position in the first chunk.
            stop: the position after the last chunk wanted.
            bytes_max: of data; at least one chunk is returned if it is cached.
        """
        found: list[Chunk] = []
        size = 0
        chunks = self._memory.chunks
        with self._memory.lock:
            firsts = self._firsts.get(partition_id, [])
            index = bisect_right(firsts, position) - 1
            while 0 <= index < len(firsts) and position < stop:
                chunk = chunks[self, partition_id, firsts[index]]
                size += len(chunk.data)
                if not chunk.first <= position < chunk.next or (
                    found and (chunk.first != position or size > bytes_max)
                ):
                    break
                chunks.move_to_end((self, partition_id, chunk.first))
                found.append(chunk)
                position = chunk.next
                index += 1
        return found

    def holds(self, partition_id: int, chunk: Chunk) -> bool:
        """Whether all events of a chunk are cached, in whatever chunks."""
        run = self.run(partition_id, chunk.first, chunk.next, sys.maxsize)
        return bool(run) and run[-1].next >= chunk.next

    def drop(self, partition_id: int) -> None:
        """Evict all chunks of a partition."""
        with self._memory.lock:
            for first in self._firsts.get(partition_id, [])[:]:
                self._forget(partition_id, first)

    def close(self) -> None:
        """Evict everything."""
        for partition_id in [*self._firsts]:
            self.drop(partition_id)

    def _forget(self, partition_id: int, first: int) -> None:
        self._memory.bytes -= _size(self._memory.chunks.pop((self, partition_id, first)))
        firsts = self._firsts[partition_id]
        del firsts[bisect_right(firsts, first) - 1]
        if not firsts:
            del self._firsts[partition_id]


def _size(chunk: Chunk) -> int:
    return chunk.size + CHUNK_OVERHEAD_BYTES
