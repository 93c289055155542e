from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest

from rioni.domain.errors import Unavailable
from rioni.domain.publishing.idempotency import IdempotencyClaim
from rioni.storage.clock import SystemClock
from rioni.storage.kafka.client import Connection
from rioni.storage.kafka.events import KafkaEventStore
from rioni.storage.sql.engines import create_engine
from rioni.storage.sql.migration import upgrade
from rioni.tools.dev_cluster import jars
from rioni.tools.dev_cluster.cluster import Detours, running_cluster
from rioni.tools.dev_cluster.servers import HOST
from tests.contracts.event_store import events
from tests.contracts.stored_once import DeduplicationContract
from tests.support.tcp_proxy import TcpProxy, proxies
from tests.support.waiting import wait_until


pytestmark = pytest.mark.kafka


class TestKafkaDeduplication(DeduplicationContract):
    @pytest.fixture(params=["sqlite", "postgresql"])
    def database(self, request: pytest.FixtureRequest, tmp_path: Path, postgres_url: Callable[[], str]) -> str:
        if request.param == "sqlite":
            return f"sqlite:///{tmp_path / 'names.db'}"
        engine = create_engine(url := postgres_url())
        upgrade(engine)
        engine.dispose()
        return url


@pytest.fixture
def way() -> Iterator[tuple[TcpProxy, str]]:
    """A proxy to a broker, and the broker's own address."""
    if reason := jars.missing():
        pytest.skip(reason)
    with proxies(1) as (way,):

        def lead(ports: Sequence[Sequence[int]]) -> None:
            way.target = (HOST, ports[0][0])

        with running_cluster(postgres=False, detours=Detours([[way.port]], [{}], lead)) as cluster:
            yield way, cluster.kafka


def test_a_batch_stored_without_an_answer_before_its_topic_was_closed_is_a_duplicate(
    way: tuple[TcpProxy, str], open_store: Callable[..., KafkaEventStore]
):
    proxy, servers = way
    connections = (Connection(bootstrap_servers=each) for each in (proxy.address, servers))
    one, other = (open_store(connection=each, clock=SystemClock()) for each in connections)
    other.create_topic(topic := str(uuid4()), 1)
    one.append(topic, {0: events(1)}, claim=IdempotencyClaim("first", "digest"))
    with ThreadPoolExecutor() as pool:
        proxy.cut(there=False)
        answer = pool.submit(one.append, topic, {0: events(1)}, claim=IdempotencyClaim("second", "digest"))
        wait_until(lambda: other.bounds(topic)[0].newest == 1)
        other.close_topic(topic)
        proxy.break_off()
        proxy.heal()
        # The closed topic's rejection of the second append says nothing about the first one.
        with pytest.raises(Unavailable, match="Retry in 90 seconds"):
            answer.result()
    assert other.claimed("second") == "digest"
