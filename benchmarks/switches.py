"""How long publishers pause while timelines are switched and partitions added: `python -m benchmarks.switches`.

Four publishers send batches one after the other, without a rest, while their event type moves around: between embedded
storages, from there to Kafka, between storages in Kafka, and back. For each change and each publisher the pause is the
longest time that an answer took of all requests that were under way during the change. Beside it stands what answers
took while nothing changed. Servers, clients and disk share the machine; Kafka is one broker started for this.
"""

import argparse
import contextlib
import http.client
import json
import os
import statistics
import sys
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from benchmarks.over_http import server
from rioni.cli.cluster.cluster import running_cluster


PUBLISHERS, BATCH, SIZE = 4, 10, 200
CALM_S = 0.3
"""Between two changes, so that none feels the one before."""
ROUTES = {
    "embedded": [("embedded to embedded", "second"), ("embedded to embedded", "default")],
    "kafka": [
        ("embedded to Kafka", "kafka"),
        ("Kafka to Kafka", "kafka-2"),
        ("Kafka to embedded", "default"),
    ],
}
REPARTITIONED = {"embedded": "default", "kafka": "kafka"}


class Answer(NamedTuple):
    """One publish request."""

    begin_s: float
    end_s: float


class Client:
    """Requests over one connection; all of them have to succeed."""

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=120)

    def __call__(self, method: str, path: str, body: Any) -> None:
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        self._connection.request(method, path, sent, {"Content-Type": "application/json"})
        response = self._connection.getresponse()
        read = response.read()
        assert response.status < 300, (method, path, response.status, read[:500])
        if method == "POST" and path.endswith("/events"):
            assert response.status == 200, read[:500]


class Publisher(threading.Thread):
    """Publishes until it is stopped."""

    def __init__(self, url: str, event_type: str) -> None:
        super().__init__()
        self._client, self._path = Client(url), f"/event-types/{event_type}/events"
        self.answers: list[Answer] = []
        self.enough = threading.Event()

    def run(self) -> None:
        while not self.enough.is_set():
            body = [{"key": str(uuid.uuid4()), "filling": "x" * SIZE} for _ in range(BATCH)]
            begin_s = time.perf_counter()
            self._client("POST", self._path, body)
            self.answers.append(Answer(begin_s, time.perf_counter()))


class Load:
    """An event type with its publishers, and what each change made them wait."""

    def __init__(self, url: str, partitions: int) -> None:
        self._client, self.name, self.partitions = Client(url), f"switches.{uuid.uuid4().hex[:8]}", partitions
        statistic = {"messages_per_minute": 1, "message_size": 1}
        self._client(
            "POST",
            "/event-types",
            {
                "name": self.name,
                "owning_application": "rioni-bench",
                "category": "undefined",
                "partition_strategy": "hash",
                "partition_key_fields": ["key"],
                "schema": {"type": "json_schema", "schema": '{"properties": {"key": {"type": "string"}}}'},
                "default_statistic": statistic | {"read_parallelism": partitions, "write_parallelism": partitions},
            },
        )
        self.publishers = [Publisher(url, self.name) for _ in range(PUBLISHERS)]
        self._changes: list[tuple[str, Answer]] = []

    def change(self, what: str, method: str, path: str, body: Any) -> None:
        """Make a change amid the load."""
        time.sleep(CALM_S)
        begin_s = time.perf_counter()
        self._client(method, f"/event-types/{self.name}/{path}", body)
        self._changes.append((what, Answer(begin_s, time.perf_counter())))

    def rows(self) -> Iterator[tuple[str, list[float], list[float]]]:
        """For each kind of change how long it took and what publishers waited, in ms; and what they wait without."""
        lasted, pauses = defaultdict(list), defaultdict(list)
        under_way: set[Answer] = set()
        for what, change in self._changes:
            lasted[what].append(1_000 * (change.end_s - change.begin_s))
            for publisher in self.publishers:
                met = [
                    each for each in publisher.answers if each.begin_s < change.end_s and each.end_s > change.begin_s
                ]
                under_way.update(met)
                pauses[what].append(1_000 * max(each.end_s - each.begin_s for each in met))
        for what, each in lasted.items():
            yield what, each, pauses[what]
        calm = [each for publisher in self.publishers for each in publisher.answers if each not in under_way]
        yield "any request while nothing changes", [], [1_000 * (each.end_s - each.begin_s) for each in calm]


@contextlib.contextmanager
def load(url: str, partitions: int) -> Iterator[Load]:
    """A load that lasts as long as the block."""
    running = Load(url, partitions)
    for publisher in running.publishers:
        publisher.start()
    try:
        yield running
    finally:
        for publisher in running.publishers:
            publisher.enough.set()
        for publisher in running.publishers:
            publisher.join()


def measure(url: str, mode: str, rounds: int, partitions: int) -> list[tuple[str, list[float], list[float]]]:
    """Switch on each edge of the mode's route, and add a partition, this number of times."""
    with load(url, partitions) as running:
        for number in range(rounds):
            for what, storage_id in ROUTES[mode]:
                running.change(what, "POST", "timelines", {"storage_id": storage_id})
                if storage_id == REPARTITIONED[mode]:
                    count = {"partition_count": partitions + number + 1}
                    running.change(f"one more partition, {mode}", "PUT", "partition-count", count)
    return list(running.rows())


def add_storages(url: str, kafka: str) -> None:
    """The storages of the routes, beside the default one."""
    client = Client(url)
    client("POST", "/storages", {"id": "second", "storage_type": "embedded", "kafka_configuration": {}})
    for name in ("kafka", "kafka-2"):
        where = {"bootstrap_servers": kafka, "topic_prefix": f"{uuid.uuid4()}-"}
        client("POST", "/storages", {"id": name, "storage_type": "kafka", "kafka_configuration": where})


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=25, help="of each change")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    os.environ["RIONI_PARTITIONS_MAX"] = str(options.partitions + options.rounds)
    with running_cluster(postgres=False) as cluster, server(options.workers) as (url, _):
        add_storages(url, cluster.kafka)
        print(
            f"{options.workers} workers, {os.cpu_count()} cores; {PUBLISHERS} publishers, "
            f"{options.partitions} partitions, {BATCH} events of {SIZE} bytes a request; ms"
        )
        print(f"{'':<36} {'lasts p50':>10} {'publishers wait p50':>20} {'p99':>8} {'longest':>8} {'of':>8}")
        for mode in ROUTES:
            print(f"measuring: {mode}", file=sys.stderr)
            for what, lasts, waits in measure(url, mode, options.rounds, options.partitions):
                lasted = f"{statistics.median(lasts):,.0f}" if lasts else ""
                p99 = statistics.quantiles(waits, n=100, method="inclusive")[98]
                print(
                    f"{what:<36} {lasted:>10} {statistics.median(waits):>20,.1f} {p99:>8,.0f} {max(waits):>8,.0f} "
                    f"{len(waits):>8,}"
                )


if __name__ == "__main__":
    main()
