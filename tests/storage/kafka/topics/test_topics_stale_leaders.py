"""Topics whose leader is cut off from the other brokers, but still answers, with outdated metadata."""

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from uuid import uuid4

import msgspec
import pytest
from confluent_kafka.admin import AdminClient

from rioni.domain.errors import Unavailable
from rioni.domain.timelines.position import Bounds
from rioni.storage.clock import SystemClock
from rioni.storage.kafka.client import KafkaConnection
from rioni.storage.kafka.events import KafkaEventStore
from tests.contracts.event_store import events
from tests.support.faulty_cluster import BROKERS, KafkaProxies
from tests.support.waiting import wait_until


pytestmark = [pytest.mark.kafka, pytest.mark.slow]

ENOUGH_S = 120
TOPICS = 3


@pytest.fixture
def connection(brokers: KafkaProxies) -> KafkaConnection:
    servers = ",".join(way.address for way in brokers.from_nodes[0])
    return KafkaConnection(bootstrap_servers=servers, topic_prefix=f"{uuid4()}-", request_timeout_s=5.0)


@pytest.fixture
def clock() -> SystemClock:
    return SystemClock()


def test_topics_are_closed_at_the_end_that_the_current_leader_knows(
    brokers: KafkaProxies, connection: KafkaConnection, open_store: Callable[..., KafkaEventStore]
):
    def leader(topic: str, broker: int) -> int:
        """The leader according to one broker."""
        name, settings = connection.topic_prefix + topic, connection.client()
        admin = AdminClient({**settings, "bootstrap.servers": brokers.from_nodes[0][broker].address})
        return wait_until(lambda: admin.list_topics(name, ENOUGH_S).topics[name].partitions)[0].leader - 1

    store = open_store()
    topics: list[str] = []
    stale = -1
    while len(topics) < TOPICS:
        store.create_topic(topic := str(uuid4()), 1)
        stale = leader(topic, 0) if stale < 0 else stale
        if leader(topic, 0) == stale:
            topics.append(topic)
            store.append(topic, {0: events(1)})
    brokers.cut_off(stale)
    others = [number for number in range(BROKERS) if number != stale]
    wait_until(lambda: all(leader(topic, other) in others for topic in topics for other in others))
    # A producer that asked the stale leader first might go on to ask it.
    servers = ",".join(brokers.from_nodes[0][other].address for other in others)
    reached = msgspec.structs.replace(connection, bootstrap_servers=servers)
    writer = open_store(connection=reached, append_timeout_s=ENOUGH_S)
    for topic in topics:
        assert writer.append(topic, {0: events(2)}) == {0: 1}
        # The request goes to any of the brokers first, even to the one that is cut off.
        assert wait_until(partial(closed, open_store(), topic)) == [Bounds(0, 1)]


def closed(store: KafkaEventStore, topic: str) -> Sequence[Bounds]:
    """The final contents of the topic; nothing if the broker that gets the request can't reach the others."""
    with contextlib.suppress(Unavailable):
        return store.close_topic(topic)
    return []
