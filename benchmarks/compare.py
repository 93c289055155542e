"""The cost of requests as ratios, each with its aim: `python -m benchmarks.compare`; exit code 1 if one falls short.

In each round the same load goes to three servers, one after the other: this state of the broker, an earlier one
(commit a294ed6, taken from the repository and run with the same dependencies), and the floor, an application without
content under the same HTTP server and framework (`benchmarks.floor`). Ratios are taken within a round, so that they
hold while the speed of the machine drifts. Client, server and disk share the machine.

With `--kafka` the brokers store their events in a Kafka cluster that is started for this.
"""

import argparse
import contextlib
import io
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from confluent_kafka import Producer

from benchmarks.kafka import use_kafka
from benchmarks.over_http import BATCH, bench, consumed, cpu_s, served
from benchmarks.streams import SETTINGS, commits
from rioni.cli.cluster.cluster import running_cluster
from rioni.storage.kafka.client import KafkaConnection
from rioni.storage.kafka.topics.topics import Topics


EARLIER = "a294ed6"
CONNECTIONS = (1, 8, 32)
ROOT = Path(__file__).parents[1]
EVENT_BYTES = 200
SYNCS = 300
WINDOW = 5_000
"""Events that may be uncommitted while a stream is measured."""
STREAMS = 4


class Load(NamedTuple):
    """The figures of one server under one load."""

    requests_per_s: float
    p50_ms: float
    cpu_us: float
    """CPU of all processes of the server for a request."""


Loads = Mapping[tuple[int, int], Load]
"""By events of a request and connections."""


class Round(NamedTuple):
    """The figures of one round."""

    now: Loads
    then: Loads
    floor: Loads
    streamed: Mapping[str, float]
    """Events per second through one stream of a subscription, of this state (`now`) and of the earlier one (`then`)."""
    wait_ms: float
    """One sync of the disk, or one acknowledgement of Kafka, measured alone; the median."""
    commits_per_s: float


class Row(NamedTuple):
    """A figure with its aim."""

    name: str
    aim: float
    at_most: bool
    figure: Callable[[Round], float]

    def reached(self, figure: float) -> bool:
        """Whether the aim is reached."""
        return figure <= self.aim if self.at_most else figure >= self.aim


def _cpu_of_floor(connections: int) -> Callable[[Round], float]:
    return lambda found: found.now[1, connections].cpu_us / found.floor[1, connections].cpu_us


def _faster(events: int, connections: int) -> Callable[[Round], float]:
    place = events, connections
    return lambda found: found.now[place].requests_per_s / found.then[place].requests_per_s


def _streamed(found: Round) -> float:
    return found.streamed["now"] / found.streamed["then"]


def _p50(found: Round) -> float:
    return found.now[1, 1].p50_ms / (4 * found.floor[1, 1].p50_ms + found.wait_ms)


ROWS = (
    *(Row(f"1 event, {n} conn.: CPU / floor", 3, True, _cpu_of_floor(n)) for n in CONNECTIONS),
    Row("1 event, 1 conn.: p50 / (4 floors + a sync)", 1, True, _p50),
    *(Row(f"1 event, {n} conn.: requests/s / {EARLIER}", 2, False, _faster(1, n)) for n in (8, 32)),
    Row(f"{BATCH} events, 1 conn.: events/s / {EARLIER}", 1.5, False, _faster(BATCH, 1)),
    *(Row(f"{BATCH} events, {n} conn.: events/s / {EARLIER}", 2, False, _faster(BATCH, n)) for n in (8, 32)),
    Row(f"a subscription's stream, window {WINDOW:,}: events/s / {EARLIER}", 2, False, _streamed),
    Row("commits/s of 64 clients, one worker", 5_000, False, lambda found: found.commits_per_s),
)


def loads(url: str, seconds: float) -> Loads:
    """Publish in all ways, one after the other."""
    found = {}
    for events in (1, BATCH):
        for connections in CONNECTIONS:
            sizes = ("--connections", str(connections), "--batch", str(events), "--size", str(EVENT_BYTES))
            begin_s = cpu_s(url)
            figures = bench(url, "publish", *sizes, "--seconds", str(seconds))
            assert set(figures["statuses"]) == {"200"}, figures
            used_us = (cpu_s(url) - begin_s) / figures["requests"] * 1e6
            found[events, connections] = Load(figures["requests"] / figures["seconds"], figures["p50_ms"], used_us)
    return found


def streamed(url: str, found: Loads, seconds: float) -> float:
    """Read what was published through one stream after the other, each of a new subscription, committing on the way.

    Returns:
        Events per second, the median of the streams.
    """
    # Not to the very end: how many were published is known from rates only.
    published = int(0.98 * sum(load.requests_per_s * seconds * events for (events, _), load in found.items()))
    per_s = []
    # Streams go to any worker: what one has in memory, another reads first.
    for _ in range(STREAMS):
        figures = consumed(url, published, 10 * seconds, "--window", str(WINDOW))
        assert figures["statuses"].keys() <= {"200", "204"}, figures
        per_s.append(figures["events"] / figures["seconds"])
    return statistics.median(per_s)


def sync_ms() -> float:
    """The median time to append a short record to a file and to sync it."""
    took_s = []
    with tempfile.TemporaryFile() as file:
        for _ in range(SYNCS):
            begin_s = time.perf_counter()
            os.write(file.fileno(), bytes(EVENT_BYTES))
            os.fdatasync(file.fileno())
            took_s.append(time.perf_counter() - begin_s)
    return 1e3 * statistics.median(took_s)


def acknowledged_ms(servers: str) -> float:
    """The median time until Kafka acknowledges a single record."""
    topic = str(uuid4())
    Topics(KafkaConnection(bootstrap_servers=servers)).create(topic, 1)
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "enable.idempotence": True, "linger.ms": 0})
    took_s = []
    for _ in range(SYNCS):
        begin_s = time.perf_counter()
        producer.produce(topic, bytes(EVENT_BYTES))
        producer.flush()
        took_s.append(time.perf_counter() - begin_s)
    return 1e3 * statistics.median(took_s)


@contextlib.contextmanager
def earlier_state() -> Iterator[Path]:
    """The folder of the sources of the earlier state."""
    archive = subprocess.run(["git", "archive", EARLIER, "rioni"], cwd=ROOT, capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(archive)) as sources:
            sources.extractall(folder, filter="data")
        yield Path(folder)


def one_round(options: argparse.Namespace, earlier: Path, kafka: str | None, order: int) -> Round:
    """Measure all servers."""
    found: dict[str, Loads] = {}
    streams: dict[str, float] = {}

    def broker(name: str, source: Path) -> None:
        with served(options.workers, source=source) as url:
            if kafka:
                use_kafka(url)
            found[name] = loads(url, options.seconds)
            streams[name] = streamed(url, found[name], options.seconds)

    def floor() -> None:
        with served(options.workers, application="benchmarks.floor:app") as url:
            found["floor"] = loads(url, options.seconds)

    steps = [lambda: broker("now", ROOT), lambda: broker("then", earlier), floor]
    for step in steps[:: -1 if order % 2 else 1]:
        step()
    with served(1, source=ROOT) as url:
        per_s = commits(url, options.seconds).rate
    wait_ms = acknowledged_ms(kafka) if kafka else sync_ms()
    return Round(found["now"], found["then"], found["floor"], streams, wait_ms, per_s)


def show(rounds: list[Round]) -> bool:
    """Print each row; say whether all aims are reached."""
    print(f"{'':<48} {'aim':>8} {'median':>8} {'least':>8} {'most':>8}")
    all_reached = True
    for row in ROWS:
        figures = [row.figure(each) for each in rounds]
        median = statistics.median(figures)
        reached = row.reached(median)
        all_reached = all_reached and reached
        aim = f"{'≤' if row.at_most else '≥'} {row.aim:,g}"
        spread = " ".join(f"{each:>8,.2f}" for each in (median, min(figures), max(figures)))
        print(f"{row.name:<48} {aim:>8} {spread}  {'reached' if reached else 'FALLS SHORT'}")
    print("\nmedians: requests/s, p50 in ms, µs of CPU a request")
    for name in ("now", "then", "floor"):
        for place in getattr(rounds[0], name):
            columns = zip(*(getattr(each, name)[place] for each in rounds), strict=True)
            rate, p50_ms, used_us = map(statistics.median, columns)
            print(f"{name:<6} {place[0]:>4} x {place[1]:<3} {rate:>10,.0f} {p50_ms:>9.2f} {used_us:>9,.0f}")
    for name in ("now", "then"):
        print(f"{name:<6} stream {statistics.median(each.streamed[name] for each in rounds):>12,.0f} events/s")
    print(f"one sync, or acknowledgement: {statistics.median(each.wait_ms for each in rounds):.2f} ms")
    return all_reached


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="for each figure")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--kafka", action="store_true", help="store events in Kafka")
    options = parser.parse_args()
    os.environ.update(SETTINGS)
    rounds = []
    with contextlib.ExitStack() as stack:
        earlier = stack.enter_context(earlier_state())
        kafka = None
        if options.kafka:
            kafka = stack.enter_context(running_cluster(zookeepers=1)).kafka
            os.environ["RIONI_KAFKA"] = kafka
        for number in range(options.rounds):
            print(f"round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
            rounds.append(one_round(options, earlier, kafka, number))
    return 0 if show(rounds) else 1


if __name__ == "__main__":
    sys.exit(main())
