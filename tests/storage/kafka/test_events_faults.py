"""What the event store keeps while brokers die and come back: three of them, with three copies of every topic."""

from collections.abc import Callable, Iterator

import pytest

from rioni.domain.errors import PartlyStored, TopicClosed
from rioni.local_cluster import jars
from rioni.local_cluster.cluster import LocalCluster, running_cluster
from rioni.storage.clock import SystemClock
from rioni.storage.kafka.client import Connection
from rioni.storage.kafka.events import KafkaEventStore
from tests.contracts.event_store import PARTITIONS, TOPIC, events, read_all


pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    if reason := jars.missing():
        pytest.skip(reason)
    with running_cluster(brokers=3, postgres=False) as cluster:
        yield cluster


@pytest.fixture
def clock() -> SystemClock:
    return SystemClock()


@pytest.fixture
def connection(cluster: LocalCluster) -> Connection:
    return Connection(bootstrap_servers=cluster.kafka)


def test_what_is_acknowledged_survives_brokers_and_without_enough_of_them_nothing_is(
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
    with pytest.raises(PartlyStored) as caught:
        hasty.append(TOPIC, dict.fromkeys(range(PARTITIONS), events("unknown")))
    assert caught.value.failed == dict.fromkeys(range(PARTITIONS), "timed out")
    cluster.kafkas[1].resume()
    cluster.kafkas[0].start()
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
