"""While Kafka hangs every call fails within its deadline; afterwards everything works again."""

import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from uuid import uuid4

import msgspec
import pytest

from rioni.cli.cluster.cluster import LocalCluster
from rioni.domain.errors import PartiallyStored, Unavailable
from rioni.domain.timelines.position import Bounds
from rioni.storage.clock import SystemClock
from rioni.storage.event_stores import CacheMemory
from rioni.storage.kafka.client import KafkaConnection
from rioni.storage.kafka.events import KafkaEventStore
from tests.contracts.event_store import events, read_all
from tests.support.waiting import wait_until


pytestmark = [pytest.mark.kafka, pytest.mark.slow]

REQUEST_TIMEOUT_S = 1.0
ENOUGH_S = 45
"""Longer than all timeouts of one call together, on a busy machine."""


@pytest.fixture
def hanging(other_kafka_cluster: LocalCluster) -> Iterator[LocalCluster]:
    """A cluster that a test may suspend."""
    yield other_kafka_cluster
    other_kafka_cluster.kafkas[0].resume()


def test_every_call_ends_while_kafka_hangs_and_works_again_afterwards(
    hanging: LocalCluster, open_store: Callable[..., KafkaEventStore]
):
    patient = KafkaConnection(bootstrap_servers=hanging.kafka, topic_prefix=f"{uuid4()}-", request_timeout_s=ENOUGH_S)
    usual = {
        "connection": msgspec.structs.replace(patient, request_timeout_s=REQUEST_TIMEOUT_S),
        "clock": SystemClock(),
        "append_timeout_s": REQUEST_TIMEOUT_S,
    }
    store, reader, cold = (open_store(cache_memory=CacheMemory(size), **usual) for size in (2**20, 0, 2**20))
    first = open_store(connection=patient, clock=SystemClock(), append_timeout_s=ENOUGH_S)
    first.create_topic("topic", 2)
    first.append("topic", {0: events(1)})

    def begins(each: KafkaEventStore) -> bool:
        with contextlib.suppress(Unavailable):
            return read_all(each, "topic", 0) == events(1)
        return False

    for each in (store, reader):
        wait_until(partial(begins, each))
    calls: list[Callable[[], object]] = [
        lambda: store.create_topic("other", 1),
        lambda: store.extend_topic("topic", 3),
        lambda: store.close_topic("topic"),
        lambda: store.delete_topic("topic"),
        lambda: store.bounds("topic"),
        lambda: store.offset_at_time("topic", 0, 1),
        lambda: store.delete_before("topic", 1),
        lambda: store.compact("topic", 1),
        lambda: store.append("topic", {0: events(2)}),
        store.health,
        lambda: reader.read("topic", 0, 0, 1),
        lambda: cold.newest("topic"),
        lambda: cold.read("topic", 0, 0, 1),
        lambda: cold.append("topic", {0: events(2)}),
    ]

    def seconds(call: Callable[[], object]) -> float:
        begun_s = time.monotonic()
        with pytest.raises((Unavailable, PartiallyStored)):
            call()
        return time.monotonic() - begun_s

    hanging.kafkas[0].pause()
    with ThreadPoolExecutor(2 * len(calls)) as pool:
        longest_s = max(pool.map(seconds, 2 * calls, timeout=2 * ENOUGH_S))
    hanging.kafkas[0].resume()
    assert longest_s < ENOUGH_S

    def created(store: KafkaEventStore) -> str:
        with contextlib.suppress(Unavailable):
            store.create_topic(topic := str(uuid4()), 1)
            return topic
        return ""

    for each in (store, cold):
        topic = wait_until(partial(created, each))
        each.append(topic, {0: events(3)})
        assert each.close_topic(topic) == [Bounds(0, 0)]
        assert read_all(each, topic, 0) == events(3)
