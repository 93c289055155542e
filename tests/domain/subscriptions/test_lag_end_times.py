"""When events were stored, by the ends of partitions that were seen."""

from rioni.domain.subscriptions import lag
from rioni.domain.subscriptions.lag import EndTimes


def test_an_event_was_stored_when_the_end_was_first_seen_behind_it():
    times = EndTimes()
    for now_ms, ends in ((10, (5, 0)), (20, (5, 0)), (30, (7, 1)), (40, (9, 1))):
        times.see("topic", ends, now_ms)
    assert [times.at_ms("topic", 0, position) for position in (4, 5, 6, 7, 8, 9)] == [None, 30, 30, 40, 40, None]
    assert [times.at_ms("topic", 1, position) for position in (0, 1)] == [30, None]


def test_nothing_is_known_of_other_topics_and_partitions():
    times = EndTimes()
    times.see("topic", [1], 10)
    times.see("topic", [2], 20)
    assert times.at_ms("other", 0, 1) is None
    assert times.at_ms("topic", 1, 1) is None
    times.see("topic", [2, 0], 30)
    times.see("topic", [2, 1], 40)
    assert times.at_ms("topic", 1, 0) == 40


def test_a_topic_that_begins_anew_has_no_past():
    times = EndTimes()
    times.see("topic", [5], 10)
    times.see("topic", [9], 20)
    times.see("topic", [2], 30)
    assert times.at_ms("topic", 0, 1) is None
    times.see("topic", [6], 40)
    assert times.at_ms("topic", 0, 5) == 40


def test_forgotten_topics_are_unknown():
    times = EndTimes()
    for topic in ("a", "b"):
        times.see(topic, [1], 10)
        times.see(topic, [2], 20)
    times.forget("a")
    assert (times.at_ms("a", 0, 1), times.at_ms("b", 0, 1)) == (None, 20)
    times.forget_all()
    assert times.at_ms("b", 0, 1) is None


def test_the_oldest_times_and_topics_are_forgotten_first(monkeypatch):
    monkeypatch.setattr(lag, "TIMES_MAX", 8)
    monkeypatch.setattr(lag, "TOPICS_MAX", 2)
    times = EndTimes()
    for end in range(20):
        times.see("a", [end], end)
    known = [times.at_ms("a", 0, position) for position in range(19)]
    assert known == [None] * 12 + [*range(13, 20)]
    for topic in ("b", "a", "c"):
        times.see(topic, [20], 20)
        times.see(topic, [21], 21)
    assert [times.at_ms(topic, 0, 20) for topic in "abc"] == [21, None, 21]
