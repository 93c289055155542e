"""Publishing and consuming through Rioni beside Kafka's own producer and consumer: `python -m benchmarks.kafka`.

All on the same broker of Kafka, which is started for this, in one run: a round measures the raw client, then the
event store in one process, then the server over HTTP with the same batches and as many publishers; a ratio is taken
within a round. Each event of a batch goes to any partition, as the strategy `random` says. The raw producer is
idempotent and waits for all copies, as Rioni's: once with as many batches under way as there are publishers, and once
with no limit. Then two nodes of one worker each, which share PostgreSQL and ZooKeeper too, get half of the
connections each. Brokers, servers, clients and disk share the machine.
"""

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.cluster import two_nodes
from benchmarks.event_store import batch_of
from benchmarks.over_http import BATCH, SIZE, bench, consumed, server
from rioni.cli.broker.bench import PARTITIONS
from rioni.cli.cluster.cluster import running_cluster
from rioni.storage.clock import SystemClock
from rioni.storage.embedded.signals import EmbeddedSignals
from rioni.storage.kafka.client import FETCH_AGAIN_MS, KafkaConnection
from rioni.storage.kafka.events import KafkaEventStore
from rioni.storage.kafka.idempotence.idempotency_index import open_index


READ_BYTES = 1_000_000
UNDER_WAY_MAX = 100_000


def spread() -> Sequence[int]:
    """A partition for each event of a batch."""
    return random.choices(range(PARTITIONS), k=BATCH)


def by_partition(batch: Sequence[bytes]) -> Mapping[int, Sequence[bytes]]:
    """The events of a batch for each partition that gets some."""
    parts: dict[int, list[bytes]] = {}
    for event, partition in zip(batch, spread(), strict=True):
        parts.setdefault(partition, []).append(event)
    return parts


def in_threads(publishers: int, seconds: float, publish: Callable[[], object]) -> float:
    """Events per second, where each of some threads publishes one batch after the other."""
    batches: list[int] = []
    stop_s = time.perf_counter() + seconds

    def one() -> None:
        done = 0
        while time.perf_counter() < stop_s:
            publish()
            done += 1
        batches.append(done)

    begin_s = time.perf_counter()
    threads = [threading.Thread(target=one) for _ in range(publishers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return BATCH * sum(batches) / (time.perf_counter() - begin_s)


def raw_producer(servers: str, topic: str, publishers: int, seconds: float) -> float:
    """Events per second of Kafka's producer, with one batch under way for each publisher."""
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "enable.idempotence": True, "linger.ms": 0})
    batch, acknowledged = batch_of(SIZE), 0

    def delivered(error: object, _message: object) -> None:
        nonlocal acknowledged
        assert error is None, error
        acknowledged += 1

    sent = 0
    begin_s = time.perf_counter()
    while time.perf_counter() < begin_s + seconds:
        while sent - acknowledged <= (publishers - 1) * BATCH:
            for event, partition in zip(batch, spread(), strict=True):
                producer.produce(topic, event, None, partition, delivered)
            sent += BATCH
        producer.poll(0.1)
    producer.flush()
    return acknowledged / (time.perf_counter() - begin_s)


def raw_consumer(servers: str, topic: str, **further: object) -> float:
    """Events per second of Kafka's consumer with its own settings, or others, from the first event to the last."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": str(uuid4()),
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
            **further,
        }
    )
    places = [TopicPartition(topic, number, 0) for number in range(PARTITIONS)]
    left = sum(consumer.get_watermark_offsets(place)[1] for place in places)
    consumer.assign(places)
    begin_s, events = time.perf_counter(), 0
    while events < left:
        messages = consumer.consume(1_000, 1.0)
        # Every reader does this.
        events += sum(message.value() is not None for message in messages)
    seconds = time.perf_counter() - begin_s
    consumer.close()
    return events / seconds


def store_read(store: KafkaEventStore, topic: str) -> float:
    """Events per second that a store reads from Kafka, nothing being in its memory before."""
    begin_s, events = time.perf_counter(), 0
    for number in range(PARTITIONS):
        position = 0
        while chunks := store.read(topic, number, position, READ_BYTES):
            events += sum(len(chunk.ends) for chunk in chunks)
            position = chunks[-1].next
    return events / (time.perf_counter() - begin_s)


def use_kafka(url: str) -> None:
    """Let new event types begin in Kafka, unless they do since an earlier round."""
    with urllib.request.urlopen(f"{url}/storages") as answer:
        if any(each["id"] == "kafka" for each in json.load(answer)):
            return
    storage = {"id": "kafka", "storage_type": "kafka", "kafka_configuration": {}, "default": True}
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/storages", json.dumps(storage).encode(), headers)
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 201


def over_two_nodes(environment: Mapping[str, str], connections: int, seconds: float) -> tuple[float, float]:
    """Events per second that two nodes take together, and deliver together where each has a reader of everything."""
    with two_nodes(environment) as nodes, ThreadPoolExecutor(len(nodes)) as pool:
        use_kafka(next(iter(nodes)))
        name = f"benchmark.kafka.{uuid4()}"
        options = ("--connections", str(connections // 2), "--batch", str(BATCH), "--size", str(SIZE))

        def publish(url: str, seconds: float) -> dict:
            return bench(url, "publish", "--event-type", name, *options, "--seconds", str(seconds))

        begun = publish(next(iter(nodes)), 0.1)  # makes the event type
        written = list(pool.map(publish, nodes, [seconds] * len(nodes)))
        events = sum(each["events"] for each in [begun, *written])
        read = pool.map(lambda url: consumed(url, events, 3 * seconds, "--event-type", name), nodes)
        rates = [sum(each["events_per_s"] for each in figures) for figures in (written, read)]
    return rates[0], rates[1]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="for each figure")
    parser.add_argument("--connections", type=int, nargs="*", default=[1, 8, 32])
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    rows: dict[str, list[tuple[float, float, float]]] = {}
    with running_cluster(zookeepers=1, progress=lambda text: print(text, file=sys.stderr)) as cluster:
        os.environ["RIONI_KAFKA"] = cluster.kafka
        for number in range(options.rounds):
            print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
            found = one_round(cluster.kafka, options)
            most = max(options.connections)
            taken, delivered = over_two_nodes(cluster.environment, most, options.seconds)
            _, store, raw = found[f"publish, {most} connections"]
            found[f"publish, {most}, two nodes"] = taken, store, raw
            _, store, raw = found["consume, 1 stream"]
            found["consume, two nodes"] = delivered, store, raw
            for name, row in found.items():
                rows.setdefault(name, []).append(row)
    print(
        f"{options.workers} workers, {os.cpu_count()} cores, {BATCH} events of {SIZE} bytes a batch; medians, events/s"
    )
    print(f"{'':<24} {'over HTTP':>12} {'store alone':>12} {'raw client':>12} {'HTTP/raw':>9} {'store/raw':>9}")
    for name, figures in rows.items():
        over, store, raw = (statistics.median(column) for column in zip(*figures, strict=True))
        ratios = [statistics.median(each[index] / each[2] for each in figures) for index in (0, 1)]
        print(f"{name:<24} {over:>12,.0f} {store:>12,.0f} {raw:>12,.0f} {ratios[0]:>9.0%} {ratios[1]:>9.0%}")


def one_round(servers: str, options: argparse.Namespace) -> dict[str, tuple[float, float, float]]:
    """For each case the events per second over HTTP, of the store alone, and of the raw client."""
    found: dict[str, tuple[float, float, float]] = {}
    topic, batch = str(uuid4()), batch_of(SIZE)
    with tempfile.TemporaryDirectory() as folder:
        signals = EmbeddedSignals(Path(folder))

        def opened() -> KafkaEventStore:
            index = open_index(f"sqlite:///{folder}/names.db", "store")
            connection = KafkaConnection(bootstrap_servers=servers)
            clock = SystemClock()
            return KafkaEventStore(connection, index, clock=clock, signals=signals)

        store = opened()
        store.create_topic(topic, PARTITIONS)
        alone: dict[int, float] = {}
        raw: dict[int, float] = {}
        for count in options.connections:
            raw[count] = raw_producer(servers, topic, count, options.seconds)
            alone[count] = in_threads(count, options.seconds, lambda: store.append(topic, by_partition(batch)))
        unlimited = raw_producer(servers, topic, UNDER_WAY_MAX // BATCH, options.seconds)
        raw_read = raw_consumer(servers, topic)
        hurried = raw_consumer(servers, topic, **{"fetch.queue.backoff.ms": FETCH_AGAIN_MS})
        reader = opened()
        read = store_read(reader, topic)
        for each in (store, reader):
            each.delete_topic(topic)
            each.close()
        signals.close()
    with server(options.workers) as (url, _):
        use_kafka(url)
        published = 0
        for count in options.connections:
            sizes = ("--connections", str(count), "--batch", str(BATCH), "--size", str(SIZE))
            figures = bench(url, "publish", *sizes, "--seconds", str(options.seconds))
            found[f"publish, {count} connections"] = figures["events_per_s"], alone[count], raw[count]
            published += figures["events"]
        best = max(rate for rate, *_ in found.values())
        found["publish, no limit"] = best, max(alone.values()), unlimited
        found["consume, 1 stream"] = consumed(url, published, 3 * options.seconds)["events_per_s"], read, raw_read
        found["consume, same backoff"] = *found["consume, 1 stream"][:2], hurried
    return found


if __name__ == "__main__":
    main()
