from rioni.storage.kafka.topics import topics as module


def test_of_too_many_topics_none_is_remembered_for_ever(monkeypatch):
    monkeypatch.setattr(module, "TOPICS_MAX", 3)
    remembered = module._OfTopics()
    for number in range(10):
        remembered[f"topic-{number}"] = number
        remembered[f"topic-{number}"] = number + 1
        assert len(remembered) <= 3
        assert remembered[f"topic-{number}"] == number + 1
    assert "topic-0" not in remembered
