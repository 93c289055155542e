"""How soon a worker gets the first events of a topic in Kafka that is new to it. `python -m benchmarks.first_events`.

Two event stores stand for two workers: one appends, the other one reads, as a stream does, and has nothing in memory.
Beside each figure stands that of the other numbers of partitions, and the time that a consumer of Kafka's own needs,
which is made for this and told where to begin. Client and broker share the machine. It stops by itself.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

from confluent_kafka import Consumer, TopicPartition

from rioni.cli.cluster.cluster import running_cluster
from rioni.domain.ports.event_store import EventStore
from rioni.storage.clock import SystemClock
from rioni.storage.embedded.signals import EmbeddedSignals
from rioni.storage.kafka.client import KafkaConnection
from rioni.storage.kafka.events import KafkaEventStore
from rioni.storage.kafka.idempotence.idempotency_index import open_index


EVENTS, SIZE = 100_000, 200
PARTITIONS = (8, 100)
READ_BYTES = 1_000_000
BATCH = 100
PATIENCE_S = 30.0


def main() -> None:
    """Print medians and the slowest of all rounds."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--kafka", help="brokers; by default one is started")
    given = options.parse_args()
    if given.kafka:
        _run(given.kafka, given.rounds)
    else:
        with running_cluster(postgres=False) as cluster:
            _run(cluster.kafka, given.rounds)


def _run(servers: str, rounds: int) -> None:
    connection = KafkaConnection(bootstrap_servers=servers, topic_prefix=f"{uuid4()}-")
    with tempfile.TemporaryDirectory() as folder:
        signals = EmbeddedSignals(Path(folder))

        def opened() -> KafkaEventStore:
            index = open_index(f"sqlite:///{folder}/names.db", "store")
            return KafkaEventStore(connection, index, clock=SystemClock(), signals=signals)

        writer = opened()
        print(f"{rounds} rounds, ms{'':<36} {'median':>8} {'slowest':>8}")
        for partitions in PARTITIONS:
            topic = _filled(writer, partitions)
            label = f"{partitions} partitions, {EVENTS} events"
            _report(f"{label}: first ones of all", rounds, lambda topic=topic: _all_first(opened(), topic))
            name = connection.topic_prefix + topic
            _report(f"{label}: raw consumer", rounds, lambda n=name, c=partitions: _raw(connection, n, c))
            writer.delete_topic(topic)
        reader = opened()
        # Other streams do the same: the broker lets a request wait for a while.
        writer.create_topic(quiet := str(uuid4()), 1)
        reader.newest(quiet)
        for partitions in (1, *PARTITIONS):
            label = f"{partitions} partitions, published right after opening"
            _report(label, rounds, lambda count=partitions: _after_opening(writer, reader, count))
        writer.delete_topic(quiet)
        for each in (writer, reader):
            each.close()
        signals.close()


def _report(label: str, rounds: int, measure: Callable[[], float]) -> None:
    found = [1_000 * measure() for _ in range(rounds)]
    print(f"{label:<50} {statistics.median(found):>8.0f} {max(found):>8.0f}", flush=True)


def _filled(store: EventStore, partitions: int) -> str:
    store.create_topic(topic := str(uuid4()), partitions)
    event = b'{"text":"%s"}' % (b"x" * (SIZE - 11))
    for first in range(0, EVENTS, BATCH * partitions):
        count = min(BATCH, (EVENTS - first) // partitions)
        store.append(topic, {number: [event] * count for number in range(partitions)})
    return topic


def _all_first(store: KafkaEventStore, topic: str) -> float:
    begun_s = time.monotonic()
    positions = {number: 0 for number, newest in enumerate(store.newest(topic)) if newest >= 0}
    for number in positions:
        assert store.read(topic, number, 0, READ_BYTES, lambda: positions)
    passed_s = time.monotonic() - begun_s
    store.close()
    return passed_s


def _raw(connection: KafkaConnection, name: str, partitions: int) -> float:
    begun_s = time.monotonic()
    consumer = Consumer(connection.consumer())
    consumer.assign([TopicPartition(name, number, 0) for number in range(partitions)])
    waiting = set(range(partitions))
    while waiting:
        waiting -= {message.partition() for message in consumer.consume(1_000, 0.01)}
    passed_s = time.monotonic() - begun_s
    consumer.close()
    return passed_s


def _after_opening(writer: EventStore, reader: EventStore, partitions: int) -> float:
    writer.create_topic(topic := str(uuid4()), partitions)
    writer.append(topic, {0: [b"{}"]})
    # Opened now, in the middle of whatever the reader waits for.
    assert reader.newest(topic)[0] == 0
    begun_s = time.monotonic()
    writer.append(topic, {0: [b"{}"]})
    published_s = time.monotonic()
    while reader.newest(topic)[0] == 0:
        assert time.monotonic() < begun_s + PATIENCE_S
        time.sleep(0.000_5)
    passed_s = time.monotonic() - published_s
    writer.delete_topic(topic)
    return passed_s


if __name__ == "__main__":
    main()
