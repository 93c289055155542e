from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient

from rioni.domain.errors import Unavailable
from rioni.domain.publishing.headers import IdempotencyClaim
from rioni.storage.clock import SystemClock
from rioni.storage.kafka.client import KafkaConnection
from rioni.storage.kafka.events import KafkaEventStore
from tests.contracts.event_store import TOPIC, events, read_all
from tests.contracts.stored_once import DeduplicationContract
from tests.storage.kafka.conftest import SeveralBrokers
from tests.support.faulty_cluster import KafkaProxies
from tests.support.waiting import WAIT_S, wait_until


pytestmark = pytest.mark.kafka


class TestKafkaDeduplication(DeduplicationContract):
    @pytest.fixture(params=["sqlite", "postgresql"])
    def database(self, request: pytest.FixtureRequest, tmp_path: Path, postgres_url: Callable[..., str]) -> str:
        if request.param == "sqlite":
            return f"sqlite:///{tmp_path / 'names.db'}"
        return postgres_url(migrated=True)


def test_a_batch_stored_without_an_answer_before_its_topic_was_closed_is_a_duplicate(
    brokers: KafkaProxies, open_store: Callable[..., KafkaEventStore]
):
    addresses = [",".join(proxy.address for proxy in proxies) for proxies in brokers.from_nodes[:2]]
    one, other = (
        open_store(connection=KafkaConnection(bootstrap_servers=each), clock=SystemClock()) for each in addresses
    )
    other.create_topic(topic := str(uuid4()), 1)
    one.append(topic, {0: events(1)}, claim=IdempotencyClaim("first", "digest"))
    with ThreadPoolExecutor() as pool:
        for proxy in brokers.from_nodes[0]:
            proxy.cut(there=False)
        answer = pool.submit(one.append, topic, {0: events(1)}, claim=IdempotencyClaim("second", "digest"))
        wait_until(lambda: other.bounds(topic)[0].newest == 1)
        other.close_topic(topic)
        for proxy in brokers.from_nodes[0]:
            proxy.break_off()
            proxy.heal()
        # The closed topic's rejection of the second append says nothing about the first one.
        with pytest.raises(Unavailable, match="90 seconds after that attempt at the latest"):
            answer.result()
    assert other.claimed("second") == "digest"


def test_a_batch_that_waits_for_a_partition_delays_no_other_partition(
    several_brokers: SeveralBrokers, brokers: KafkaProxies, open_store: Callable[..., KafkaEventStore]
):
    # With one replica each partition depends on its own broker alone.
    single = KafkaConnection(
        bootstrap_servers=several_brokers.cluster.kafka, topic_prefix="once-", replication_factor=1
    )
    store = open_store(connection=single, append_timeout_s=60.0, clock=SystemClock())
    store.create_topic(TOPIC, 3)
    found = AdminClient(single.client()).list_topics(f"once-{TOPIC}", timeout=WAIT_S).topics[f"once-{TOPIC}"].partitions
    other = next(number for number in (1, 2) if found[number].leader != found[0].leader)
    broker = several_brokers.cluster.kafkas[found[0].leader - 1]
    first = partial(store.append, TOPIC, {0: events(0)}, claim=IdempotencyClaim("key", "digest"))
    for number in (0, other):
        store.append(TOPIC, {number: events("before")}, claim=IdempotencyClaim(f"before {number}", "digest"))
    with ThreadPoolExecutor(1) as pool:
        broker.pause()
        try:
            hanging = pool.submit(first)
            for number in range(20):
                store.append(TOPIC, {other: events(number)}, claim=IdempotencyClaim(f"{number}", "digest"))
            assert not hanging.done()
        finally:
            broker.resume()
        assert hanging.result(WAIT_S) == {0: 1}
    assert read_all(store, TOPIC, 0) == events("before", 0)
    assert read_all(store, TOPIC, other) == events("before", *range(20))
