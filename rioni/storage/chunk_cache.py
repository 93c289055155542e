"""Caches the chunks of events that this process has recently written or read, as many streams read the same tail."""

import sys
from bisect import bisect_right
from collections import OrderedDict

from rioni.domain.ports.event_store import Chunk
from rioni.storage.threads.greenlet_semaphore import ThreadSafeSemaphore


CHUNK_OVERHEAD_BYTES = 600
"""Memory that a chunk takes besides its data and index: objects, and its entries here. Without it, a cache of tiny
chunks would exceed its bound."""


class ChunkCache:
    """A least recently used cache of chunks, bounded in bytes; ids of partitions are never used again."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._chunks: OrderedDict[tuple[int, int], Chunk] = OrderedDict()
        self._firsts: dict[int, list[int]] = {}
        self._lock = ThreadSafeSemaphore()

    def add(self, partition_id: int, chunk: Chunk) -> None:
        """Add a chunk and evict the least recently used ones beyond the bound."""
        with self._lock:
            key = (partition_id, chunk.first)
            if key in self._chunks:
                self._chunks.move_to_end(key)
                return
            self._chunks[key] = chunk
            firsts = self._firsts.setdefault(partition_id, [])
            firsts.insert(bisect_right(firsts, chunk.first), chunk.first)
            self._bytes += _size(chunk)
            while self._bytes > self._bytes_max:
                self._forget(next(iter(self._chunks)))

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
        with self._lock:
            firsts = self._firsts.get(partition_id, [])
            index = bisect_right(firsts, position) - 1
            while 0 <= index < len(firsts) and position < stop:
                chunk = self._chunks[partition_id, firsts[index]]
                size += len(chunk.data)
                if not chunk.first <= position < chunk.next or (
                    found and (chunk.first != position or size > bytes_max)
                ):
                    break
                self._chunks.move_to_end((partition_id, chunk.first))
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
        with self._lock:
            for first in self._firsts.get(partition_id, [])[:]:
                self._forget((partition_id, first))

    def _forget(self, key: tuple[int, int]) -> None:
        partition_id, first = key
        self._bytes -= _size(self._chunks.pop(key))
        firsts = self._firsts[partition_id]
        del firsts[bisect_right(firsts, first) - 1]
        if not firsts:
            del self._firsts[partition_id]


def _size(chunk: Chunk) -> int:
    return chunk.size + CHUNK_OVERHEAD_BYTES
