"""How often producers store a batch while answers are lost or a broker has outdated metadata."""

import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from rioni.domain.errors import NotFound, PartiallyStored, TopicClosed, Unavailable
from rioni.domain.ports.event_store import StoreMeasurements
from rioni.domain.ports.host import direct
from rioni.storage.clock import SystemClock
from rioni.storage.kafka import delivery
from rioni.storage.kafka.appender import KafkaAppender
from rioni.storage.kafka.client import END, KafkaConnection, TopicPartitionRef
from rioni.storage.kafka.delivery import RENUMBERED_S
from rioni.storage.kafka.topics.topics import Topics
from tests.support.faulty_cluster import KafkaProxies
from tests.support.waiting import wait_until


pytestmark = [pytest.mark.kafka, pytest.mark.slow]

PARTITIONS = 4
TIMEOUT_S = 5.0
ENOUGH_S = 60
UNHEARD_S = 4.0
"""Longer than librdkafka waits for brokers to learn of a topic."""


@pytest.fixture
def connections(brokers: KafkaProxies) -> list[KafkaConnection]:
    """Two connections to the same topics, through separate proxies."""
    prefix = f"{uuid4()}-"
    return [
        KafkaConnection(
            bootstrap_servers=",".join(way.address for way in ways), topic_prefix=prefix, request_timeout_s=5.0
        )
        for ways in brokers.from_nodes[:2]
    ]


@contextlib.contextmanager
def opened(connection: KafkaConnection, timeout_s: float) -> Iterator[KafkaAppender]:
    with contextlib.closing(
        KafkaAppender(connection, SystemClock(), direct, lambda *_: None, timeout_s, StoreMeasurements())
    ) as appender:
        yield appender


def stored(connection: KafkaConnection, name: str) -> dict[int, list[bytes]]:
    """The events of each partition."""
    found: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}
    left = set(found)
    deadline_s = time.monotonic() + ENOUGH_S
    with contextlib.closing(Consumer(connection.consumer())) as consumer:
        consumer.assign([TopicPartition(name, number, 0) for number in found])
        while left:
            assert time.monotonic() < deadline_s
            message = consumer.poll(1)
            if message is None:
                continue
            if message.error() is None:
                found[message.partition()].append(message.value())
            elif message.error().code() == END:
                left.discard(message.partition())
    return found


def test_a_batch_unanswered_in_one_partition_is_stored_once_in_the_others(
    brokers: KafkaProxies, connections: list[KafkaConnection]
):
    topics = Topics(connections[1])
    topics.create("topic", PARTITIONS)
    name, ways = topics.name("topic"), brokers.from_nodes[0]
    handed: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}
    with opened(connections[0], TIMEOUT_S) as appender, ThreadPoolExecutor() as pool:

        def append(number: int, text: str) -> Future[object]:
            events = [f"{text}-{each}".encode() for each in range(3)]
            handed[number] += events
            return pool.submit(appender.append, "topic", {TopicPartitionRef(name, number): events}, {})

        for number in range(PARTITIONS):
            append(number, "first").result()
        for way in ways:
            way.cut(there=False)
        appends = []
        for number in range(PARTITIONS):
            appends.append(append(number, "unanswered"))
            time.sleep(TIMEOUT_S / PARTITIONS)
        # The first append times out now, while the others are still waited for.
        with pytest.raises(PartiallyStored):
            appends[0].result()
        for way in ways:
            way.heal()
            way.break_off()
        for each in appends[1:]:
            with contextlib.suppress(PartiallyStored):
                each.result()
        for number in range(PARTITIONS):
            append(number, "last").result()
    assert stored(connections[1], name) == handed


def test_an_unanswered_batch_is_stored_once_though_another_one_is_rejected(
    brokers: KafkaProxies, connections: list[KafkaConnection]
):
    topics = Topics(connections[1])
    for topic in ("open", "closed"):
        topics.create(topic, PARTITIONS)
    name, closed = topics.name("open"), topics.name("closed")
    admin = AdminClient(connections[1].client())
    leaders = {
        TopicPartitionRef(topic, number): each.leader
        for topic in (name, closed)
        for number, each in admin.list_topics(topic, ENOUGH_S).topics[topic].partitions.items()
    }
    way = brokers.from_nodes[0][leaders[TopicPartitionRef(name, 0)] - 1]
    elsewhere = next(
        place for place in leaders if place.topic == closed and leaders[place] != leaders[TopicPartitionRef(name, 0)]
    )
    with opened(connections[0], 2 * TIMEOUT_S) as appender, ThreadPoolExecutor() as pool:
        for place in leaders:
            appender.append(place.topic, {place: [b"first"]}, {})
        topics.close("closed")
        way.cut(there=False)
        unanswered = pool.submit(appender.append, "open", {TopicPartitionRef(name, 0): [b"unanswered"]}, {})
        wait_until(lambda: topics.bounds("open")[0].newest == 1)
        time.sleep(RENUMBERED_S)
        with pytest.raises(TopicClosed):
            appender.append("closed", {elsewhere: [b"refused"] * 3}, {})
        way.break_off()
        way.heal()
        with contextlib.suppress(PartiallyStored):
            unanswered.result()
        appender.append("open", {TopicPartitionRef(name, 0): [b"last"]}, {})
    assert stored(connections[1], name)[0] == [b"first", b"unanswered", b"last"]


def test_appends_wait_for_a_topic_that_a_broker_does_not_know_yet(
    brokers: KafkaProxies, connections: list[KafkaConnection]
):
    late = 0
    brokers.cut_off(late)
    for number, way in enumerate(brokers.from_nodes[0]):
        if number != late:
            way.cut()
    topics = Topics(connections[1])
    wait_until(partial(created, topics, "new"))
    with opened(connections[0], ENOUGH_S) as appender, ThreadPoolExecutor() as pool:
        appended = pool.submit(appender.append, "new", {TopicPartitionRef(topics.name("new"), 0): [b"1"]}, {})
        time.sleep(UNHEARD_S)
        assert not appended.done()
        brokers.heal()
        assert list(appended.result().values()) == [0]


class RemovingProducer(Producer):
    """Has removed the partition of its first record from its metadata, as it does when a topic is deleted."""

    removed = False

    def produce(self, *arguments: Any, **named: Any) -> None:
        if self.removed:
            super().produce(*arguments, **named)
        else:
            self.removed = True
            arguments[4](KafkaError(KafkaError._DESTROY), None)


@pytest.mark.parametrize(("existing", "error"), [("topic", PartiallyStored), ("deleted", NotFound)])
def test_a_record_of_a_removed_partition_has_an_unknown_outcome_unless_the_topic_is_deleted(
    monkeypatch: pytest.MonkeyPatch, connection: KafkaConnection, existing: str, error: type[Exception]
):
    topics = Topics(connection)
    topics.create(existing, 1)
    if existing == "deleted":
        topics.delete(existing)
    monkeypatch.setattr(delivery, "Producer", RemovingProducer)
    with opened(connection, TIMEOUT_S) as appender, pytest.raises(error):
        appender.append(existing, {TopicPartitionRef(topics.name(existing), 0): [b"1"]}, {})


def created(topics: Topics, topic: str) -> bool:
    """Whether it could be created; not while the brokers elect another controller."""
    with contextlib.suppress(Unavailable):
        topics.create(topic, 1)
        return True
    return False
