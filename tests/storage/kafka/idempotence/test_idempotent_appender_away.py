"""Batches with keys while Kafka does not answer: one outcome stays open, and is known as soon as Kafka answers."""

import math
import threading
from collections.abc import Callable, Iterator

import pytest

from rioni.cli.cluster.cluster import LocalCluster
from rioni.cli.cluster.servers import Server
from rioni.domain.errors import Overloaded, PartiallyStored, Unavailable
from rioni.domain.publishing.headers import IdempotencyClaim
from rioni.storage.kafka.client import KafkaConnection
from rioni.storage.kafka.events import KafkaEventStore
from rioni.storage.kafka.idempotence import idempotent_appender
from rioni.storage.kafka.idempotence.idempotency_index import IdempotencyIndex, open_index
from rioni.storage.kafka.idempotence.idempotent_batch import SETTLED_MS
from tests.contracts.event_store import TOPIC, events, read_all
from tests.support.clock import ManualClock
from tests.support.waiting import wait_until


pytestmark = pytest.mark.kafka

TIMEOUT_S = 4.0
"""More than the time after which no further attempt begins."""


@pytest.fixture
def kafka(other_kafka_cluster: LocalCluster) -> Iterator[Server]:
    """A broker that a test may suspend and kill; it has no replicas."""
    (broker,) = other_kafka_cluster.kafkas
    yield broker
    broker.resume()
    if not broker.alive:
        broker.start()
    broker.wait()


@pytest.fixture
def clock() -> ManualClock:
    """A clock that does not advance by itself: no outcome becomes known because time has passed."""
    return ManualClock()


@pytest.fixture
def connection(other_kafka_cluster: LocalCluster, connection: KafkaConnection) -> KafkaConnection:
    return KafkaConnection(
        bootstrap_servers=other_kafka_cluster.kafka, topic_prefix=connection.topic_prefix, refuses_late=False
    )


@pytest.fixture
def index(database: str) -> IdempotencyIndex:
    return open_index(database, "storage")


def claim(number: int) -> IdempotencyClaim:
    return IdempotencyClaim(f"key {number}", f"digest {number}")


def append(store: KafkaEventStore, number: int) -> bool:
    """Append an event under its own key; returns whether it is known to be stored."""
    try:
        store.append(TOPIC, {0: events(number)}, claim=claim(number))
    except (Unavailable, PartiallyStored):
        return False
    return True


@pytest.mark.parametrize(
    ("fault", "slow_s"),
    # However late an attempt began, none begins after its caller got the answer that the outcome is unknown.
    [("suspended", math.inf), ("killed", idempotent_appender.SLOW_S)],
    ids=["suspended", "killed"],
)
def test_only_what_kafka_may_have_stored_waits_and_is_known_as_soon_as_kafka_answers(
    open_store: Callable[..., KafkaEventStore],
    kafka: Server,
    index: IdempotencyIndex,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
    slow_s: float,
):
    monkeypatch.setattr(idempotent_appender, "SLOW_S", slow_s)
    store, other = open_store(append_timeout_s=TIMEOUT_S), open_store(append_timeout_s=TIMEOUT_S)
    store.create_topic(TOPIC, 1)
    wait_until(lambda: append(store, 0))
    kafka.pause() if fault == "suspended" else kafka.kill()
    with pytest.raises(PartiallyStored):
        store.append(TOPIC, {0: events(1)}, claim=claim(1))
    for number in (2, 3):
        with pytest.raises(Overloaded, match=r"does not answer for partition 0 .* nothing of this batch") as caught:
            store.append(TOPIC, {0: events(number)}, claim=claim(number))
        assert caught.value.retry_after_s == 1
    assert [attempt.counts for attempt in index.unfinished(2**53)] == [{0: 1}]
    if fault == "suspended":
        kafka.resume()
    else:
        kafka.start()
    # Other processes find the batch in Kafka, without a word of the one that sent it.
    wait_until(lambda: append(other, 1))
    # An earlier attempt might have stored a record that Kafka refuses while it starts: only time decides.
    for number in (2, 3):
        wait_until(lambda number=number: append(store, number) or clock.advance(SETTLED_MS + 1))
    assert all(append(each, number) for each in (store, other) for number in range(4))
    assert read_all(other, TOPIC, 0) == events(0, 1, 2, 3)
    assert not list(index.unfinished(2**53))


def test_a_late_answer_settles_a_batch_though_nobody_asks(
    open_store: Callable[..., KafkaEventStore], kafka: Server, index: IdempotencyIndex
):
    store = open_store(append_timeout_s=1.0)
    store.create_topic(TOPIC, 1)
    wait_until(lambda: append(store, 0))
    kafka.pause()
    assert not append(store, 1)
    assert [*index.unfinished(2**53)]
    kafka.resume()
    wait_until(lambda: not [*index.unfinished(2**53)])
    assert store.claimed("key 1") == "digest 1"
    assert read_all(store, TOPIC, 0) == events(0, 1)


def test_a_closed_store_waits_for_no_answer(open_store: Callable[..., KafkaEventStore], kafka: Server):
    store = open_store(append_timeout_s=1.0)
    store.create_topic(TOPIC, 1)
    wait_until(lambda: append(store, 0))
    before = threading.active_count()
    kafka.pause()
    assert not append(store, 1)
    store.close()
    wait_until(lambda: threading.active_count() <= before)
