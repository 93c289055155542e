"""The contract of the port `EventStore`.

Subclasses provide the fixture `store`, and `silent_store`: one that gets no answer to its writes.
"""

import itertools
import threading
from collections.abc import Sequence

import pytest

from rioni.domain.access.authorization import Attribute
from rioni.domain.errors import NotFound, PartiallyStored
from rioni.domain.ports.event_store import Chunk, EventStore
from rioni.domain.publishing.headers import NO_HEADERS, Headers
from tests.support.clock import ManualClock


TOPIC = "topic"
PARTITIONS = 3


def events(*names: object) -> list[bytes]:
    return [b'{"name":"%s"}' % str(name).encode() for name in names]


def read_all(store: EventStore, topic: str, partition: int, first: int = 0, bytes_max: int = 1000) -> list[bytes]:
    """Every event from a position on, checking that there is no gap between chunks."""
    found: list[bytes] = []
    position = first
    while chunks := store.read(topic, partition, position, bytes_max):
        for chunk in chunks:
            assert chunk.first <= position < chunk.next or not found
            position = max(position, chunk.first)
            found += parts(chunk, position)
            position = chunk.next
    return found


def read_headers(store: EventStore, topic: str, partition: int, oldest: int = 0) -> list[Headers]:
    """The headers of all events from the oldest position on."""
    found: list[Headers] = []
    while chunks := store.read(topic, partition, oldest + len(found), 1000):
        for chunk in chunks:
            assert chunk.headers is None or len(chunk.headers) == len(chunk.ends)
            assert chunk.headers is None or any(each != NO_HEADERS for each in chunk.headers)
            found += chunk.headers or [NO_HEADERS] * len(chunk.ends)
    return found


def parts(chunk: Chunk, start: int) -> list[bytes]:
    return [chunk.cut(position, position + 1) for position in range(start, chunk.next)]


class EventStoreContract:
    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture(autouse=True)
    def topic(self, store: EventStore) -> str:
        store.create_topic(TOPIC, PARTITIONS)
        return TOPIC

    def test_events_are_read_unchanged_and_in_order(self, store: EventStore):
        batch = [b'{"a": 1.00}', b'{"b":[1,2,{"c":","}]}', '{"d":"ÅÇ\U0001f600"}'.encode()]
        assert store.append(TOPIC, {1: batch}) == {1: 0}
        assert read_all(store, TOPIC, 1) == batch

    def test_positions_of_a_partition_are_dense_and_independent_of_other_partitions(self, store: EventStore):
        assert store.append(TOPIC, {0: events(1, 2), 2: events(3)}) == {0: 0, 2: 0}
        assert store.append(TOPIC, {0: events(4), 1: events(5)}) == {0: 2, 1: 0}
        assert store.append(TOPIC, {0: events(6), 2: events(7)}) == {0: 3, 2: 1}
        assert read_all(store, TOPIC, 0) == events(1, 2, 4, 6)
        assert read_all(store, TOPIC, 2) == events(3, 7)

    def test_reading_begins_in_the_chunk_that_holds_the_position(self, store: EventStore):
        store.append(TOPIC, {0: events(*range(10))})
        store.append(TOPIC, {0: events(*range(10, 20))})
        for first in range(20):
            assert read_all(store, TOPIC, 0, first) == events(*range(first, 20))

    def test_a_slice_of_a_chunk_is_its_events_joined_by_commas(self, store: EventStore):
        store.append(TOPIC, {0: events(*range(5))})
        chunks = store.read(TOPIC, 0, 0, 1000)
        assert chunks[-1].next == 5
        for chunk in chunks:
            assert chunk.cut(chunk.first, chunk.next) == chunk.data
            for start, stop in itertools.combinations(range(chunk.first, chunk.next + 1), 2):
                assert chunk.cut(start, stop) == b",".join(events(*range(start, stop)))

    def test_reading_at_or_behind_the_end_returns_nothing(self, store: EventStore):
        assert store.read(TOPIC, 0, 0, 1000) == []
        store.append(TOPIC, {0: events(1)})
        assert store.read(TOPIC, 0, 1, 1000) == []
        assert store.read(TOPIC, 0, 10**15, 1000) == []

    def test_at_least_one_chunk_is_read_and_more_only_while_they_fit(self, store: EventStore):
        for number in range(6):
            store.append(TOPIC, {0: events(f"{number:0100}")})
        assert len(store.read(TOPIC, 0, 0, 1)) == 1
        chunks = store.read(TOPIC, 0, 0, 350)
        assert len(chunks) == 1 or sum(len(chunk.data) for chunk in chunks) <= 350

    def test_a_batch_longer_than_any_chunk_stays_whole_and_in_order(self, store: EventStore):
        batch = events(*(f"{number:01000}" for number in range(1000)))
        store.append(TOPIC, {0: batch})
        assert read_all(store, TOPIC, 0) == batch
        assert max(len(chunk.data) for chunk in store.read(TOPIC, 0, 0, 10**7)) < 10**6

    def test_an_event_longer_than_any_chunk_is_not_truncated(self, store: EventStore):
        batch = events("x", "y" * 2_000_000, "z")
        store.append(TOPIC, {0: batch})
        assert read_all(store, TOPIC, 0) == batch

    def test_an_empty_partition_has_0_as_oldest_and_minus_1_as_newest(self, store: EventStore):
        assert [tuple(bounds) for bounds in store.bounds(TOPIC)] == [(0, -1)] * PARTITIONS

    def test_the_bounds_of_many_topics_are_read_at_once(self, store: EventStore):
        store.create_topic("other", 1)
        store.append(TOPIC, {0: events(1, 2)})
        store.append("other", {0: events(1)})
        found = store.bounds_of({TOPIC: PARTITIONS, "other": 1, "unknown": 1})
        assert {topic: [tuple(each) for each in bounds] for topic, bounds in found.items()} == {
            TOPIC: [(0, 1), (0, -1), (0, -1)],
            "other": [(0, 0)],
        }
        assert store.bounds_of({}) == {}

    def test_bounds_advance_with_appends(self, store: EventStore):
        for count in (3, 6):
            store.append(TOPIC, {1: events(1, 2, 3)})
            assert [tuple(bounds) for bounds in store.bounds(TOPIC)] == [(0, -1), (0, count - 1), (0, -1)]
            assert store.newest(TOPIC) == [-1, count - 1, -1]

    def test_unknown_topics_and_partitions_are_not_found(self, store: EventStore):
        for call in (
            lambda: store.append("unknown", {0: events(1)}),
            lambda: store.append(TOPIC, {PARTITIONS: events(1)}),
            lambda: store.read("unknown", 0, 0, 1),
            lambda: store.read(TOPIC, PARTITIONS, 0, 1),
            lambda: store.bounds("unknown"),
            lambda: store.newest("unknown"),
        ):
            with pytest.raises(NotFound):
                call()

    def test_a_batch_with_one_unknown_partition_writes_nothing(self, store: EventStore):
        with pytest.raises(NotFound):
            store.append(TOPIC, {0: events(1), 1: events(2), PARTITIONS: events(3)})
        assert [bounds.newest for bounds in store.bounds(TOPIC)] == [-1] * PARTITIONS

    def test_an_append_without_an_answer_names_every_partition_that_may_have_been_written(
        self, silent_store: EventStore
    ):
        with pytest.raises(PartiallyStored) as caught:
            silent_store.append(TOPIC, {0: events(1), 2: events(2, 3)})
        assert caught.value.failed == {0: "timed out", 2: "timed out"}

    def test_concurrent_appends_are_all_stored_once_at_the_returned_positions(self, store: EventStore):
        returned: dict[tuple[int, int], bytes] = {}

        def publish(publisher: int) -> None:
            for number in range(20):
                batch = events(f"{publisher}-{number}-a", f"{publisher}-{number}-b")
                firsts = store.append(TOPIC, {publisher % PARTITIONS: batch, (publisher + 1) % PARTITIONS: batch})
                for partition, first in firsts.items():
                    returned[partition, first], returned[partition, first + 1] = batch

        run_all([threading.Thread(target=publish, args=(publisher,)) for publisher in range(8)])
        found = {
            (partition, position): event
            for partition in range(PARTITIONS)
            for position, event in enumerate(read_all(store, TOPIC, partition))
        }
        assert found == returned
        assert len(returned) == 8 * 20 * 4

    def test_an_unknown_topic_fails_only_its_own_publisher(self, store: EventStore):
        outcomes: list[bool] = []

        def publish(topic: str) -> None:
            for _ in range(20):
                try:
                    store.append(topic, {0: events(1)})
                    outcomes.append(topic == TOPIC)
                except NotFound:
                    outcomes.append(topic != TOPIC)

        run_all([threading.Thread(target=publish, args=(topic,)) for topic in [TOPIC, "unknown"] * 4])
        assert outcomes == [True] * 160
        assert store.bounds(TOPIC)[0].newest == 79

    def test_expired_events_are_removed_and_positions_continue(self, store: EventStore, clock: ManualClock):
        store.append(TOPIC, {0: events(1, 2), 1: events(3)})
        clock.advance(1000)
        store.append(TOPIC, {0: events(4)})
        assert store.delete_before(TOPIC, clock.now_ms()) == 3
        assert [tuple(bounds) for bounds in store.bounds(TOPIC)] == [(2, 2), (1, 0), (0, -1)]
        assert read_all(store, TOPIC, 0, 2) == events(4)
        assert store.append(TOPIC, {1: events(5)}) == {1: 1}
        assert store.delete_before(TOPIC, clock.now_ms()) == 0

    def test_reading_from_an_expired_position_continues_at_the_oldest_event(
        self, store: EventStore, clock: ManualClock
    ):
        store.append(TOPIC, {0: events(1, 2)})
        reader = store.read(TOPIC, 0, 0, 1000)
        clock.advance(1)
        store.append(TOPIC, {0: events(3)})
        store.delete_before(TOPIC, clock.now_ms())
        assert [event for chunk in reader for event in parts(chunk, chunk.first)] == events(1, 2)
        assert [chunk.first for chunk in store.read(TOPIC, 0, 0, 1000)] == [2]

    def test_all_events_can_expire(self, store: EventStore, clock: ManualClock):
        for number in range(200):
            store.append(TOPIC, {0: events(number)})
        assert store.delete_before(TOPIC, clock.now_ms() + 1) == 200
        assert tuple(store.bounds(TOPIC)[0]) == (200, 199)
        assert store.read(TOPIC, 0, 0, 1000) == []

    def test_concurrent_readers_skip_only_expired_events(self, store: EventStore, clock: ManualClock):
        for number in range(300):
            store.append(TOPIC, {0: events(number)})
            clock.advance(1)
        skipped: list[tuple[int, int, int]] = []
        ends: list[int] = []

        def follow() -> None:
            position = 0
            while chunks := store.read(TOPIC, 0, position, 200):
                if chunks[0].first > max(position, oldest := store.bounds(TOPIC)[0].oldest):
                    skipped.append((position, chunks[0].first, oldest))
                position = chunks[-1].next
            ends.append(position)

        readers = [threading.Thread(target=follow) for _ in range(3)]
        run_all([*readers, threading.Thread(target=store.delete_before, args=(TOPIC, clock.now_ms() - 100))])
        assert not skipped
        assert ends == [300] * 3
        assert store.bounds(TOPIC)[0].oldest == 200

    def test_the_first_position_since_a_time_is_that_of_a_chunk(self, store: EventStore, clock: ManualClock):
        start = clock.now_ms()
        for number in range(10):
            store.append(TOPIC, {0: events(f"{number}a", f"{number}b")})
            clock.advance(10)
        assert store.offset_at_time(TOPIC, 0, 0) == 0
        assert [store.offset_at_time(TOPIC, 0, start + 10 * number) for number in range(10)] == list(range(0, 20, 2))
        assert store.offset_at_time(TOPIC, 0, start + 11) == 4
        assert store.offset_at_time(TOPIC, 0, start + 1000) == 20
        assert store.offset_at_time(TOPIC, 1, 0) == 0

    def test_the_time_of_an_event_is_that_of_its_chunk(self, store: EventStore, clock: ManualClock):
        start = clock.now_ms()
        for number in range(3):
            store.append(TOPIC, {0: events(f"{number}a", f"{number}b")})
            clock.advance(10)
        expected = [start, start, start + 10, start + 10, start + 20, start + 20, None, None]
        assert [store.recorded_at_ms(TOPIC, 0, position) for position in range(8)] == expected
        assert store.recorded_at_ms(TOPIC, 1, 0) is None
        store.delete_before(TOPIC, start + 15)
        assert [store.recorded_at_ms(TOPIC, 0, position) for position in (0, 3)] == [start + 20] * 2
        store.delete_before(TOPIC, start + 1000)
        assert store.recorded_at_ms(TOPIC, 0, 0) is None
        with pytest.raises(NotFound):
            store.recorded_at_ms("unknown", 0, 0)

    def test_recorded_times_stay_in_order_when_the_clock_is_set_back(self, store: EventStore, clock: ManualClock):
        start = clock.now_ms()
        for step in (50, -40, 30, -100, 200):
            store.append(TOPIC, {0: events(step)})
            clock.advance(step)
        times = [chunk.recorded_at_ms for chunk in store.read(TOPIC, 0, 0, 1000)]
        assert times == sorted(times)
        assert store.offset_at_time(TOPIC, 0, start + 1) == 1

    def test_creating_a_topic_again_changes_nothing(self, store: EventStore):
        store.append(TOPIC, {0: events(1)})
        store.create_topic(TOPIC, PARTITIONS)
        assert read_all(store, TOPIC, 0) == events(1)

    def test_a_deleted_topic_is_unknown_and_one_created_with_its_name_is_empty(self, store: EventStore):
        store.append(TOPIC, {0: events(1)})
        read_all(store, TOPIC, 0)
        store.delete_topic(TOPIC)
        with pytest.raises(NotFound):
            store.read(TOPIC, 0, 0, 1000)
        with pytest.raises(NotFound):
            store.append(TOPIC, {0: events(2)})
        store.create_topic(TOPIC, 1)
        assert [tuple(bounds) for bounds in store.bounds(TOPIC)] == [(0, -1)]
        assert store.read(TOPIC, 0, 0, 1000) == []
        assert store.append(TOPIC, {0: events(3)}) == {0: 0}
        assert read_all(store, TOPIC, 0) == events(3)

    def test_deleting_an_unknown_topic_changes_nothing(self, store: EventStore):
        store.delete_topic("unknown")
        assert len(store.bounds(TOPIC)) == PARTITIONS

    # --- what is stored beside the events ---

    def test_headers_are_read_back_with_their_events(self, store: EventStore):
        headers = [
            Headers(key='a"å'),
            NO_HEADERS,
            Headers(owner=Attribute("team", "a,b"), subscription_id="s1", avro=b"\x00\xff,"),
        ]
        assert store.append(TOPIC, {0: events(1, 2, 3), 1: events(4)}, headers={0: headers}) == {0: 0, 1: 0}
        store.append(TOPIC, {0: events(5)})
        store.append(TOPIC, {0: events(6)}, headers={0: [NO_HEADERS]})
        assert read_headers(store, TOPIC, 0) == [*headers, NO_HEADERS, NO_HEADERS]
        assert read_headers(store, TOPIC, 1) == [NO_HEADERS]
        assert read_all(store, TOPIC, 0) == events(1, 2, 3, 5, 6)
        assert store.read(TOPIC, 1, 0, 1000)[0].headers is None

    def test_headers_stay_with_their_events_in_batches_longer_than_any_chunk(self, store: EventStore):
        headers = [Headers(key=str(number)) if number % 3 else NO_HEADERS for number in range(500)]
        batch = events(*(f"{number:01000}" for number in range(500)))
        store.append(TOPIC, {0: batch}, headers={0: headers})
        assert read_headers(store, TOPIC, 0) == headers
        assert read_all(store, TOPIC, 0) == batch

    @pytest.mark.parametrize("gone", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2)])
    def test_a_tombstone_is_an_empty_event_that_has_a_position(self, store: EventStore, gone: tuple[int, ...]):
        batch = [b"" if index in gone else event for index, event in enumerate(events(1, 2, 3))]
        keys = [Headers(key=str(index)) for index in range(3)]
        store.append(TOPIC, {0: batch}, headers={0: keys})
        assert store.append(TOPIC, {0: events(4)}) == {0: 3}
        assert read_all(store, TOPIC, 0) == [*batch, *events(4)]
        assert read_headers(store, TOPIC, 0) == [*keys, NO_HEADERS]


def run_all(threads: Sequence[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
