"""Nodes of a whole cluster of real servers, in which everything can be killed, paused, cut off and healed again."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rioni.local_cluster.cluster import LocalCluster, running_cluster, running_postgres
from rioni.local_cluster.nodes import node
from rioni.local_cluster.servers import HOST, Server, free_ports
from tests.support.tcp_proxy import TcpProxy, proxies_to


NODES = 3
SESSION_TIMEOUT_S = 3
APPEND_TIMEOUT_S = 5
SETTINGS = {
    "RIONI_ZOOKEEPER_SESSION_TIMEOUT_S": str(SESSION_TIMEOUT_S),
    "RIONI_APPEND_TIMEOUT_S": str(APPEND_TIMEOUT_S),
    "RIONI_KAFKA_REQUEST_TIMEOUT_S": "5",
}


class FaultyCluster:
    """Three nodes, and what they share; each node has ways to ZooKeeper of its own."""

    def __init__(
        self, servers: LocalCluster, postgres: Any, nodes: Mapping[str, Server], ways: Sequence[Sequence[TcpProxy]]
    ) -> None:
        self.kafkas, self.zookeepers, self._postgres = servers.kafkas, servers.zookeepers, postgres
        self.nodes = list(nodes.values())
        self.urls = list(nodes)
        self.ways = ways
        self.kills: list[tuple[float, float]] = []
        """When nodes were killed, and when those who had connections must have noticed."""
        self.sound = threading.Event()
        """Set while nothing is broken."""
        self.sound.set()

    def kill_node(self, number: int) -> None:
        """End all processes of a node."""
        begun = time.monotonic()
        self.nodes[number].kill()
        self.kills.append((begun, time.monotonic() + 2))

    def crash_postgres(self) -> None:
        """End PostgreSQL without a checkpoint, and all its connections."""
        pid = self._postgres.get_pid()
        os.kill(pid, signal.SIGQUIT)
        while Path(f"/proc/{pid}").exists():
            time.sleep(0.01)

    def start_postgres(self) -> None:
        """Start it again, which recovers what was committed."""
        self._postgres.ensure_postgres_running()

    def heal(self) -> None:
        """Let everything work again, and wait until all nodes say that it does."""
        self.start_postgres()
        servers = [*self.zookeepers, *self.kafkas]
        for server in [*servers, *self.nodes]:
            server.resume()
            if not server.alive:
                server.start()
        for way in (each for ways in self.ways for each in ways):
            way.heal()
        for server in [*servers, *self.nodes]:
            server.wait()


@contextlib.contextmanager
def faulty_cluster(folder: Path) -> Iterator[FaultyCluster]:
    """Start three Kafkas, three ZooKeepers, a PostgreSQL and three nodes; all end with the block."""
    with (
        running_cluster(brokers=3, zookeepers=3, postgres=False) as servers,
        running_postgres() as postgres,
        contextlib.ExitStack() as stack,
    ):
        nodes, ways = {}, []
        for number, port in enumerate(free_ports(NODES)):
            ways.append(stack.enter_context(proxies_to(servers.zookeeper)))
            environment = SETTINGS | {
                "RIONI_KAFKA": servers.kafka,
                "RIONI_ZOOKEEPER": ",".join(way.address for way in ways[-1]) + "/rioni",
                "RIONI_DATABASE": postgres.get_uri(driver="psycopg"),
            }
            server = node(folder / f"node-{number}", number, port, environment)
            nodes[f"http://{HOST}:{port}"] = server
            stack.callback(server.kill)
            server.start()
        for server in nodes.values():
            server.wait()
        yield FaultyCluster(servers, postgres, nodes, ways)
