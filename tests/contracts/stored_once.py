"""The contract of the port `EventStore` for idempotency keys and event ids, under which events are stored once."""

import threading

import pytest

from rioni.domain.errors import IdempotencyKeyReused, NotFound
from rioni.domain.ports.event_store import EventStore
from rioni.domain.publishing.headers import NO_HEADERS, Headers, IdempotencyClaim
from tests.contracts.event_store import PARTITIONS, TOPIC, events, read_all, read_headers, run_all
from tests.support.clock import ManualClock


class DeduplicationContract:
    @pytest.fixture(autouse=True)
    def topic(self, store: EventStore) -> str:
        store.create_topic(TOPIC, PARTITIONS)
        return TOPIC

    def test_the_number_of_duplicates_is_returned(self, store: EventStore):
        assert store.append(TOPIC, {0: events(1)}).duplicates == 0
        batches, ids = {0: events(1, 2), 1: events(3)}, {0: ["a", "b"], 1: ["a"]}
        assert store.append(TOPIC, batches, ids=ids).duplicates == 1
        assert store.append(TOPIC, batches, ids=ids).duplicates == 3
        claim = IdempotencyClaim("name", "digest")
        assert store.append(TOPIC, {0: events(4)}, claim=claim).duplicates == 0
        assert store.append(TOPIC, {0: events(4)}, claim=claim).duplicates == 1

    def test_under_one_key_a_batch_is_stored_once(self, store: EventStore):
        claim = IdempotencyClaim("name", "digest")
        assert store.claimed("name") is None
        assert store.append(TOPIC, {0: events(1), 1: events(2)}, claim=claim) == {0: 0, 1: 0}
        assert store.append(TOPIC, {1: events(2), 2: events(1)}, claim=claim) == {}
        assert store.claimed("name") == "digest"
        assert store.append(TOPIC, {0: events(3)}, claim=IdempotencyClaim("other", "digest")) == {0: 1}
        assert [bounds.newest for bounds in store.bounds(TOPIC)] == [1, 0, -1]

    def test_under_a_used_key_no_other_batch_is_stored(self, store: EventStore):
        store.append(TOPIC, {0: events(1)}, claim=IdempotencyClaim("name", "digest"))
        with pytest.raises(IdempotencyKeyReused):
            store.append(TOPIC, {0: events(2)}, claim=IdempotencyClaim("name", "another"))
        assert read_all(store, TOPIC, 0) == events(1)

    def test_a_batch_that_could_not_be_stored_has_not_used_its_key(self, store: EventStore):
        claim = IdempotencyClaim("name", "digest")
        with pytest.raises(NotFound):
            store.append(TOPIC, {PARTITIONS: events(1)}, claim=claim)
        assert store.claimed("name") is None
        assert store.append(TOPIC, {0: events(1)}, claim=claim) == {0: 0}

    def test_a_batch_sent_concurrently_under_one_key_is_stored_once(self, store: EventStore):
        outcomes: list[object] = []

        def publish(digest: str) -> None:
            try:
                outcomes.append(len(store.append(TOPIC, {0: events(digest)}, claim=IdempotencyClaim("name", digest))))
            except IdempotencyKeyReused:
                outcomes.append("reused")

        run_all([threading.Thread(target=publish, args=(digest,)) for digest in "ab" * 8])
        assert sorted(outcomes, key=str) == [0] * 7 + [1] + ["reused"] * 8
        assert read_all(store, TOPIC, 0) == events(store.claimed("name"))

    def test_keys_expire(self, store: EventStore, clock: ManualClock):
        claim = IdempotencyClaim("name", "digest")
        store.append(TOPIC, {0: events(1)}, claim=claim)
        stored_ms = clock.now_ms()
        clock.advance(1)
        store.expire_ids(stored_ms)
        assert store.claimed("name") == "digest"
        store.expire_ids(stored_ms + 1)
        assert store.claimed("name") is None
        assert store.append(TOPIC, {0: events(1)}, claim=claim) == {0: 1}

    def test_an_event_with_a_known_id_is_dropped_with_its_headers(self, store: EventStore):
        assert store.append(TOPIC, {0: events(1, 2)}, ids={0: ["a", "b"]}) == {0: 0}
        headers = {0: [Headers(key=key) for key in "xyz"]}
        assert store.append(TOPIC, {0: events(2, 3, 1)}, headers=headers, ids={0: ["b", "c", "a"]}) == {0: 2}
        assert read_all(store, TOPIC, 0) == events(1, 2, 3)
        assert read_headers(store, TOPIC, 0) == [NO_HEADERS, NO_HEADERS, Headers(key="y")]

    def test_a_partition_with_only_duplicates_is_absent_from_the_result(self, store: EventStore):
        store.append(TOPIC, {0: events(1)}, ids={0: ["a"]})
        assert store.append(TOPIC, {0: events(1), 1: events(2)}, ids={0: ["a"], 1: ["b"]}) == {1: 0}
        assert store.append(TOPIC, {0: events(1), 1: events(2)}, ids={0: ["a"], 1: ["b"]}) == {}
        assert [bounds.newest for bounds in store.bounds(TOPIC)] == [0, 0, -1]

    def test_of_two_events_with_one_id_in_a_batch_the_first_is_stored(self, store: EventStore):
        ids = {0: ["a", "b", "a"], 1: ["b", "c"]}
        assert store.append(TOPIC, {0: events(1, 2, 3), 1: events(4, 5)}, ids=ids) == {0: 0, 1: 0}
        assert read_all(store, TOPIC, 0) == events(1, 2)
        assert read_all(store, TOPIC, 1) == events(5)

    def test_ids_hold_for_all_topics(self, store: EventStore):
        store.create_topic("other", 1)
        store.append("other", {0: events(1)}, ids={0: ["a"]})
        store.delete_topic("other")
        assert store.append(TOPIC, {0: events(1)}, ids={0: ["a"]}) == {}

    def test_known_ids_can_be_queried(self, store: EventStore):
        store.append(TOPIC, {0: events(1, 2), 1: events(3)}, ids={0: ["a", "b"]})
        assert set(store.existing_ids(["c", "b", "a"])) == {"a", "b"}
        assert not store.existing_ids(["c"])
        assert not store.existing_ids([])
        store.delete_topic(TOPIC)
        assert set(store.existing_ids(["a"])) == {"a"}

    def test_events_without_ids_are_always_stored(self, store: EventStore):
        for first in range(3):
            assert store.append(TOPIC, {0: events(1), 1: events(2)}, ids={1: [f"{first}"]}) == {0: first, 1: first}

    def test_a_batch_that_fails_stores_no_ids(self, store: EventStore):
        with pytest.raises(NotFound):
            store.append(TOPIC, {0: events(1), PARTITIONS: events(2)}, ids={0: ["a"], PARTITIONS: ["b"]})
        assert store.append(TOPIC, {0: events(1, 2)}, ids={0: ["a", "b"]}) == {0: 0}
        assert read_all(store, TOPIC, 0) == events(1, 2)

    def test_a_batch_with_a_key_and_event_ids_is_stored_once_by_either(self, store: EventStore):
        claim = IdempotencyClaim("name", "digest")
        assert store.append(TOPIC, {0: events(1, 2)}, ids={0: ["a", "b"]}, claim=claim) == {0: 0}
        assert store.append(TOPIC, {0: events(1, 2)}, ids={0: ["c", "d"]}, claim=claim) == {}
        assert store.append(
            TOPIC, {0: events(2, 3)}, ids={0: ["b", "c"]}, claim=IdempotencyClaim("other", "digest")
        ) == {0: 2}
        assert read_all(store, TOPIC, 0) == events(1, 2, 3)

    def test_ids_of_a_batch_longer_than_any_chunk_are_all_known(self, store: EventStore):
        batch, ids = events(*(f"{number:0100}" for number in range(3000))), [str(number) for number in range(3000)]
        store.append(TOPIC, {0: batch[::2]}, ids={0: ids[::2]})
        assert store.append(TOPIC, {0: batch}, ids={0: ids}) == {0: 1500}
        assert read_all(store, TOPIC, 0) == batch[::2] + batch[1::2]

    def test_only_expired_ids_can_be_stored_again(self, store: EventStore, clock: ManualClock):
        store.append(TOPIC, {0: events(1)}, ids={0: ["old"]})
        clock.advance(1000)
        store.append(TOPIC, {0: events(2)}, ids={0: ["new"]})
        store.expire_ids(clock.now_ms() - 1000)
        assert store.append(TOPIC, {0: events(1)}, ids={0: ["old"]}) == {}
        store.expire_ids(clock.now_ms())
        assert store.append(TOPIC, {0: events(2, 1)}, ids={0: ["new", "old"]}) == {0: 2}
        assert read_all(store, TOPIC, 0) == events(1, 2, 1)

    def test_many_ids_expire_at_once(self, store: EventStore, clock: ManualClock):
        store.append(TOPIC, {0: events(*range(12_000))}, ids={0: [str(number) for number in range(12_000)]})
        store.expire_ids(clock.now_ms() + 1)
        for name in ("0", "11999"):
            assert store.append(TOPIC, {0: events(1)}, ids={0: [name]})

    def test_of_concurrent_appends_with_the_same_ids_one_stores_each_event(self, store: EventStore):
        stored: list[int] = []

        def publish(publisher: int) -> None:
            for number in range(30):
                ids = [f"{number}-{index}" for index in range(4)]
                firsts = store.append(TOPIC, {0: events(*ids[:2]), 1: events(*ids[2:])}, ids={0: ids[:2], 1: ids[2:]})
                stored.append(len(firsts))
                # No process has the answer before the event is stored.
                for partition in range(2):
                    assert set(events(*ids)) & set(read_all(store, TOPIC, partition)), publisher

        run_all([threading.Thread(target=publish, args=(publisher,)) for publisher in range(6)])
        assert sum(stored) == 60
        for partition, indices in ((0, (0, 1)), (1, (2, 3))):
            expected = events(*(f"{number}-{index}" for number in range(30) for index in indices))
            assert sorted(read_all(store, TOPIC, partition)) == sorted(expected)
