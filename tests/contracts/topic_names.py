"""The contract of the port `TopicNames`: subclasses provide `store`, an event store."""

from rioni.domain.ports.event_store import TopicNames
from tests.contracts.event_store import events


class TopicNamesContract:
    def test_all_topics_are_listed_whatever_they_contain(self, store):
        assert isinstance(store, TopicNames)
        assert set(store.topics()) == set()
        for topic in ("empty", "filled", "closed"):
            store.create_topic(topic, 2)
        store.append("filled", {1: events(1)})
        store.close_topic("closed")
        assert set(store.topics()) == {"empty", "filled", "closed"}

    def test_a_deleted_topic_is_not_listed(self, store):
        store.create_topic("a", 1)
        store.create_topic("b", 1)
        store.delete_topic("a")
        assert set(store.topics()) == {"b"}
