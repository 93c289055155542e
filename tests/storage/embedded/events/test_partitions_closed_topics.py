import pytest

from rioni.domain.errors import TopicClosed
from tests.contracts.closed_topics import ClosedTopicsContract


class TestEmbeddedClosedTopics(ClosedTopicsContract):
    def test_a_topic_is_closed_for_all_processes(self, store, other_store, topic):
        store.append(topic, {0: [b"{}"]})
        bounds = store.close_topic(topic)
        with pytest.raises(TopicClosed):
            other_store.append(topic, {0: [b"{}"]})
        assert other_store.bounds(topic) == bounds
