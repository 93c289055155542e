from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from uuid import uuid4

import pytest

from rioni.storage.embedded.signals import EmbeddedSignals
from rioni.storage.kafka.client import Connection
from rioni.storage.kafka.events import KafkaEventStore
from rioni.storage.kafka.idempotence.idempotency_index import open_index
from rioni.tools.dev_cluster import jars
from rioni.tools.dev_cluster.cluster import LocalCluster, running_cluster
from tests.support.clock import ManualClock
from tests.support.faulty_cluster import BROKERS, KafkaProxies


@pytest.fixture
def connection(kafka_cluster: LocalCluster) -> Connection:
    """A connection to the cluster, with topics of the test's own."""
    # The clock of most tests does not advance, and is in the past.
    return Connection(bootstrap_servers=kafka_cluster.kafka, topic_prefix=f"{uuid4()}-", refuses_late=False)


@pytest.fixture(scope="session")
def several_brokers(shared_by_group: ExitStack) -> KafkaProxies:
    if reason := jars.missing():
        pytest.skip(reason)
    brokers = KafkaProxies(shared_by_group)
    shared_by_group.enter_context(running_cluster(brokers=BROKERS, postgres=False, detours=brokers.detours()))
    shared_by_group.callback(brokers.heal)
    return brokers


@pytest.fixture
def brokers(several_brokers: KafkaProxies) -> Iterator[KafkaProxies]:
    """Three brokers of one Kafka; a test may cut them off from each other and from itself."""
    yield several_brokers
    several_brokers.heal()


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
    connection: Connection, signals: EmbeddedSignals, clock: ManualClock, database: str
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
