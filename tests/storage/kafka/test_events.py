import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import ListOffsetsResultInfo

from rioni.cli.cluster.servers import free_ports
from rioni.domain.access.authorization import Attribute
from rioni.domain.errors import NotFound, PartiallyStored, TooLarge, Unavailable
from rioni.domain.ports.host import StorePools
from rioni.domain.publishing.headers import COMPACTED, Headers, IdempotencyClaim
from rioni.domain.timelines.position import Bounds
from rioni.storage.clock import SystemClock
from rioni.storage.event_stores import CacheMemory
from rioni.storage.kafka import tail_follower
from rioni.storage.kafka.client import RECORD_BYTES_MAX, KafkaConnection
from rioni.storage.kafka.events import KafkaEventStore
from rioni.storage.kafka.idempotence.idempotency_index import open_index
from rioni.storage.kafka.records import Record, record_of
from rioni.storage.kafka.topics import topics
from rioni.storage.kafka.topics.admin import Admin
from tests.contracts.event_store import TOPIC, EventStoreContract, events, read_all, read_headers
from tests.support.waiting import WAIT_S, wait_until


pytestmark = pytest.mark.kafka

AHEAD_MS = 3_600_000
"""Kafka rejects timestamps that are so far ahead of its own clock."""


LATE_S = 0.2


@pytest.fixture
def impatient(monkeypatch):
    """Unknown topics are not waited for."""
    monkeypatch.setattr(topics, "KNOWN_WITHIN_S", 0.0)


@pytest.mark.usefixtures("impatient")
class TestKafkaEventStore(EventStoreContract):
    @pytest.fixture
    def silent_store(self, open_store: Callable[..., KafkaEventStore]) -> Iterator[KafkaEventStore]:
        answers = threading.Event()

        def run_in_pool(function, /, *args, **kwargs):
            if function.__name__ == "_write":
                answers.wait()
            return function(*args, **kwargs)

        yield open_store(pools=StorePools.all(run_in_pool), append_timeout_s=0.5)
        answers.set()


def test_appends_of_another_process_wake_readers(store, other_store, signals):
    store.create_topic(TOPIC, 1)
    assert store.newest(TOPIC) == [-1]
    watch = signals.watch([f"topic:{TOPIC}"])
    for count in range(3):
        # It sends no notification to this node, like another node.
        other_store._notify = lambda _topic: None
        other_store.append(TOPIC, {0: events(count)})
        while store.newest(TOPIC) != [count]:
            assert watch.wait(WAIT_S)
        assert read_all(store, TOPIC, 0) == events(*range(count + 1))
    watch.close()


def test_topics_and_partitions_that_the_asked_broker_does_not_know_yet_are_found(store, other_store, monkeypatch):
    monkeypatch.setattr(topics, "KNOWN_WITHIN_S", WAIT_S)
    calls = (
        lambda topic: store.append(topic, {0: events(1)}),
        store.newest,
        store.bounds,
        lambda topic: store.offset_at_time(topic, 0, 0),
        lambda topic: store.extend_topic(topic, 1),
    )
    with ThreadPoolExecutor() as pool:
        answers = [pool.submit(call, str(number)) for number, call in enumerate(calls)]
        assert not wait(answers, LATE_S).done
        for number in range(len(calls)):
            other_store.create_topic(str(number), 1)
        assert [answer.result() for answer in answers] == [{0: 0}, [-1], [(0, -1)], 0, None]
        answer = pool.submit(store.append, "0", {1: events(1)})
        assert not wait([answer], LATE_S).done
        other_store.extend_topic("0", 2)
        assert answer.result() == {1: 0}


def test_a_topic_that_kafka_does_not_answer_for_delays_no_other_topic(store, monkeypatch):
    store.create_topic(TOPIC, 1)
    store.create_topic("silent", 1)
    bounds, asked, answers = store._topics.bounds, [], threading.Event()

    def ask(topic: str, partitions: int) -> Sequence[Bounds]:
        if topic == "silent":
            asked.append(topic)
            assert answers.wait(WAIT_S)
        return bounds(topic, partitions)

    monkeypatch.setattr(store._topics, "bounds", ask)
    with ThreadPoolExecutor() as pool:
        silent = [pool.submit(store.newest, "silent") for _ in range(3)]
        wait_until(lambda: asked)
        assert pool.submit(store.newest, TOPIC).result(WAIT_S) == [-1]
        store.append(TOPIC, {0: events(1)})
        assert store.newest(TOPIC) == [0]
        answers.set()
        assert [each.result(WAIT_S) for each in silent] == [[-1]] * 3
    # Concurrent calls share one request.
    assert asked == ["silent"]


def test_events_that_could_not_be_cached_are_read_later_and_not_skipped(store, other_store, monkeypatch):
    failed = threading.Event()

    def fail_once(message: Message) -> Record:
        if not failed.is_set():
            failed.set()
            raise MemoryError
        return record_of(message)

    monkeypatch.setattr(tail_follower, "record_of", fail_once)
    store.create_topic(TOPIC, 1)
    assert store.newest(TOPIC) == [-1]
    other_store.append(TOPIC, {0: events(1)})
    assert failed.wait(WAIT_S)
    other_store.append(TOPIC, {0: events(2)})
    wait_until(lambda: store.newest(TOPIC) == [1])
    assert read_all(store, TOPIC, 0) == events(1, 2)


def test_an_offset_that_the_client_does_not_know_is_queried_again(store, monkeypatch):
    store.create_topic(TOPIC, 1)
    store.append(TOPIC, {0: events(1)})
    admin, asked = store._topics._admin, []

    def ask(name: str, *arguments: Any, **options: float) -> Any:
        asked.append(name)
        if len(asked) > 1:
            return Admin.request(admin, name, *arguments, **options)
        ((place,),) = arguments
        return {place: ListOffsetsResultInfo(OFFSET_INVALID, -1, -1)}

    monkeypatch.setattr(admin, "request", ask)
    assert store.bounds(TOPIC) == [Bounds(0, 0)]
    assert len(asked) == 3


def test_a_record_with_a_binary_key_stops_no_reader(store, connection):
    store.create_topic(TOPIC, 1)
    producer = Producer(connection.client())
    producer.produce(connection.topic_prefix + TOPIC, b"{}", key=b"\xff", partition=0)
    assert producer.flush(WAIT_S) == 0
    assert read_all(store, TOPIC, 0) == [b"{}"]


def test_other_consumers_find_key_value_and_headers_by_their_names(store, connection):
    """Reference publishing#kafka-records."""
    store.create_topic(TOPIC, 1)
    given = [
        (b'{"a":1}', Headers()),
        (b'{"a":2}', Headers(key="k", owner=Attribute("team", "red"), subscription_id="id", avro=b"\x02")),
        (b"", Headers(key="k")),
    ]
    store.append(TOPIC, {0: [event for event, _ in given]}, headers={0: [headers for _, headers in given]})
    settings = {"bootstrap.servers": connection.bootstrap_servers, "group.id": "other", "enable.auto.commit": False}
    with contextlib.closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(connection.topic_prefix + TOPIC, 0, 0)])
        records = consumer.consume(len(given), WAIT_S)
    named = {
        "X-AuthParam-Name": b"team",
        "X-AuthParam-Value": b"red",
        "X-Consumer-Subscription-Id": b"id",
        "X-Avro-Datum": b"\x02",
    }
    assert [(each.key(), each.value() or b"", dict(each.headers() or ())) for each in records] == [
        (None, b'{"a":1}', {}),
        (b"k", b'{"a":2}', named),
        (b"k", b"", {}),
    ]


def test_lagging_readers_get_events_that_are_not_in_memory(store, open_store):
    store.create_topic(TOPIC, 1)
    for number in range(20):
        store.append(TOPIC, {0: events(*(f"{number}-{index:0100}" for index in range(200)))})
    expected = [event for n in range(20) for event in events(*(f"{n}-{index:0100}" for index in range(200)))]
    late = open_store(cache_memory=CacheMemory(0))
    for first in (0, 1, 2_345, 3_999):
        assert read_all(late, TOPIC, 0, first, 10_000) == expected[first:]


def append_until_refused(store):
    """Append events without a key until Kafka compacts the topic, and so rejects them."""
    with contextlib.suppress(Unavailable):
        while True:
            store.append(TOPIC, {0: events(1)})
    with pytest.raises(Unavailable, match="validate record"):
        store.append(TOPIC, {0: events(1)})


def test_a_compacted_topic_accepts_only_events_with_a_key(store, clock):
    store.create_topic(TOPIC, 1)
    assert store.append(TOPIC, {0: events(0)}) == {0: 0}
    assert store.compact(TOPIC, clock.now_ms() - 1_000) == 0

    append_until_refused(store)
    end = store.newest(TOPIC)[0] + 1
    assert store.append(TOPIC, {0: [*events(1), b""]}, headers={0: [Headers(key="a")] * 2}) == {0: end}
    assert read_all(store, TOPIC, 0)[end:] == [*events(1), b""]


def test_topics_with_events_that_may_have_no_key_are_not_compacted_by_kafka(store, clock):
    store.create_topic(TOPIC, 2)
    store.append(TOPIC, {1: events(0)})
    keyed_since_ms = clock.now_ms() + 1
    clock.advance(1)
    store.append(TOPIC, {1: events(1)}, headers={1: [Headers(key="a")]})
    for _ in range(2):
        store.compact(TOPIC, clock.now_ms() - 1_000, keyed_since_ms)
    # A compacted topic would reject it.
    assert store.append(TOPIC, {0: events(2)}) == {0: 0}
    assert store.delete_before(TOPIC, keyed_since_ms) == 1
    clock.advance(1)
    assert store.delete_before(TOPIC, clock.now_ms()) == 2
    store.append(TOPIC, {1: events(3)}, headers={1: [Headers(key="a")]})
    store.compact(TOPIC, clock.now_ms() - 1_000, keyed_since_ms)
    append_until_refused(store)


def test_old_events_of_a_compacted_topic_expire(store, clock):
    store.create_topic(TOPIC, 1)
    keys = [Headers(key=key) for key in "ab"]
    store.append(TOPIC, {0: events(1, 2)}, headers={0: keys})
    store.compact(TOPIC, clock.now_ms() - 60_000)
    clock.advance(1_000)
    store.append(TOPIC, {0: events(3)}, headers={0: keys[:1]})
    assert store.delete_before(TOPIC, clock.now_ms()) == 2
    assert store.bounds(TOPIC) == [Bounds(2, 2)]
    assert read_all(store, TOPIC, 0) == events(3)


def test_events_compacted_by_kafka_are_read_as_removed_events(store, clock, open_store):
    store.create_topic(TOPIC, 1)
    store.compact(TOPIC, clock.now_ms() - 1)
    for number, key in enumerate("aba"):
        store.append(TOPIC, {0: events(number)}, headers={0: [Headers(key=key)]})
    late = open_store(cache_memory=CacheMemory(0))
    while (found := read_all(late, TOPIC, 0))[:3] == events(0, 1, 2):
        # Further records make Kafka start a new segment, and compact the previous one.
        clock.advance(1_000)
        store.append(TOPIC, {0: events("later")}, headers={0: [Headers(key="c")]})
        threading.Event().wait(0.05)
    assert found[:3] == [b"", *events(1, 2)]
    assert store.bounds(TOPIC)[0] == Bounds(0, len(found) - 1)
    assert read_headers(late, TOPIC, 0)[0] == COMPACTED


def test_changes_of_a_topic_by_another_process_are_noticed(store, other_store):
    store.create_topic(TOPIC, 1)
    store.append(TOPIC, {0: events(1)})
    assert store.newest(TOPIC) == [0]
    other_store.extend_topic(TOPIC, 2)
    assert store.append(TOPIC, {1: events(2)}) == {1: 0}
    assert read_all(store, TOPIC, 1) == events(2)
    other_store.delete_topic(TOPIC)
    with pytest.raises(NotFound):
        store.bounds(TOPIC)


def test_an_event_that_is_too_large_for_kafka_is_rejected(store):
    store.create_topic(TOPIC, 1)
    with pytest.raises(TooLarge):
        store.append(TOPIC, {0: [b"x" * (RECORD_BYTES_MAX + 1)]})
    largest = b"x" * RECORD_BYTES_MAX
    store.append(TOPIC, {0: [largest]})
    assert read_all(store, TOPIC, 0) == [largest]


def test_appends_continue_after_a_clock_that_was_ahead_is_corrected(store, clock):
    store.create_topic(TOPIC, 1)
    clock.advance(SystemClock().now_ms() - clock.now_ms())
    store.append(TOPIC, {0: events(1)})
    clock.advance(2 * AHEAD_MS)
    with pytest.raises(PartiallyStored):
        store.append(TOPIC, {0: events(2)})
    clock.advance(-2 * AHEAD_MS)
    assert store.append(TOPIC, {0: events(3)}) == {0: 1}


def test_without_an_answering_broker_all_calls_are_unavailable(signals, clock, database):
    (port,) = free_ports(1)
    connection = KafkaConnection(bootstrap_servers=f"127.0.0.1:{port}", request_timeout_s=0.2)
    nowhere = KafkaEventStore(connection, open_index(database, "storage"), clock=clock, signals=signals)
    for call in (
        lambda: nowhere.create_topic(TOPIC, 1),
        lambda: nowhere.append(TOPIC, {0: events(1)}),
        lambda: nowhere.append(TOPIC, {0: events(1)}, claim=IdempotencyClaim("name", "digest")),
        lambda: nowhere.read(TOPIC, 0, 0, 1),
        lambda: nowhere.delete_topic(TOPIC),
    ):
        with pytest.raises(Unavailable, match="Kafka does not answer"):
            call()
    nowhere.close()
