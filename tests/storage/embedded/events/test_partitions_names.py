from tests.contracts.topic_names import TopicNamesContract


class TestEmbeddedTopicNames(TopicNamesContract):
    def test_topics_are_named_whatever_process_made_them(self, store, other_store):
        other_store.create_topic("a", 1)
        assert set(store.topics()) == {"a"}
