"""What every adapter of the port `EventStore` promises of closing and extending topics: subclasses provide `store`."""

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

    def test_closing_tells_what_is_there_for_good(self, store: EventStore):
        store.append(TOPIC, {0: events(1, 2), 2: events(3)})
        for _ in range(2):
            assert store.close_topic(TOPIC) == [Bounds(0, 1), Bounds(0, -1), Bounds(0, 0)]
        with pytest.raises(TopicClosed):
            store.append(TOPIC, {0: events(4)})
        assert store.bounds(TOPIC)[0] == Bounds(0, 1)
        assert read_all(store, TOPIC, 0) == events(1, 2)

    def test_closing_stops_one_topic_alone_and_an_unknown_one_not_at_all(self, store: EventStore):
        store.create_topic("other", 1)
        store.close_topic(TOPIC)
        assert store.append("other", {0: events(1)}) == {0: 0}
        with pytest.raises(NotFound):
            store.close_topic("unknown")
        store.create_topic("unknown", 1)
        assert store.append("unknown", {0: events(1)}) == {0: 0}

    def test_a_topic_that_is_deleted_while_closed_comes_back_open(self, store: EventStore):
        store.close_topic(TOPIC)
        store.delete_topic(TOPIC)
        store.create_topic(TOPIC, PARTITIONS)
        assert store.append(TOPIC, {0: events(1)}) == {0: 0}

    def test_whatever_is_under_way_while_a_topic_is_closed_is_counted_or_refused(self, store: EventStore):
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
        store.newest(TOPIC)  # somebody reads it
        while len(stored[0]) < 60:
            threading.Event().wait(0.001)
        bounds = store.close_topic(TOPIC)
        for thread in threads:
            thread.join()
        assert store.bounds(TOPIC) == bounds
        for number in range(PARTITIONS):
            assert sorted(read_all(store, TOPIC, number)) == sorted(stored[number])
            assert bounds[number].newest + 1 == len(stored[number])

    def test_a_topic_gets_further_partitions_also_when_it_is_closed(self, store: EventStore):
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
