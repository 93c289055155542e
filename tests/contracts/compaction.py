"""The contract of the port `EventStore` for compaction: subclasses provide `store`."""

import threading

import pytest

from rioni.domain.access.authorization import Attribute
from rioni.domain.ports.event_store import EventStore
from rioni.domain.publishing.headers import Headers, stored_key
from tests.contracts.event_store import PARTITIONS, TOPIC, events, read_all, run_all
from tests.support.clock import ManualClock


class CompactionContract:
    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture(autouse=True)
    def topic(self, store: EventStore) -> str:
        store.create_topic(TOPIC, PARTITIONS)
        return TOPIC

    def test_of_events_with_the_same_key_the_last_one_is_kept(self, store: EventStore, clock: ManualClock):
        keys = [Headers(key=key) for key in "abac"]
        store.append(TOPIC, {0: events(1, 2, 3, 4)}, headers={0: keys})
        store.append(TOPIC, {1: events(5)}, headers={1: [Headers(key="a")]})
        clock.advance(1)
        store.append(TOPIC, {0: events(6)}, headers={0: [Headers(key="b")]})
        assert store.compact(TOPIC, clock.now_ms()) == 1
        assert read_all(store, TOPIC, 0) == [b"", *events(2, 3, 4, 6)]
        assert store.compact(TOPIC, clock.now_ms() + 1) == 1
        assert read_all(store, TOPIC, 0) == [b"", b"", *events(3, 4, 6)]
        assert read_all(store, TOPIC, 1) == events(5)
        assert tuple(store.bounds(TOPIC)[0]) == (0, 4)
        assert store.compact(TOPIC, clock.now_ms() + 1) == 0

    def test_events_without_a_key_are_never_compacted(self, store: EventStore, clock: ManualClock):
        store.append(TOPIC, {0: events(1, 2)})
        store.append(TOPIC, {0: events(3, 4)}, headers={0: [Headers(key="a"), Headers(avro=b"x")]})
        store.append(TOPIC, {0: events(5)}, headers={0: [Headers(key="a")]})
        assert store.compact(TOPIC, clock.now_ms() + 1) == 1
        assert read_all(store, TOPIC, 0) == [*events(1, 2), b"", *events(4, 5)]

    def test_events_that_may_have_no_key_are_kept_unless_they_are_too_old(self, store: EventStore, clock: ManualClock):
        store.append(TOPIC, {0: events(1, 2)})
        clock.advance(1)
        store.append(TOPIC, {0: events(3, 4)}, headers={0: [Headers(key="a")] * 2})
        store.compact(TOPIC, clock.now_ms() + 1, keyed_since_ms=clock.now_ms())
        assert read_all(store, TOPIC, 0)[:2] == events(1, 2)
        assert store.delete_before(TOPIC, clock.now_ms()) == 2
        store.compact(TOPIC, clock.now_ms() + 1, keyed_since_ms=clock.now_ms())
        assert store.bounds(TOPIC)[0] == (2, 3)

    def test_a_tombstone_removes_the_events_with_its_key_and_then_itself(self, store: EventStore, clock: ManualClock):
        store.append(TOPIC, {0: events(1)}, headers={0: [Headers(key="a")]})
        clock.advance(1)
        store.append(TOPIC, {0: [b""]}, headers={0: [Headers(key="a")]})
        assert store.compact(TOPIC, clock.now_ms()) == 0
        assert store.compact(TOPIC, clock.now_ms() + 1) == 2
        assert read_all(store, TOPIC, 0) == [b"", b""]
        store.append(TOPIC, {0: events(2)}, headers={0: [Headers(key="a")]})
        assert store.compact(TOPIC, clock.now_ms() + 1) == 0
        assert read_all(store, TOPIC, 0) == [b"", b"", *events(2)]

    def test_nobody_else_removes_the_event_of_an_owner(self, store: EventStore, clock: ManualClock):
        """Reference publishing#compaction-key."""
        owners = [Attribute("team", "a"), Attribute("team", "b"), None]
        headers = [Headers(key=stored_key("k", owner), owner=owner) for owner in owners]
        store.append(TOPIC, {0: events(1)}, headers={0: headers[:1]})
        store.append(TOPIC, {0: [*events(2, 3), b"", b""]}, headers={0: [*headers[1:], *headers[1:]]})
        store.compact(TOPIC, clock.now_ms() + 1)
        assert read_all(store, TOPIC, 0) == [*events(1), b"", b"", b"", b""]
        store.append(TOPIC, {0: [b""]}, headers={0: headers[:1]})
        store.compact(TOPIC, clock.now_ms() + 1)
        assert read_all(store, TOPIC, 0) == [b""] * 6

    def test_compaction_ignores_expired_events(self, store: EventStore, clock: ManualClock):
        key = [Headers(key="a")]
        store.append(TOPIC, {0: events(1)}, headers={0: key})
        store.append(TOPIC, {0: events(2)}, headers={0: key})
        clock.advance(1)
        store.append(TOPIC, {0: events(3)}, headers={0: key})
        store.delete_before(TOPIC, clock.now_ms())
        assert store.compact(TOPIC, clock.now_ms() + 1) == 0
        assert read_all(store, TOPIC, 0, 2) == events(3)

    def test_a_topic_that_was_deleted_has_no_keys_left(self, store: EventStore, clock: ManualClock):
        store.append(TOPIC, {0: events(1)}, headers={0: [Headers(key="a")]})
        store.delete_topic(TOPIC)
        store.create_topic(TOPIC, PARTITIONS)
        store.append(TOPIC, {0: events(2)}, headers={0: [Headers(key="a")]})
        assert store.compact(TOPIC, clock.now_ms() + 1) == 0

    def test_concurrent_readers_miss_no_event_that_is_kept(self, store: EventStore, clock: ManualClock):
        for number in range(200):
            store.append(TOPIC, {0: events(number)}, headers={0: [Headers(key=str(number % 50))]})
            clock.advance(1)
        seen: list[set[bytes]] = []

        def follow() -> None:
            seen.append(set(read_all(store, TOPIC, 0)))

        readers = [threading.Thread(target=follow) for _ in range(3)]
        run_all([*readers, threading.Thread(target=store.compact, args=(TOPIC, clock.now_ms()))])
        assert all(set(events(*range(150, 200))) <= each for each in seen)
        assert read_all(store, TOPIC, 0) == [b""] * 150 + events(*range(150, 200))
