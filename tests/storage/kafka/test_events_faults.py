"""The event store while brokers die and come back: three brokers, with three replicas of every topic."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from uuid import uuid4

import msgspec
import pytest
from confluent_kafka.admin import AdminClient, PartitionMetadata

from rioni.cli.cluster.cluster import LocalCluster
from rioni.domain.errors import PartiallyStored, TopicClosed
from rioni.domain.timelines.position import Bounds
from rioni.storage.clock import SystemClock
from rioni.storage.kafka.client import KafkaConnection
from rioni.storage.kafka.events import KafkaEventStore
from tests.contracts.event_store import PARTITIONS, TOPIC, events, read_all
from tests.storage.kafka.conftest import SeveralBrokers
from tests.support.faulty_cluster import KafkaProxies
from tests.support.waiting import WAIT_S, wait_until


pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture
def cluster(several_brokers: SeveralBrokers, brokers: KafkaProxies) -> LocalCluster:
    """Brokers that a test may kill and suspend."""
    return several_brokers.cluster


@pytest.fixture
def clock() -> SystemClock:
    return SystemClock()


@pytest.fixture
def connection(cluster: LocalCluster) -> KafkaConnection:
    return KafkaConnection(bootstrap_servers=cluster.kafka, topic_prefix=f"{uuid4()}-")


CLOSING_S = 1.0
"""The longest time for closing the topic while one broker is suspended and not yet considered dead."""


def partition_of(connection: KafkaConnection) -> PartitionMetadata:
    """The leader of the topic's only partition, and the other replicas."""
    name = connection.topic_prefix + TOPIC
    return AdminClient(connection.client()).list_topics(name, timeout=WAIT_S).topics[name].partitions[0]


def test_acknowledged_events_survive_broker_failures_and_too_few_brokers_acknowledge_nothing(
    cluster: LocalCluster, open_store: Callable[..., KafkaEventStore]
):
    store, hasty = open_store(), open_store(append_timeout_s=2.0)
    store.create_topic(TOPIC, PARTITIONS)
    hasty.append(TOPIC, dict.fromkeys(range(PARTITIONS), events(0)))
    cluster.kafkas[0].kill()
    acknowledged = [events(0)[0]]
    for number in range(1, 20):
        store.append(TOPIC, dict.fromkeys(range(PARTITIONS), events(number)))
        acknowledged += events(number)
    cluster.kafkas[1].pause()
    try:
        with pytest.raises(PartiallyStored) as caught:
            hasty.append(TOPIC, dict.fromkeys(range(PARTITIONS), events("unknown")))
    finally:
        cluster.kafkas[1].resume()
        cluster.kafkas[0].start()
    assert caught.value.failed == dict.fromkeys(range(PARTITIONS), "timed out")
    cluster.kafkas[0].wait()
    store.append(TOPIC, dict.fromkeys(range(PARTITIONS), events("last")))
    bounds = store.close_topic(TOPIC)
    with pytest.raises(TopicClosed):
        hasty.append(TOPIC, {0: events("late")})
    for reader in (store, open_store()):
        for partition in range(PARTITIONS):
            found = read_all(reader, TOPIC, partition)
            assert len(found) == bounds[partition].newest + 1
            assert [each for each in found if each not in events("unknown")] == [*acknowledged, *events("last")]


def test_closing_a_topic_waits_for_all_brokers_that_may_lead_it(
    cluster: LocalCluster, connection: KafkaConnection, open_store: Callable[..., KafkaEventStore]
):
    store, admin = open_store(), AdminClient(connection.client())
    store.create_topic(TOPIC, 1)
    store.append(TOPIC, {0: events(1)})
    partition = partition_of(connection)
    number = next(each for each in partition.replicas if each != partition.leader)
    with ThreadPoolExecutor() as pool:
        cluster.kafkas[number - 1].pause()
        try:
            closing = pool.submit(store.close_topic, TOPIC)
            wait([closing], timeout=CLOSING_S)
            # Closing stops waiting only for a broker that was suspended for so long that it is considered dead.
            assert not closing.done() or number not in admin.list_topics(timeout=WAIT_S).brokers
        finally:
            cluster.kafkas[number - 1].resume()
        assert closing.result() == [Bounds(0, 0)]


def test_a_broker_that_does_not_answer_is_replaced_by_the_new_leader(
    cluster: LocalCluster, connection: KafkaConnection, open_store: Callable[..., KafkaEventStore]
):
    store, other_store = open_store(), open_store()
    store.create_topic(TOPIC, 1)
    store.append(TOPIC, {0: events(1)})
    assert read_all(other_store, TOPIC, 0) == events(1)
    leader = partition_of(connection).leader
    cluster.kafkas[leader - 1].pause()
    try:
        assert store.append(TOPIC, {0: events(2)}) == {0: 1}
        begun_s = time.monotonic()
        wait_until(lambda: other_store.newest(TOPIC) == [1])
        assert time.monotonic() - begun_s < 2 * connection.request_timeout_s
        assert read_all(other_store, TOPIC, 0) == events(1, 2)
    finally:
        cluster.kafkas[leader - 1].resume()


def test_a_partition_whose_broker_does_not_answer_delays_no_other_partition(
    cluster: LocalCluster, connection: KafkaConnection, open_store: Callable[..., KafkaEventStore]
):
    # With one replica each partition depends on its own broker alone.
    single = msgspec.structs.replace(connection, replication_factor=1)
    store = open_store(connection=single, append_timeout_s=20.0)
    store.create_topic(TOPIC, 3)
    name, admin = single.topic_prefix + TOPIC, AdminClient(single.client())
    store.append(TOPIC, dict.fromkeys(range(3), events(0)))
    leaders = [
        each.leader for _, each in sorted(admin.list_topics(name, timeout=WAIT_S).topics[name].partitions.items())
    ]
    (other,) = [number for number in (1, 2) if leaders[number] != leaders[0]][:1]
    with ThreadPoolExecutor() as pool:
        cluster.kafkas[leaders[0] - 1].pause()
        try:
            hanging = [pool.submit(store.append, TOPIC, {0: events(number)}) for number in range(1, 4)]
            both = pool.submit(store.append, TOPIC, {0: events(4), other: events("both")})
            for number in range(20):
                store.append(TOPIC, {other: events(number)})
            assert not any(each.done() for each in (*hanging, both))
        finally:
            cluster.kafkas[leaders[0] - 1].resume()
        assert {each.result()[0] for each in hanging} | {both.result()[0]} == {1, 2, 3, 4}
    assert sorted(read_all(store, TOPIC, 0)) == sorted(events(0, 1, 2, 3, 4))
    assert sorted(read_all(store, TOPIC, other)) == sorted(events(0, "both", *range(20)))
