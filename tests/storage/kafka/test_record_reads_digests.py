"""Digests of records as they are in Kafka, compared with the documented form computed by other code."""

import struct
from hashlib import sha256

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from rioni.domain.access.authorization import Attribute
from rioni.domain.errors import Unavailable
from rioni.domain.publishing.headers import Headers
from rioni.domain.system.anchors import ChainHead
from rioni.domain.timelines.position import POSITION_MAX
from tests.contracts.event_store import TOPIC, events
from tests.support.waiting import WAIT_S


pytestmark = pytest.mark.kafka

HEADERS = Headers(key="k", owner=Attribute("team", "ä"), subscription_id="s")
FOREIGN = [("x", b""), ("x", None), ("", b"y")]
COUNT = 1_203


@pytest.fixture
def name(store, connection):
    """The full name of a topic with 1,203 records in partition 0, among them all kinds of keys, values and headers."""
    store.create_topic(TOPIC, 2)
    store.append(TOPIC, {0: events(*range(1_199))})
    store.append(TOPIC, {0: [*events("a"), b""]}, headers={0: [HEADERS] * 2})
    producer = Producer(connection.client())
    for key, value in ((None, None), (b"", b"")):
        producer.produce(connection.topic_prefix + TOPIC, value, key, 0, headers=FOREIGN)
    producer.flush()
    return connection.topic_prefix + TOPIC


def expected(connection, name, first, stop):
    """The digest of a block, from Kafka's records and the description alone."""
    consumer, digest, found = Consumer(connection.consumer()), sha256(), 0
    consumer.assign([TopicPartition(name, 0, first)])
    while found < stop - first:
        message = consumer.poll(20)
        if message.offset() >= stop or message.error():
            continue
        headers = message.headers() or []
        digest.update(struct.pack(">qqi", message.offset(), message.timestamp()[1], len(headers)))
        texts = [message.key(), message.value()]
        for header, text in headers:
            texts += [header.encode(), text]
        for text in texts:
            digest.update(struct.pack(">i", -1) if text is None else struct.pack(">i", len(text)) + text)
        found += 1
    consumer.close()
    return digest.hexdigest()


def test_blocks_have_the_digest_that_is_described_wherever_they_end(store, connection, name):
    whole = store.digest(TOPIC, 0, 0, COUNT, POSITION_MAX)
    assert (whole.partition, whole.first, whole.next, whole.records) == (0, 0, COUNT, COUNT)
    assert whole.digest == expected(connection, name, 0, COUNT)
    position, blocks = 0, []
    for length in (700, 1, 400, 102):
        blocks.append(store.digest(TOPIC, 0, position, position + length, POSITION_MAX))
        position += length
    assert [(each.first, each.next, each.records) for each in blocks] == [
        (0, 700, 700),
        (700, 701, 1),
        (701, 1_101, 400),
        (1_101, COUNT, 102),
    ]
    assert blocks[3].digest == expected(connection, name, 1_101, COUNT)
    # Out of order, with the consumer of the others.
    assert store.digest(TOPIC, 0, 700, 701, POSITION_MAX) == blocks[1]
    assert store.digest(TOPIC, 0, 0, 700, POSITION_MAX) == blocks[0]


def test_a_block_ends_soon_after_it_has_its_size_and_the_next_one_goes_on_there(store, name):
    first = store.digest(TOPIC, 0, 0, COUNT, 1)
    assert 0 < first.next == first.records <= 500
    second = store.digest(TOPIC, 0, first.next, COUNT, POSITION_MAX)
    assert (second.first, second.next, second.records) == (first.next, COUNT, COUNT - first.records)
    assert store.digest(TOPIC, 0, 0, first.next, POSITION_MAX) == first


def test_what_has_expired_has_no_digest_and_is_behind_the_range(store, connection, name):
    removed = TopicPartition(name, 0, 3)
    admin = AdminClient(connection.client())
    admin.delete_records([removed])[removed].result(WAIT_S)
    assert store.digest(TOPIC, 0, 0, COUNT, POSITION_MAX) is None
    assert store.digest(TOPIC, 0, 3, COUNT, POSITION_MAX).records == COUNT - 3
    expected = [ChainHead(TOPIC, 0, 3, COUNT, ""), ChainHead(TOPIC, 1, 0, 0, "")]
    assert store.ranges([TOPIC, "another"]) == expected


def test_a_kafka_that_does_not_answer_is_unavailable(open_store, connection):
    store = open_store(connection=type(connection)(bootstrap_servers="127.0.0.1:1", request_timeout_s=0.5))
    for ask in (lambda: store.digest(TOPIC, 0, 0, 1, 1), lambda: store.ranges([TOPIC])):
        with pytest.raises(Unavailable):
            ask()
