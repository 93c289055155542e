"""The event stores of a process: the port `EventStores`, the cache that they share, and hashes of names."""

import contextlib
import sys
from bisect import bisect_right
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from hashlib import blake2b

from rioni.domain.errors import Unavailable
from rioni.domain.ports.event_store import Chunk, EventStore
from rioni.domain.ports.host import StorePools
from rioni.domain.system.storages import StorageEntry
from rioni.storage.threads import ThreadSafeSemaphore


# --- Maps each storage to its event store: the port `EventStores` ---

Opener = Callable[[StorageEntry], EventStore]

OPENING_WAIT_S = 15.0
"""How long a request waits for another one to open the store."""


class EventStoreRegistry:
    """The stores of one process; a forked process must make its own."""

    def __init__(
        self,
        find: Callable[[str], StorageEntry | None],
        openers: Mapping[str, Opener],
        pools: Callable[[str], StorePools],
    ) -> None:
        """Open nothing yet.

        Args:
            find: returns the storage with an id.
            openers: opens the store of a storage, by each storage type that this installation supports.
            pools: returns the pools of a storage, in which opening it blocks. One that hangs does not block the others.
        """
        self._find, self._openers, self._pools = find, openers, pools
        self._locks: defaultdict[tuple[str, str], ThreadSafeSemaphore] = defaultdict(ThreadSafeSemaphore)
        self._stores: dict[tuple[str, str], EventStore] = {}

    def of(self, storage_id: str) -> EventStore:
        """Return the store of a storage; see the port."""
        storage = self._find(storage_id)
        if storage is None:
            raise Unavailable(f"There is no storage with id {storage_id}.")
        # The type is part of the key: an id may be reused with another type.
        key = storage.id, storage.storage_type
        return self._stores.get(key) or self._open(key, storage)

    def _open(self, key: tuple[str, str], storage: StorageEntry) -> EventStore:
        opener = self._openers.get(storage.storage_type)
        if opener is None:
            raise Unavailable(
                f"The storage {storage.id} is of type {storage.storage_type}, which this installation can't use. "
                f"It can use: {', '.join(self._openers)}."
            )
        with self._locks[key].taken(
            OPENING_WAIT_S, f"The storage {storage.id} is being opened, which takes too long; try again later."
        ):
            if key not in self._stores:
                self._stores[key] = self._pools(storage.id).topics(opener, storage)
            return self._stores[key]

    def opened(self) -> Mapping[str, EventStore]:
        """Return the open stores by storage id; see the port."""
        return {storage_id: store for (storage_id, _), store in self._stores.items()}

    def close(self) -> None:
        """Close all stores; see the port."""
        with contextlib.ExitStack() as stack:
            for store in self._stores.values():
                stack.callback(store.close)
            self._stores = {}


# Caches the chunks of events that this process has recently written or read, as many streams read the same tail.

CACHE_BYTES_MAX = 48 * 2**20
"""The default memory for chunks."""
CHUNK_OVERHEAD_BYTES = 600
"""Memory that a chunk takes besides its data and index: objects, and its entries here. Without it, a cache of tiny
chunks would exceed its bound."""


class CacheMemory:
    """The memory that the chunk caches of a process share: the least recently used chunks of all are evicted."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self.chunks: OrderedDict[tuple[ChunkCache, int, int], Chunk] = OrderedDict()
        """Chunks by cache, partition and first position; the least recently used one first."""
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
            bytes_max: the maximum bytes of data; at least one chunk is returned if it is cached.
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
        """Whether all events of a chunk are cached, in any chunks."""
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


# --- Hashes client-supplied names to short, fixed-size lookup keys ---

HASH_BYTES = 16
"""Two names with the same hash would be treated as one: with 10^12 names the odds are one to 10^14."""


def short_hash(name: str) -> bytes:
    """Return the stored hash of a name."""
    return blake2b(name.encode(), digest_size=HASH_BYTES).digest()
