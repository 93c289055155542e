from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest

from rioni.domain.errors import Unavailable
from rioni.domain.publishing.idempotency import IdempotencyClaim
from rioni.storage.clock import SystemClock
from rioni.storage.kafka.client import Connection
from rioni.storage.kafka.events import KafkaEventStore
from tests.contracts.event_store import events
from tests.contracts.stored_once import DeduplicationContract
from tests.support.faulty_cluster import KafkaProxies
from tests.support.waiting import wait_until


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
    one, other = (open_store(connection=Connection(bootstrap_servers=each), clock=SystemClock()) for each in addresses)
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
        with pytest.raises(Unavailable, match="Retry in 90 seconds"):
            answer.result()
    assert other.claimed("second") == "digest"
