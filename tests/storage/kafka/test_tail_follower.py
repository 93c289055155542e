"""Following the ends of topics, with a consumer and a thread pool that are as slow as a test needs."""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as TimedOut

import pytest

from rioni.domain.errors import OutcomeUnknown
from rioni.domain.ports.event_store import StoreMeasurements
from rioni.domain.ports.host import StorePools
from rioni.domain.timelines.position import Bounds
from rioni.storage.event_stores import CacheMemory, ChunkCache
from tests.support.waiting import WAIT_S, wait_until


pytest.importorskip("confluent_kafka")

from rioni.storage.kafka import tail_follower
from rioni.storage.kafka.client import KafkaConnection
from rioni.storage.kafka.tail_follower import TailFollower


DEADLINE_S = 0.05
EVENTS = 5


class _Message:
    def __init__(self, offset: int) -> None:
        self._offset = offset

    def topic(self) -> str:
        return "topic"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def value(self) -> bytes:
        return b"%d" % self._offset

    def timestamp(self) -> tuple[int, int]:
        return 1, 1

    def error(self) -> None:
        return None

    def key(self) -> None:
        return None

    def headers(self) -> None:
        return None


class _Consumer:
    """Its first poll returns nothing and blocks until the test releases it; each further poll returns one event."""

    polled = threading.Event()
    goes_on = threading.Event()

    def __init__(self, _settings: object) -> None:
        self._next: int | None = None

    def list_topics(self, _name: str, _timeout_s: float) -> None:
        pass

    def incremental_assign(self, places) -> None:
        self._next = places[0].offset

    def incremental_unassign(self, _places) -> None:
        self._next = None

    def poll(self, timeout_s: float) -> _Message | None:
        if not self.polled.is_set():
            self.polled.set()
            self.goes_on.wait(WAIT_S)
            return None
        if self._next is None or self._next == EVENTS:
            threading.Event().wait(timeout_s)
            return None
        self._next += 1
        return _Message(self._next - 1)

    def consume(self, _number: int, _timeout_s: float) -> list[_Message]:
        return []

    def close(self) -> None:
        pass


class _StaleConsumer(_Consumer):
    """A `_Consumer` whose poll that returns the second event blocks after it has taken that event."""

    polled = threading.Event()
    goes_on = threading.Event()

    def poll(self, timeout_s: float) -> _Message | None:
        if self._next == EVENTS or self._next is None:
            threading.Event().wait(timeout_s)
            return None
        self._next += 1
        message = _Message(self._next - 1)
        if self._next == 2 and not self.polled.is_set():
            self.polled.set()
            self.goes_on.wait(WAIT_S)
        return message


class _Topics:
    def name(self, topic: str) -> str:
        return topic

    def bounds(self, _topic: str, _partitions: int) -> list[Bounds]:
        return [Bounds(0, -1)]


class _Pool:
    """A pool of one thread, and a deadline after which a call continues and its result is lost."""

    def __init__(self, thread: ThreadPoolExecutor) -> None:
        self._thread, self.given_up = thread, threading.Event()

    def __call__(self, function, *args):
        try:
            return self._thread.submit(function, *args).result(DEADLINE_S)
        except TimedOut:
            self.given_up.set()
            raise OutcomeUnknown("it goes on") from None

    def without_deadline(self, function, *args):
        return self._thread.submit(function, *args).result(WAIT_S)


def test_a_poll_beyond_the_deadline_of_the_pool_loses_no_event(monkeypatch):
    monkeypatch.setattr(tail_follower, "Consumer", _Consumer)
    cache = ChunkCache(CacheMemory(2**20))
    with ThreadPoolExecutor(1) as thread:
        pool = _Pool(thread)
        pools = StorePools()._replace(follow=pool)
        connection = KafkaConnection("127.0.0.1:1")
        followed = TailFollower(connection, _Topics(), cache, lambda _: None, pools, StoreMeasurements())
        with contextlib.closing(followed):
            followed.of("topic")
            assert _Consumer.polled.wait(WAIT_S)
            # Longer than the deadline; if there is one for this pool, readers have restarted meanwhile.
            if pool.given_up.wait(10 * DEADLINE_S):
                wait_until(lambda: followed._topics == {})
                followed.of("topic")
            _Consumer.goes_on.set()
            wait_until(lambda: followed.of("topic")[0].followed == EVENTS)
            tail = followed.of("topic")[0]
            found = cache.run(tail.id, 0, EVENTS, 2**20)
    assert [bytes(event) for chunk in found for event in chunk.data.split(b",")] == [b"%d" % n for n in range(EVENTS)]


def test_events_read_for_a_tail_that_is_replaced_meanwhile_leave_no_gap_in_the_new_one(monkeypatch):
    """The new one begins at bounds that were asked for earlier, before events that its predecessor has read."""
    monkeypatch.setattr(tail_follower, "Consumer", _StaleConsumer)
    cache = ChunkCache(CacheMemory(2**20))
    with ThreadPoolExecutor(1) as thread:
        pools = StorePools()._replace(follow=lambda function, *args: thread.submit(function, *args).result(WAIT_S))
        followed = TailFollower(
            KafkaConnection("127.0.0.1:1"), _Topics(), cache, lambda _: None, pools, StoreMeasurements()
        )
        with contextlib.closing(followed):
            followed.of("topic")
            assert _StaleConsumer.polled.wait(WAIT_S)
            followed.drop("topic")
            tail = followed.of("topic")[0]
            _StaleConsumer.goes_on.set()
            wait_until(lambda: tail.followed == EVENTS)
            found = cache.run(tail.id, 0, EVENTS, 2**20)
    assert [bytes(event) for chunk in found for event in chunk.data.split(b",")] == [b"%d" % n for n in range(EVENTS)]
