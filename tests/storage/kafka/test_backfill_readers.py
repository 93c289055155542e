import random
from collections.abc import Callable

import pytest

from rioni.domain.ports.event_store import Chunk
from rioni.storage.event_stores import CacheMemory
from rioni.storage.kafka import backfill_readers
from rioni.storage.kafka.backfill_readers import BackfillReaders
from rioni.storage.kafka.events import KafkaEventStore
from tests.contracts.event_store import TOPIC, events


pytestmark = pytest.mark.kafka

PARTITIONS = 5
BATCHES, BATCH = 50, 40


@pytest.fixture
def expected(store: KafkaEventStore) -> dict[int, list[bytes]]:
    """The events of each partition of the topic."""
    store.create_topic(TOPIC, PARTITIONS)
    found: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}
    for turn in range(BATCHES):
        batches = {number: events(*(f"{number}-{turn}-{n:0200}" for n in range(BATCH))) for number in found}
        store.append(TOPIC, batches)
        for number, batch in batches.items():
            found[number] += batch
    return found


def read_in_turns(store: KafkaEventStore, chance: random.Random, bytes_max: int) -> dict[int, list[bytes]]:
    """Read all partitions as streams do: some at the same time, each going on from its last position."""
    found: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}
    left = dict.fromkeys(found, 0)
    while left:
        wanted = {number: left[number] for number in chance.sample(sorted(left), chance.randint(1, len(left)))}
        for number, position in wanted.items():
            chunks = store.read(TOPIC, number, position, bytes_max, lambda wanted=wanted: wanted)
            if not chunks:
                del left[number]
            for chunk in chunks:
                found[number] += events_from(chunk, left[number])
                left[number] = chunk.next
    return found


def events_from(chunk: Chunk, position: int) -> list[bytes]:
    return [chunk.cut(place, place + 1) for place in range(max(position, chunk.first), chunk.next)]


@pytest.mark.parametrize("cache_bytes_max", [0, 50_000, 10_000_000])
@pytest.mark.parametrize("ahead_bytes_max", [0, 1_000_000])
def test_partitions_read_in_turns_are_read_completely(
    expected, open_store: Callable[..., KafkaEventStore], monkeypatch, cache_bytes_max, ahead_bytes_max
):
    monkeypatch.setattr(backfill_readers, "AHEAD_BYTES_MAX", ahead_bytes_max)
    late, chance = open_store(cache_memory=CacheMemory(cache_bytes_max)), random.Random(cache_bytes_max)
    assert read_in_turns(late, chance, 10_000) == expected


def test_the_first_events_of_all_partitions_are_loaded_at_once(
    expected, open_store: Callable[..., KafkaEventStore], monkeypatch
):
    # Longer than any machine is ever busy with other work.
    monkeypatch.setattr(backfill_readers, "BESIDE_S", 10.0)
    late, loads, load = open_store(), [], BackfillReaders.load

    def counted(*arguments):
        loads.append(arguments)
        return load(*arguments)

    monkeypatch.setattr(BackfillReaders, "load", counted)
    positions = dict.fromkeys(range(PARTITIONS), 0)
    for number in positions:
        (first, *_) = late.read(TOPIC, number, 0, 1_000, lambda: positions)
        assert events_from(first, 0) == expected[number][: first.next]
    assert len(loads) == 1


@pytest.mark.parametrize("cache_bytes_max", [20_000, 10_000_000])
def test_partitions_started_together_continue_with_one_consumer_each(
    expected, open_store: Callable[..., KafkaEventStore], monkeypatch, cache_bytes_max
):
    made, consumer = [], backfill_readers.Consumer

    def counted(settings):
        made.append(settings)
        return consumer(settings)

    monkeypatch.setattr(backfill_readers, "Consumer", counted)
    # The number of messages that a fetch returns if there are many more than here.
    monkeypatch.setattr(backfill_readers, "MESSAGES_MAX", 20)
    late, left, reads = open_store(cache_memory=CacheMemory(cache_bytes_max)), dict.fromkeys(range(PARTITIONS), 0), 0
    while left:
        for number, position in list(left.items()):
            chunks = late.read(TOPIC, number, position, 1_000, lambda: left)
            reads += 1
            if chunks:
                left[number] = chunks[-1].next
            else:
                del left[number]
    assert reads > 10 * PARTITIONS
    assert 10 * len(made) <= reads
