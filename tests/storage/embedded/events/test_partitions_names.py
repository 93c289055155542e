from tests.contracts.topic_names import TopicNamesContract


class TestEmbeddedTopicNames(TopicNamesContract):
    def test_topics_created_by_any_process_are_listed(self, store, other_store):
        other_store.create_topic("a", 1)
        assert set(store.topics()) == {"a"}
