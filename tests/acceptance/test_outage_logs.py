"""Outages of Kafka, ZooKeeper and PostgreSQL are a few lines in the log of a node: what is away and when it is back."""

import re
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple
from uuid import uuid4

import pytest
from sqlalchemy import make_url

from rioni.cli.cluster.cluster import LocalCluster
from rioni.cli.cluster.servers import HOST
from tests.support.outages import Clients, running_clients
from tests.support.proxy import SOCKET
from tests.support.server import RunningServer, running_server
from tests.support.tcp_proxy import TcpProxy, proxies, proxies_to
from tests.support.waiting import wait_until


pytestmark = [pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.postgres, pytest.mark.slow]

AWAY_S = 5
"""More than all deadlines of the node, so that everything that needs the server fails."""
LINES_MAX = 12
LATE = "rioni.lags"
"""A server that took long to fail is asked again later, which may be in the next test."""
SETTINGS = {
    "RIONI_ZOOKEEPER_SESSION_TIMEOUT_S": "3",
    "RIONI_APPEND_TIMEOUT_S": "3",
    "RIONI_KAFKA_REQUEST_TIMEOUT_S": "3",
}


class Running(NamedTuple):
    """A node with clients, and the ways to what it depends on."""

    node: RunningServer
    clients: Clients
    kafka: LocalCluster
    zookeeper: TcpProxy
    postgres: TcpProxy


@pytest.fixture(scope="module")
def running(other_kafka_cluster, zookeeper_cluster, lasting_postgres_url, tmp_path_factory) -> Iterator[Running]:
    url = make_url(lasting_postgres_url())
    with proxies_to(zookeeper_cluster.zookeeper) as (to_zookeeper,), proxies(1) as (to_postgres,):
        to_postgres.target = f"{url.query['host']}/{SOCKET}"
        database = url.difference_update_query(["host"]).set(host=HOST, port=to_postgres.port)
        environment = SETTINGS | {
            "RIONI_KAFKA": other_kafka_cluster.kafka,
            "RIONI_ZOOKEEPER": f"{to_zookeeper.address}/{uuid4()}",
            "RIONI_DATABASE": database.render_as_string(hide_password=False),
        }
        data = tmp_path_factory.mktemp("data") / "rioni"
        with (
            running_server(data, "--workers", "1", environment=environment) as node,
            running_clients(node.url) as clients,
        ):
            yield Running(node, clients, other_kafka_cluster, to_zookeeper, to_postgres)


def kill_kafka(running: Running) -> Callable[[], object]:
    (broker,) = running.kafka.kafkas
    broker.kill()
    return broker.start


def end_zookeeper(running: Running) -> Callable[[], object]:
    running.zookeeper.refuse()
    return running.zookeeper.heal


def end_postgresql(running: Running) -> Callable[[], object]:
    running.postgres.refuse()
    return running.postgres.heal


@pytest.mark.parametrize(
    ("outage", "named", "again"),
    [
        (kill_kafka, "Kafka", "Kafka answers again|after='Kafka did not store|after='replacing the Kafka producer"),
        (end_zookeeper, "ZooKeeper", "ZooKeeper answers again"),
        (end_postgresql, "database|PostgreSQL", "the database lease was reacquired"),
    ],
    ids=["Kafka", "ZooKeeper", "PostgreSQL"],
)
def test_an_outage_is_a_few_lines_that_name_what_is_away_and_that_it_works_again(running, outage, named, again):
    # `again` is of this server alone: what failed in an earlier outage may say only now that it works again.
    before = len(running.node.lines)
    heal = outage(running)
    time.sleep(AWAY_S)
    meanwhile = "".join(line for line in running.node.lines[before:] if not re.search(LATE, line))
    heal()
    running.clients.recover(time.monotonic())

    def lines() -> list[str]:
        # There is a line for each stream and batch that was under way.
        return [line for line in running.node.lines[before:] if not re.search("stream started|recovered the", line)]

    wait_until(lambda: any(re.search(again, line) for line in lines()))
    said = "".join(lines())
    assert "Traceback" not in said
    assert re.search(named, said)
    assert "rejected" not in said
    assert not re.search(again, meanwhile), meanwhile
    assert len(said.splitlines()) <= LINES_MAX, said
