import pytest

from rioni.domain.errors import NotFound, TopicClosed
from rioni.storage.kafka.topics import readiness
from tests.contracts.closed_topics import ClosedTopicsContract
from tests.contracts.event_store import read_all


pytestmark = pytest.mark.kafka


class TestKafkaClosedTopics(ClosedTopicsContract):
    def test_a_topic_is_closed_for_all_processes(self, store, other_store, topic):
        other_store.append(topic, {0: [b"{}"]})
        bounds = store.close_topic(topic)
        with pytest.raises(TopicClosed):
            other_store.append(topic, {0: [b"{}"]})
        assert other_store.bounds(topic) == bounds
        assert read_all(store, topic, 0) == [b"{}"]

    def test_partitions_added_by_another_process_are_seen_by_appends_that_expect_them(self, store, other_store, topic):
        store.append(topic, {0: [b"{}"]})
        assert store.newest(topic) == [0, -1, -1]
        other_store.extend_topic(topic, 5)
        other_store.append(topic, {4: [b"{}"]})
        assert store.newest(topic, 5) == [0, -1, -1, -1, 0]
        # Partitions that the store knows and ones that it does not know yet, in one batch.
        assert store.append(topic, {0: [b"[]"], 3: [b"[]"], 4: [b"[]"]}) == {0: 1, 3: 0, 4: 1}

    def test_a_topic_that_is_already_closed_is_created_again_and_stays_closed(self, store, other_store, topic):
        store.close_topic(topic)
        count = len(store.bounds(topic))
        for each in (store, other_store):
            each.create_topic(topic, count)
        with pytest.raises(TopicClosed):
            other_store.append(topic, {0: [b"{}"]})

    def test_partitions_added_by_others_meanwhile_are_no_error(self, store, other_store, topic, monkeypatch):
        other_store.extend_topic(topic, 5)
        # The answer of a broker that does not know of it yet.
        monkeypatch.setattr(store._topics, "count", lambda _topic: 3)
        store.extend_topic(topic, 5)
        assert store.append(topic, {4: [b"{}"]}) == {4: 0}

    @pytest.mark.parametrize("wait", ["until_open", "until_there"])
    def test_nobody_waits_for_a_topic_that_was_deleted_until_the_deadline(
        self, store, other_store, topic, wait, monkeypatch
    ):
        other_store.delete_topic(topic)
        monkeypatch.setattr(readiness, "SETTLED_S", 600.0)
        monkeypatch.setattr(readiness, "GONE_S", 2.0)
        topics = store._topics
        with pytest.raises(NotFound, match="was deleted"):
            getattr(topics._probe, wait)(topics.name(topic), range(2))
