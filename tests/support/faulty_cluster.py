"""A whole cluster of real servers and nodes, in which everything can be killed, paused, cut off and restored."""

import contextlib
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import make_url

from rioni.cli.cluster.cluster import Detours, LocalCluster, node, running_cluster
from rioni.cli.cluster.postgres import running_postgres
from rioni.cli.cluster.servers import HOST, Server, free_ports
from tests.support.postgres import crash
from tests.support.proxy import SOCKET
from tests.support.tcp_proxy import TcpProxy, proxies, proxies_to


NODES = 3
BROKERS = 3
SESSION_TIMEOUT_S = 3
APPEND_TIMEOUT_S = 5
SETTINGS = {
    "RIONI_ZOOKEEPER_SESSION_TIMEOUT_S": str(SESSION_TIMEOUT_S),
    "RIONI_APPEND_TIMEOUT_S": str(APPEND_TIMEOUT_S),
    "RIONI_KAFKA_REQUEST_TIMEOUT_S": "5",
}


class NodeProxies(NamedTuple):
    """The proxies of one node, to each of the servers."""

    kafka: Sequence[TcpProxy]
    zookeeper: Sequence[TcpProxy]
    postgres: Sequence[TcpProxy]


class KafkaProxies:
    """The proxies to each of the Kafka brokers: from each node, and from each broker as a broker and as controller."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        def ways(sources: int) -> list[Sequence[TcpProxy]]:
            return [stack.enter_context(proxies(BROKERS)) for _ in range(sources)]

        self.from_nodes, self._copies, self._votes = ways(NODES), ways(BROKERS), ways(BROKERS)
        self._all = [*self.from_nodes, *self._copies, *self._votes]

    def detours(self) -> Detours:
        """The settings by which all connections go through these proxies: brokers advertise the proxies' ports."""
        ports = [[ways[broker].port for ways in self._all] for broker in range(BROKERS)]
        return Detours(ports, [self._settings(broker) for broker in range(BROKERS)], self._lead)

    def _settings(self, broker: int) -> dict[str, object]:
        first = NODES + BROKERS
        # A broker connects to the others through its first listener; they connect to it through all.
        doors = sorted(range(first, first + BROKERS), key=lambda door: door != first + broker)
        voters = enumerate(self._votes[broker], 1)
        return {
            "inter.broker.listener.name": f"DOOR{NODES + broker}",
            "controller.listener.names": ",".join([*(f"DOOR{door}" for door in doors), "CONTROLLER"]),
            "controller.quorum.voters": ",".join(f"{number}@{way.address}" for number, way in voters),
        }

    def _lead(self, ports: Sequence[Sequence[int]]) -> None:
        for number, broker in itertools.product(range(len(self._all)), range(BROKERS)):
            self._all[number][broker].target = (HOST, ports[broker][number])

    def cut_off(self, broker: int) -> None:
        """Cut the connections between one Kafka broker and the others; nodes still reach all of them."""
        for ways in (self._copies, self._votes):
            for source, target in itertools.product(range(BROKERS), repeat=2):
                if (source == broker) != (target == broker):
                    ways[source][target].cut()

    def heal(self) -> None:
        """Restore all connections."""
        for way in itertools.chain(*self._all):
            way.heal()


class FaultyCluster:
    """Three nodes, and the servers that they share; each node reaches all servers through proxies of its own."""

    def __init__(
        self,
        servers: LocalCluster,
        brokers: KafkaProxies,
        postgres: Any,
        nodes: Mapping[str, Server],
        ways: Sequence[NodeProxies],
    ) -> None:
        self.brokers = brokers
        self.kafkas, self.zookeepers, self._postgres = servers.kafkas, servers.zookeepers, postgres
        self.nodes = list(nodes.values())
        self.urls = list(nodes)
        self.ways = ways
        self.kills: list[tuple[float, float]] = []
        """When nodes were killed, and when the clients connected to them must have noticed."""

    def kill_node(self, number: int) -> None:
        """End all processes of a node."""
        begun = time.monotonic()
        self.nodes[number].kill()
        self.kills.append((begun, time.monotonic() + 2))

    def crash_postgres(self) -> None:
        """End PostgreSQL without a checkpoint, and all its connections."""
        crash(self._postgres)

    def start_postgres(self) -> None:
        """Start it again, which recovers what was committed."""
        self._postgres.ensure_postgres_running()

    def heal(self) -> None:
        """Restore everything, and wait until all nodes report that they are ready."""
        self.start_postgres()
        servers = [*self.zookeepers, *self.kafkas]
        for server in [*servers, *self.nodes]:
            server.resume()
            if not server.alive:
                server.start()
        for way in (each for ways in self.ways for kind in ways for each in kind):
            way.heal()
        self.brokers.heal()
        for server in [*servers, *self.nodes]:
            server.wait()


@contextlib.contextmanager
def faulty_cluster(folder: Path) -> Iterator[FaultyCluster]:
    """Start three Kafkas, three ZooKeepers, a PostgreSQL and three nodes; all end with the block."""
    with contextlib.ExitStack() as stack:
        brokers = KafkaProxies(stack)
        servers = stack.enter_context(
            running_cluster(brokers=BROKERS, zookeepers=3, postgres=False, detours=brokers.detours())
        )
        postgres = stack.enter_context(running_postgres())
        nodes, ways = {}, []
        for number, port in enumerate(free_ports(NODES)):
            to_zookeeper = stack.enter_context(proxies_to(servers.zookeeper))
            (to_postgres,) = stack.enter_context(proxies(1))
            url = make_url(postgres.get_uri(driver="psycopg"))
            to_postgres.target = f"{url.query['host']}/{SOCKET}"
            url = url.difference_update_query(["host"]).set(host=HOST, port=to_postgres.port)
            ways.append(NodeProxies(brokers.from_nodes[number], to_zookeeper, [to_postgres]))
            environment = SETTINGS | {
                "RIONI_KAFKA": _addresses(brokers.from_nodes[number]),
                "RIONI_ZOOKEEPER": _addresses(to_zookeeper) + "/rioni",
                "RIONI_DATABASE": url.render_as_string(hide_password=False),
            }
            server = node(folder / f"node-{number}", number, port, environment)
            nodes[f"http://{HOST}:{port}"] = server
            stack.callback(server.kill)
            server.start()
        for server in nodes.values():
            server.wait()
        yield FaultyCluster(servers, brokers, postgres, nodes, ways)


def _addresses(ways: Sequence[TcpProxy]) -> str:
    return ",".join(way.address for way in ways)
