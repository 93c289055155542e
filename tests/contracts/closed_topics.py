"""The contract of the port `EventStore` for closing and extending topics: subclasses provide `store`."""

import itertools
import threading

import pytest

from rioni.domain.errors import NotFound, TopicClosed
from rioni.domain.ports.event_store import EventStore
from rioni.domain.timelines.position import Bounds
from tests.contracts.event_store import PARTITIONS, TOPIC, events, read_all


class ClosedTopicsContract:
    @pytest.fixture(autouse=True)
    def topic(self, store: EventStore) -> str:
        store.create_topic(TOPIC, PARTITIONS)
        return TOPIC

    def test_closing_returns_the_final_newest_positions(self, store: EventStore):
        store.append(TOPIC, {0: events(1, 2), 2: events(3)})
        for _ in range(2):
            assert store.close_topic(TOPIC) == [Bounds(0, 1), Bounds(0, -1), Bounds(0, 0)]
        with pytest.raises(TopicClosed):
            store.append(TOPIC, {0: events(4)})
        assert store.bounds(TOPIC)[0] == Bounds(0, 1)
        assert read_all(store, TOPIC, 0) == events(1, 2)

    def test_closing_affects_one_topic_only_and_ignores_an_unknown_one(self, store: EventStore):
        store.create_topic("other", 1)
        store.close_topic(TOPIC)
        assert store.append("other", {0: events(1)}) == {0: 0}
        with pytest.raises(NotFound):
            store.close_topic("unknown")
        store.create_topic("unknown", 1)
        assert store.append("unknown", {0: events(1)}) == {0: 0}

    def test_a_topic_deleted_while_closed_is_open_when_created_again(self, store: EventStore):
        store.close_topic(TOPIC)
        store.delete_topic(TOPIC)
        store.create_topic(TOPIC, PARTITIONS)
        assert store.append(TOPIC, {0: events(1)}) == {0: 0}

    def test_concurrent_appends_to_a_topic_being_closed_are_counted_or_rejected(self, store: EventStore):
        stored: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}

        def publish(publisher: int) -> None:
            for batch in itertools.count():
                sent = {
                    number: events(*(f"{publisher}-{batch}-{index}" for index in range(3)))
                    for number in range(PARTITIONS)
                }
                try:
                    store.append(TOPIC, sent)
                except TopicClosed as ex:
                    for number, count in ex.stored.items():
                        stored[number] += sent[number][:count]
                    return
                for number, appended in sent.items():
                    stored[number] += appended

        threads = [threading.Thread(target=publish, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        store.newest(TOPIC)  # another client reads it
        while len(stored[0]) < 60:
            threading.Event().wait(0.001)
        bounds = store.close_topic(TOPIC)
        for thread in threads:
            thread.join()
        assert store.bounds(TOPIC) == bounds
        for number in range(PARTITIONS):
            assert sorted(read_all(store, TOPIC, number)) == sorted(stored[number])
            assert bounds[number].newest + 1 == len(stored[number])

    def test_partitions_can_be_added_to_a_closed_topic(self, store: EventStore):
        store.append(TOPIC, {2: events(1)})
        for _ in range(2):
            store.extend_topic(TOPIC, 5)
        store.extend_topic(TOPIC, 1)
        assert store.bounds(TOPIC) == [Bounds(0, newest) for newest in (-1, -1, 0, -1, -1)]
        assert store.append(TOPIC, {4: events(2)}) == {4: 0}
        store.close_topic(TOPIC)
        store.extend_topic(TOPIC, 6)
        assert len(store.bounds(TOPIC)) == 6
        with pytest.raises(NotFound):
            store.extend_topic("unknown", 2)
