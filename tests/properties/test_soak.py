"""Clients create, switch, repartition, publish, stream, commit and delete: all get answers, and no resource leaks."""

import time
import uuid
from pathlib import Path
from typing import NamedTuple

import pytest

from rioni.installation.pools import KINDS, OF_STORAGES
from rioni.storage.kafka.backfill_readers import KEPT
from tests.support.campaigns import length
from tests.support.nodes import running_nodes
from tests.support.server import RunningServer, running_server
from tests.support.soak import ROUND_MAX_S, Soak
from tests.support.waiting import wait_until


CLIENTS = 8
SOAK_S = length(25.0, 1_080.0)
WARM_S = length(15.0, 120.0)
"""By then caches, pools and heaps have reached their size."""
RELEASE_TIMEOUT_S = 60.0
STORAGES = 2
THREADS_MAX = 8 + sum(limits.threads * (STORAGES if kind in OF_STORAGES else 1) for kind, limits in KINDS.items())
"""Threads of one worker: those of its pools, which start when they are first needed, and some others."""
CLIENT_DESCRIPTORS = 8.5
"""Threads of each client of librdkafka."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.nightly,
    pytest.mark.timeout(WARM_S + SOAK_S + 5 * ROUND_MAX_S),
]


class Usage(NamedTuple):
    """The resources of the workers of all nodes, in sum; those of Kafka clients are counted as clients."""

    rss_mb: float
    descriptors: float
    threads: float
    greenlets: float
    kafka_clients: float

    def growth(self, since: "Usage", workers: int) -> list[str]:
        """Growth beyond random variation and pools that are not full yet."""
        more_threads = max(0.0, self.threads - since.threads)
        bounds = Usage(
            rss_mb=since.rss_mb + max(60.0, 0.2 * since.rss_mb),
            # A thread has its own connection to each file of SQLite that it uses, with up to three descriptors.
            descriptors=since.descriptors + 8 + 3 * more_threads,
            threads=THREADS_MAX * workers,
            greenlets=since.greenlets + 4,
            kafka_clients=since.kafka_clients + KEPT * STORAGES * workers,
        )
        return [
            f"{name}: {before:.0f} -> {now:.0f}, more than {bound:.0f}"
            for name, before, now, bound in zip(Usage._fields, since, self, bounds, strict=True)
            if now > bound
        ]


def usage(server: RunningServer) -> Usage:
    processes = [Path(f"/proc/{pid}") for pid in server.workers()]
    statuses = [(process / "status").read_text().splitlines() for process in processes]
    names = [task.read_text().strip() for process in processes for task in process.glob("task/*/comm")]
    clients = names.count("rdk:main")
    return Usage(
        rss_mb=sum(float(line.split()[1]) for lines in statuses for line in lines if line.startswith("VmRSS:")) / 1_024,
        descriptors=sum(len(list((each / "fd").iterdir())) for each in processes) - CLIENT_DESCRIPTORS * clients,
        threads=sum(not name.startswith("rdk:") for name in names),
        greenlets=server.metric("rioni_greenlets"),
        kafka_clients=clients,
    )


def usage_after_release(server: RunningServer) -> Usage:
    """The usage when nothing has been released for some time, though no client is connected any more."""
    wait_until(lambda: server.metric('rioni_streams{api="high"}') == 0)
    least, since_s = usage(server), time.monotonic()
    deadline_s = since_s + RELEASE_TIMEOUT_S
    while time.monotonic() < min(deadline_s, since_s + 5):
        time.sleep(0.5)
        now = usage(server)
        if any(a < b for a, b in zip(now[1:], least[1:], strict=True)):
            least, since_s = now, time.monotonic()
    return usage(server)


def run(server: RunningServer, storages: list[str]) -> None:
    soak = Soak(server, storages)
    soak.run(CLIENTS, WARM_S)
    assert soak.problems == []
    workers, warm = server.workers(), usage_after_release(server)
    soak.run(CLIENTS, SOAK_S)
    assert soak.problems == []
    assert soak.rounds >= CLIENTS
    assert server.workers() == workers, "a worker was replaced"
    assert usage_after_release(server).growth(warm, len(workers)) == []


def test_a_server_with_two_workers_answers_all_clients_and_does_not_grow(tmp_path):
    with running_server(tmp_path / "data", "--workers", "2") as server:
        with server.client() as client:
            storage = {"id": "second", "storage_type": "embedded", "kafka_configuration": {}}
            assert client.post("/storages", json=storage).status_code == 201
        run(server, ["default", "second"])


@pytest.mark.kafka
@pytest.mark.zookeeper
@pytest.mark.postgres
def test_two_nodes_answer_all_clients_and_do_not_grow(tmp_path, cluster_environment):
    with running_nodes(tmp_path, environment=cluster_environment()) as nodes:
        with nodes.client() as client:
            kafka = {"topic_prefix": f"{uuid.uuid4()}-"}
            storage = {"id": "second", "storage_type": "kafka", "kafka_configuration": kafka}
            assert client.post("/storages", json=storage).status_code == 201
        run(nodes, ["default", "second"])
