"""The promises of the cluster hold while its nodes, its servers and the network between them fail, on real processes.

Runs at night, or when this file is asked for: one fault after the other, and each of them on its own. In the usual run

- nodes are killed in `tests/acceptance/test_cluster.py` and `test_switching_kill_cluster.py`, suspended or cut off from
  ZooKeeper in `tests/storage/zookeeper/test_coordination_faults.py`, which kills ZooKeeper too;
- brokers are killed and suspended in `tests/storage/kafka/test_events_faults.py`, cut off from the others in
  `topics/test_topics_stale_leaders.py` and `test_delivery.py` beside it; the latter loses answers of Kafka as well;
- PostgreSQL crashes and is suspended in `tests/acceptance/test_postgresql.py`.
"""

import contextlib
import itertools
import json
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import httpx
import pytest

from rioni.cli.cluster.cluster import missing_programs
from tests.acceptance.conftest import partitions
from tests.support.builders import event_type_body
from tests.support.faulty_cluster import APPEND_TIMEOUT_S, SESSION_TIMEOUT_S, FaultyCluster, faulty_cluster
from tests.support.history_checker import Delivery, History, Observation, violations
from tests.support.recording import NO_ANSWER, Consumers, Publisher, Registrar, position_of, read
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import wait_until


pytestmark = [
    pytest.mark.slow,
    pytest.mark.nightly,
    pytest.mark.kafka,
    pytest.mark.zookeeper,
    pytest.mark.postgres,
    pytest.mark.timeout(900),  # most of it is waiting, but a busy machine starts servers slowly
    pytest.mark.skipif(bool(missing_programs()), reason=missing_programs()),
]

NAME = "order.created"
SCHEMA = '{"properties":{"number":{"type":"integer"}},"required":["number"]}'
PARTITIONS = 4
CONSUMERS = 4
CALM_S = 1.0
"""How long everything works before and after a fault."""
HEALED_S = 60
LAPSE_S = max(SESSION_TIMEOUT_S + 2, APPEND_TIMEOUT_S + 1)
"""After this time other nodes have taken over all partitions, and every append has timed out."""


def kill_a_node(cluster: FaultyCluster, chance: random.Random) -> None:
    cluster.kill_node(chance.randrange(len(cluster.nodes)))
    time.sleep(LAPSE_S)


def pause_a_node(cluster: FaultyCluster, chance: random.Random) -> None:
    chance.choice(cluster.nodes).pause()
    time.sleep(LAPSE_S)


def cut_a_node_off_from_zookeeper(cluster: FaultyCluster, chance: random.Random) -> None:
    _cut_off(chance.choice(cluster.ways).zookeeper)


def cut_off_answers_of_zookeeper(cluster: FaultyCluster, chance: random.Random) -> None:
    _cut_off_answers(chance.choice(cluster.ways).zookeeper)


def cut_a_node_off_from_kafka(cluster: FaultyCluster, chance: random.Random) -> None:
    _cut_off(chance.choice(cluster.ways).kafka)


def cut_off_answers_of_kafka(cluster: FaultyCluster, chance: random.Random) -> None:
    _cut_off_answers(chance.choice(cluster.ways).kafka)


def cut_a_node_off_from_postgresql(cluster: FaultyCluster, chance: random.Random) -> None:
    _cut_off(chance.choice(cluster.ways).postgres)


def cut_off_answers_of_postgresql(cluster: FaultyCluster, chance: random.Random) -> None:
    _cut_off_answers(chance.choice(cluster.ways).postgres)


def _cut_off(ways: Sequence[TcpProxy]) -> None:
    """For a while no traffic gets through; then all of it does."""
    for way in ways:
        way.cut()
    time.sleep(LAPSE_S)


def _cut_off_answers(ways: Sequence[TcpProxy]) -> None:
    """For a while no answer gets through; then the connections break, so that none ever does."""
    for way in ways:
        way.cut(there=False)
    time.sleep(LAPSE_S)
    for way in ways:
        way.break_off()


def kill_a_broker(cluster: FaultyCluster, chance: random.Random) -> None:
    chance.choice(cluster.kafkas).kill()
    time.sleep(CALM_S)


def pause_a_broker(cluster: FaultyCluster, chance: random.Random) -> None:
    chance.choice(cluster.kafkas).pause()
    time.sleep(LAPSE_S)


def kill_two_brokers(cluster: FaultyCluster, chance: random.Random) -> None:
    for each in chance.sample(cluster.kafkas, 2):
        each.kill()
    time.sleep(LAPSE_S)


def cut_a_broker_off_from_the_others(cluster: FaultyCluster, chance: random.Random) -> None:
    """Its partitions get new leaders meanwhile, which it does not know; nodes reach it, and trust it at first."""
    cluster.brokers.cut_off(chance.randrange(len(cluster.kafkas)))
    time.sleep(2 * LAPSE_S)


def kill_a_zookeeper(cluster: FaultyCluster, chance: random.Random) -> None:
    chance.choice(cluster.zookeepers).kill()
    time.sleep(LAPSE_S)


def kill_two_zookeepers(cluster: FaultyCluster, chance: random.Random) -> None:
    for each in chance.sample(cluster.zookeepers, 2):
        each.kill()
    time.sleep(LAPSE_S)


def pause_a_zookeeper(cluster: FaultyCluster, chance: random.Random) -> None:
    chance.choice(cluster.zookeepers).pause()
    time.sleep(LAPSE_S)


def crash_postgresql(cluster: FaultyCluster, chance: random.Random) -> None:
    cluster.crash_postgres()
    time.sleep(CALM_S)


Fault = Callable[[FaultyCluster, random.Random], None]
COMBINED: tuple[Fault, ...] = (
    kill_a_node,
    pause_a_node,
    cut_a_node_off_from_zookeeper,
    kill_a_broker,
    cut_a_broker_off_from_the_others,
    cut_off_answers_of_kafka,
    kill_two_zookeepers,
    crash_postgresql,
    cut_a_node_off_from_postgresql,
)
OTHERS: tuple[Fault, ...] = (
    cut_off_answers_of_zookeeper,
    cut_a_node_off_from_kafka,
    cut_off_answers_of_postgresql,
    pause_a_broker,
    kill_two_brokers,
    kill_a_zookeeper,
    pause_a_zookeeper,
)
SCENARIOS = [COMBINED, *((fault,) * 3 for fault in (*COMBINED, *OTHERS))]


class Clients:
    """Clients that publish, consume from one subscription, read its cursors, and create other subscriptions."""

    def __init__(self, cluster: FaultyCluster, folder: Path) -> None:
        self._cluster = cluster
        self._nodes = itertools.cycle(cluster.urls)
        self._client = httpx.Client(timeout=5)
        self._stop = threading.Event()
        self.history = History(acknowledged={})
        body = event_type_body(
            name=NAME,
            partition_strategy="user_defined",
            schema={"type": "json_schema", "schema": SCHEMA},
            **partitions(PARTITIONS),
        )
        self._create("/event-types", body)
        wanted = {"owning_application": "faults", "event_types": [NAME], "read_from": "begin"}
        self._subscription = f"/subscriptions/{self._create('/subscriptions', wanted)['id']}"
        self.publishers = [Publisher(cluster.urls, NAME, str(each), self._stop) for each in range(PARTITIONS)]
        self.registrar = Registrar(cluster.urls, NAME, self._stop)
        self.consumers = Consumers(cluster.urls, self._subscription.rpartition("/")[2], folder)
        self._observer = threading.Thread(target=self._observe)
        self._threads = [*self.publishers, self.registrar, self._observer]

    def _create(self, path: str, body: dict) -> dict:
        response = self._client.post(next(self._nodes) + path, json=body, timeout=30)
        assert response.status_code == 201, response.text
        return response.json() if response.content else {}

    def start(self) -> None:
        for _ in range(CONSUMERS):
            self.consumers.start()
        for each in self._threads:
            each.start()

    def _observe(self) -> None:
        """Read all the time: a node that is cut off answers with an error, never with an outdated state."""
        while not self._stop.wait(0.2):
            with contextlib.suppress(*NO_ANSWER):
                begun = time.monotonic()
                response = self._client.get(f"{next(self._nodes)}{self._subscription}/cursors")
                if response.status_code == httpx.codes.OK:
                    found = {item["partition"]: position_of(item["offset"]) for item in response.json()["items"]}
                    self.history.observations.append(Observation(begun=begun, ended=time.monotonic(), positions=found))

    def publish_on(self) -> None:
        """Wait until every partition accepts events again."""
        before = [len(each.acknowledged) for each in self.publishers]
        wait_until(
            lambda: all(len(each.acknowledged) > count for each, count in zip(self.publishers, before, strict=True))
        )

    def finish(self) -> None:
        """Publish and consume, now that everything works again, until nothing is left; then read everything again."""
        self._stop.set()
        for each in self._threads:
            each.join()
        for publisher, url in itertools.product(self.publishers, self._cluster.urls):
            self._publish_last(publisher, url)
        for url in self._cluster.urls:
            self.history.replays[url] = list(self._replay(url))
        last = {each.partition: each.position for replay in self.history.replays.values() for each in replay}
        wait_until(lambda: self._committed() == last)
        self.consumers.end()
        self.history.registered, self.history.unseen = self.registrar.registered, self.registrar.unseen
        self.history.registries = self.registrar.lists(self._client)
        for publisher in self.publishers:
            self.history.acknowledged[publisher.partition] = publisher.acknowledged
            self.history.refused[publisher.partition] = publisher.refused
        read(self.consumers.files, self._cluster.kills, self.history)

    def _publish_last(self, publisher: Publisher, url: str) -> None:
        before = len(publisher.acknowledged)
        publisher.publish(self._client, url)
        assert len(publisher.acknowledged) > before, f"{url} takes no events again"

    def _committed(self) -> dict[str, int]:
        items = self._client.get(f"{next(self._nodes)}{self._subscription}/cursors").json()["items"]
        return {item["partition"]: position_of(item["offset"]) for item in items}

    def _replay(self, url: str) -> Iterator[Delivery]:
        """Everything that a node delivers from the first event on."""
        path = f"{url}/event-types/{NAME}"
        left = {
            each["partition"]: each["newest_available_offset"] for each in self._client.get(f"{path}/partitions").json()
        }
        cursors = json.dumps([{"partition": each, "offset": "BEGIN"} for each in left])
        options = {"batch_limit": 100, "batch_flush_timeout": 1, "stream_timeout": HEALED_S}
        headers = {"X-Nakadi-Cursors": cursors}
        with self._client.stream("GET", f"{path}/events", params=options, headers=headers) as response:
            assert response.status_code == httpx.codes.OK
            for line in response.iter_lines():
                batch = json.loads(line)
                partition, offset = batch["cursor"]["partition"], batch["cursor"]["offset"]
                if "events" in batch:
                    numbers = [each["number"] for each in batch["events"]]
                    yield Delivery(
                        at=time.monotonic(), partition=partition, position=position_of(offset), numbers=numbers
                    )
                if left.get(partition) == offset:
                    del left[partition]
                if not left:
                    return
        raise AssertionError(f"{url} did not deliver everything")

    def close(self) -> None:
        self._stop.set()
        self.consumers.end()
        for each in self._threads:
            if each.is_alive():
                each.join()
        self._client.close()


@pytest.fixture
def cluster(tmp_path) -> Iterator[FaultyCluster]:
    with faulty_cluster(tmp_path) as cluster:
        yield cluster


@pytest.mark.parametrize("faults", SCENARIOS, ids=lambda faults: faults[0].__name__ if len(set(faults)) == 1 else "all")
def test_promises_hold_while_nodes_servers_and_networks_fail(cluster, tmp_path, faults):
    chance = random.Random(os.environ.get("TEST_SEED", "1"))
    with contextlib.closing(Clients(cluster, tmp_path)) as clients:
        clients.start()
        time.sleep(CALM_S)
        for fault in faults:
            clients.consumers.kill(chance)
            fault(cluster, chance)
            cluster.heal()
            clients.consumers.pause(chance)
            clients.publish_on()
            time.sleep(CALM_S)
        clients.finish()
    assert len(clients.history.streams) > CONSUMERS
    assert len(clients.history.observations) > len(faults)
    assert len(clients.history.registered) > len(faults)
    assert "\n".join(violations(clients.history)) == ""
