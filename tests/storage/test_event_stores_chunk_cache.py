"""Caches of several stores in one memory."""

import sys

import pytest

from rioni.domain.ports.event_store import Chunk
from rioni.storage.embedded.events.chunks import join, split
from rioni.storage.event_stores import CHUNK_OVERHEAD_BYTES, CacheMemory, ChunkCache


def chunk(first: int) -> Chunk:
    (made,) = join(list(split([b"{}"], None)), first, 0)
    return made


SIZE = chunk(0).size + CHUNK_OVERHEAD_BYTES


@pytest.fixture
def memory() -> CacheMemory:
    return CacheMemory(3 * SIZE)


@pytest.fixture
def caches(memory: CacheMemory) -> tuple[ChunkCache, ChunkCache]:
    return ChunkCache(memory), ChunkCache(memory)


def cached(cache: ChunkCache, partition_id: int) -> list[int]:
    return [position for position in range(10) if cache.run(partition_id, position, position + 1, sys.maxsize)]


def test_caches_that_share_memory_do_not_see_each_others_chunks(caches):
    one, other = caches
    one.add(1, chunk(0))
    other.add(1, chunk(1))
    assert (cached(one, 1), cached(other, 1)) == ([0], [1])
    one.drop(1)
    assert (cached(one, 1), cached(other, 1)) == ([], [1])


def test_the_least_recently_used_chunk_of_all_caches_is_evicted(caches, memory):
    one, other = caches
    one.add(1, chunk(0))
    other.add(1, chunk(0))
    other.add(2, chunk(0))
    assert cached(one, 1) == [0]
    one.add(1, chunk(1))
    assert (cached(one, 1), cached(other, 1), cached(other, 2)) == ([0, 1], [], [0])
    assert memory.bytes == 3 * SIZE


def test_a_closed_cache_takes_no_memory(caches, memory):
    one, other = caches
    one.add(1, chunk(0))
    one.add(2, chunk(0))
    other.add(1, chunk(0))
    one.close()
    assert (memory.bytes, len(memory.chunks)) == (SIZE, 1)
    assert cached(other, 1) == [0]


def test_a_chunk_is_counted_once(caches, memory):
    for _ in range(2):
        caches[0].add(1, chunk(0))
    assert memory.bytes == SIZE
