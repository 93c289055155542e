import contextlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from rioni.cli.cluster.cluster import LocalCluster, missing_programs, running_cluster
from rioni.storage.embedded.signals import EmbeddedSignals
from rioni.storage.kafka.client import KafkaConnection
from rioni.storage.kafka.events import KafkaEventStore
from rioni.storage.kafka.idempotence.idempotency_index import open_index
from tests.support.clock import ManualClock
from tests.support.faulty_cluster import BROKERS, KafkaProxies
from tests.support.waiting import WAIT_S, wait_until


@pytest.fixture
def connection(kafka_cluster: LocalCluster) -> KafkaConnection:
    """A connection to the cluster, with topics of the test's own."""
    # The clock of most tests does not advance, and is in the past.
    return KafkaConnection(bootstrap_servers=kafka_cluster.kafka, topic_prefix=f"{uuid4()}-", refuses_late=False)


class SeveralBrokers(NamedTuple):
    """Three brokers of one Kafka, connected through proxies."""

    cluster: LocalCluster
    proxies: KafkaProxies

    def restore(self) -> None:
        """Let all brokers run and reach each other; blocks until every partition has all of its replicas in sync."""
        self.proxies.heal()
        for broker in self.cluster.kafkas:
            broker.resume()
            if not broker.alive:
                broker.start()
        for broker in self.cluster.kafkas:
            broker.wait()
        admin = AdminClient({"bootstrap.servers": self.cluster.kafka})
        wait_until(lambda: in_sync(admin))


def in_sync(admin: AdminClient) -> bool:
    """Whether all brokers are there, and no partition lacks a replica."""
    with contextlib.suppress(KafkaException):
        found = admin.list_topics(timeout=WAIT_S)
        partitions = [each for topic in found.topics.values() for each in topic.partitions.values()]
        return len(found.brokers) == BROKERS and all(len(each.isrs) == len(each.replicas) for each in partitions)
    return False


@pytest.fixture(scope="package")
def several_brokers(shared_by_group: ExitStack) -> SeveralBrokers:
    if reason := missing_programs():
        pytest.skip(reason)
    proxies = KafkaProxies(shared_by_group)
    cluster = running_cluster(brokers=BROKERS, postgres=False, detours=proxies.detours())
    several = SeveralBrokers(shared_by_group.enter_context(cluster), proxies)
    shared_by_group.callback(proxies.heal)
    return several


@pytest.fixture
def brokers(several_brokers: SeveralBrokers) -> Iterator[KafkaProxies]:
    """Three brokers of one Kafka; a test may cut them off from each other and from itself, suspend and kill them."""
    yield several_brokers.proxies
    several_brokers.restore()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def signals(tmp_path: Path) -> Iterator[EmbeddedSignals]:
    with closing(EmbeddedSignals(tmp_path)) as signals:
        yield signals


@pytest.fixture
def database(tmp_path: Path) -> str:
    """The URL of the database that holds the idempotency index."""
    return f"sqlite:///{tmp_path / 'names.db'}"


@pytest.fixture
def open_store(
    connection: KafkaConnection, signals: EmbeddedSignals, clock: ManualClock, database: str
) -> Iterator[Callable[..., KafkaEventStore]]:
    """Opens further stores, as other processes have them."""
    stores: list[KafkaEventStore] = []

    def open_store(**changes):
        usual = {"connection": connection, "clock": clock, "signals": signals}
        stores.append(KafkaEventStore(index=open_index(database, "storage"), **usual | changes))
        return stores[-1]

    yield open_store
    for store in stores:
        store.close()


@pytest.fixture
def store(open_store: Callable[..., KafkaEventStore]) -> KafkaEventStore:
    return open_store()


@pytest.fixture
def other_store(open_store: Callable[..., KafkaEventStore]) -> KafkaEventStore:
    return open_store()
