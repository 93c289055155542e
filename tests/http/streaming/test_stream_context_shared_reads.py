import threading

import pytest

from rioni.domain.errors import Unavailable
from rioni.domain.timelines.position import TimelinePosition
from rioni.http.streaming.stream_context import HOLDS_S, SHARED_BYTES_MAX, CachedUntilNotified, SharedCall, TailCache
from tests.support.builders import timeline, timelines_of
from tests.support.clock import ManualClock
from tests.support.memory import MemoryEventStore, MemorySignals, SingleStore
from tests.support.waiting import WAIT_S, wait_until


BEGIN = TimelinePosition(1, -1)


class CountingStore(MemoryEventStore):
    reads = 0

    def read(self, *args):
        self.reads += 1
        return super().read(*args)


@pytest.fixture
def store(clock: ManualClock, signals: MemorySignals) -> CountingStore:
    store = CountingStore(clock, signals)
    store.create_topic("topic", 2)
    return store


@pytest.fixture
def tails(store: CountingStore, signals: MemorySignals, clock: ManualClock) -> TailCache:
    return TailCache(SingleStore(store), signals, clock)


@pytest.fixture
def timelines():
    return timelines_of(timeline(1, "topic", partitions=2))


def test_all_get_the_same_answer_until_a_notification(signals, clock):
    answers = iter(range(10))
    shared = CachedUntilNotified(lambda: next(answers), "key", signals, clock)
    assert [shared(), shared()] == [0, 0]
    signals.notify("other")
    assert shared() == 0
    signals.notify("key")
    assert [shared(), shared()] == [1, 1]


def test_an_answer_is_cached_for_a_second_at_most(signals, clock):
    answers = iter(range(10))
    shared = CachedUntilNotified(lambda: next(answers), "key", signals, clock)
    assert shared() == 0
    clock.advance(round(HOLDS_S * 1000))
    assert shared() == 1


def test_a_call_that_takes_long_is_waited_for_briefly_and_only_once_at_a_time():
    begun, go_on = [], threading.Event()

    def slow() -> None:
        begun.append(threading.get_ident())
        go_on.wait(WAIT_S)

    shared = SharedCall(slow)
    for _ in range(3):
        with pytest.raises(Unavailable, match="No answer came"):
            shared()
    assert len(begun) == 1
    go_on.set()
    # The call that goes on has ended soon; the next one is another.
    wait_until(lambda: _answers(shared))
    shared()
    assert len(begun) >= 2


def _answers(shared: SharedCall) -> bool:
    try:
        shared()
    except Unavailable:
        return False
    return True


def test_callers_get_the_error_of_a_shared_call_and_the_next_one_calls_again():
    errors = [Unavailable("gone")]

    def failing() -> None:
        if errors:
            raise errors.pop()

    shared = SharedCall(failing)
    with pytest.raises(Unavailable, match="gone"):
        shared()
    shared()


def test_after_a_failed_query_the_next_caller_queries_again(signals, clock):
    answers = iter([Unavailable("not now"), "yes"])

    def ask() -> str:
        if isinstance(answer := next(answers), Exception):
            raise answer
        return answer

    shared = CachedUntilNotified(ask, "key", signals, clock)
    with pytest.raises(Unavailable):
        shared()
    assert shared() == "yes"


def test_a_notification_during_a_query_causes_another_query(signals, clock):
    answers = iter(range(10))

    def ask() -> int:
        answer = next(answers)
        if not answer:
            signals.notify("key")
        return answer

    shared = CachedUntilNotified(ask, "key", signals, clock)
    assert [shared(), shared(), shared()] == [0, 1, 1]


def test_streams_at_the_same_position_share_one_read(tails, timelines, store):
    store.append("topic", {0: [b"1"], 1: [b"2"]})
    tail, same = tails.of(timelines), tails.of(timelines)
    assert tail is same
    first = tail.read(0, BEGIN, 1_000)
    assert same.read(0, BEGIN, 1_000) is first
    assert [chunk.data for chunk in first[1]] == [b"1"]
    assert [chunk.data for chunk in tail.read(1, BEGIN, 1_000)[1]] == [b"2"]
    assert store.reads == 2


def test_newer_events_are_read(tails, timelines, store):
    tail = tails.of(timelines)
    assert tail.read(0, BEGIN, 1_000) == (1, ())
    store.append("topic", {0: [b"1"]})
    assert tail.newest() == [TimelinePosition(1, 0), TimelinePosition(1, -1)]
    assert [chunk.data for chunk in tail.read(0, BEGIN, 1_000)[1]] == [b"1"]
    store.append("topic", {0: [b"2"]})
    assert [chunk.data for chunk in tail.read(0, BEGIN, 1_000)[1]] == [b"1", b"2"]


@pytest.mark.parametrize("bytes_max", [SHARED_BYTES_MAX, 10])
def test_the_cache_is_bounded_and_reads_respect_their_limit(tails, timelines, store, bytes_max):
    store.append("topic", {0: [b"1" * SHARED_BYTES_MAX]})
    store.append("topic", {0: [b"2"]})
    tail = tails.of(timelines)
    assert len(tail.read(0, BEGIN, 10**6)[1]) == 2
    assert len(tail.read(0, BEGIN, bytes_max)[1]) == 1
    assert store.reads == 2


def test_a_reader_waits_for_another_one_that_reads_the_same(tails, timelines, store):
    store.append("topic", {0: [b"1"]})
    tail, reading, continue_reading = tails.of(timelines), threading.Event(), threading.Event()
    read = store.read

    def slowly(*args):
        reading.set()
        assert continue_reading.wait(WAIT_S)
        return read(*args)

    store.read = slowly
    found = []
    readers = [threading.Thread(target=lambda: found.append(tail.read(0, BEGIN, 1_000))) for _ in range(3)]
    for reader in readers:
        reader.start()
    assert reading.wait(WAIT_S)
    continue_reading.set()
    for reader in readers:
        reader.join(WAIT_S)
    assert len(found) == 3
    assert all(each is found[0] for each in found)
    assert store.reads == 1


def test_a_failed_read_is_not_shared_with_others(tails, timelines, store, monkeypatch):
    store.append("topic", {0: [b"1"]})
    tail = tails.of(timelines)
    with monkeypatch.context() as patch:
        patch.setattr(store, "read", lambda *_: (_ for _ in ()).throw(Unavailable("not now")))
        with pytest.raises(Unavailable):
            tail.read(0, BEGIN, 1_000)
    assert tail.read(0, BEGIN, 1_000)[1]


def test_each_timeline_has_its_own_tail(tails, timelines, store):
    store.create_topic("next", 2)
    store.append("next", {0: [b"1"]})
    before = tails.of(timelines)
    closed = timeline(1, "topic", partitions=2, latest_position=(-1, -1))
    after = tails.of(timelines_of(closed, timeline(2, "next", partitions=2)))
    assert before is not after
    assert after.newest()[0] == TimelinePosition(2, 0)
