"""Default clients ride out the restart of their broker, and outages of what it depends on: no event fails.

Runs at night, or when this file is asked for: `HYPOTHESIS_PROFILE=nightly pytest tests/properties/test_outages.py -rP`,
which prints how many seconds after the server each client worked again. In the usual run `tests/client/test_retries.py`
has the same outages with its own clock, and the tests of each store have their faults.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from rioni.cli.cluster.cluster import LocalCluster, missing_programs, node, running_cluster
from rioni.cli.cluster.postgres import LocalPostgres, running_postgres
from rioni.cli.cluster.servers import HOST, Server, free_ports
from tests.support.outages import WITHOUT_KEYS, running_clients
from tests.support.postgres import crash, suspended


pytestmark = [
    pytest.mark.slow,
    pytest.mark.nightly,
    pytest.mark.kafka,
    pytest.mark.zookeeper,
    pytest.mark.postgres,
    pytest.mark.timeout(900),  # most of it is waiting
    pytest.mark.skipif(bool(missing_programs()), reason=missing_programs()),
]

LATE_MAX_S = 5.0
"""So soon after the server its clients must work again."""
SESSION_S = 10.0
"""So long after the death of a node ZooKeeper ends its sessions, and others get its partitions."""
AWAY_S = (30, 90)
CALM_S = 2.0
"""How long all works before and after the outage."""
STOP_S = 60


class Broker(NamedTuple):
    """A broker, and what it depends on."""

    server: Server
    url: str
    servers: LocalCluster | None
    postgres: LocalPostgres | None


def kill_the_broker(broker: Broker, _away_s: float) -> None:
    broker.server.kill()
    broker.server.start()


def restart_the_broker(broker: Broker, _away_s: float) -> None:
    broker.server.end(STOP_S)
    broker.server.start()


def suspend_kafka(broker: Broker, away_s: float) -> None:
    (kafka,) = broker.servers.kafkas
    kafka.pause()
    time.sleep(away_s)
    kafka.resume()


def kill_kafka(broker: Broker, away_s: float) -> None:
    (kafka,) = broker.servers.kafkas
    kafka.kill()
    time.sleep(away_s)
    kafka.start()


def suspend_postgresql(broker: Broker, away_s: float) -> None:
    with suspended(broker.postgres):
        time.sleep(away_s)


def crash_postgresql(broker: Broker, away_s: float) -> None:
    crash(broker.postgres)
    time.sleep(away_s)
    broker.postgres.ensure_postgres_running()


Outage = Callable[[Broker, float], None]
RESTARTS: tuple[Outage, ...] = (kill_the_broker, restart_the_broker)
OUTAGES: tuple[Outage, ...] = (suspend_kafka, kill_kafka, suspend_postgresql, crash_postgresql)
CASES = [
    *(pytest.param(kind, outage, 0, id=f"{kind}-{outage.__name__}") for kind in ("one", "node") for outage in RESTARTS),
    *(pytest.param("node", each, s, id=f"node-{each.__name__}-{s} s") for each in OUTAGES for s in AWAY_S),
]


@contextlib.contextmanager
def running_broker(kind: str, folder: Path) -> Iterator[Broker]:
    """A broker with the default settings: one that keeps all itself, or a node of a cluster of one."""
    with contextlib.ExitStack() as stack:
        servers, postgres, environment = None, None, {}
        if kind == "node":
            servers = stack.enter_context(running_cluster(zookeepers=1, postgres=False))
            postgres = stack.enter_context(running_postgres())
            environment = servers.environment | {"RIONI_DATABASE": postgres.get_uri(driver="psycopg")}
        (port,) = free_ports(1)
        server = node(folder, 0, port, environment)
        stack.callback(server.kill)
        server.start()
        server.wait()
        yield Broker(server, f"http://{HOST}:{port}", servers, postgres)


@pytest.mark.parametrize(("kind", "outage", "away_s"), CASES)
def test_no_event_fails_and_clients_work_again_soon_after_the_server(tmp_path, kind, outage, away_s):
    with running_broker(kind, tmp_path) as broker, running_clients(broker.url) as clients:
        time.sleep(CALM_S)
        outage(broker, away_s)
        late_s = clients.recover(time.monotonic())
        time.sleep(CALM_S)
        clients.stop()
        print({way: round(seconds, 1) for way, seconds in late_s.items()})  # noqa: T201 - the figures of the campaign
        for each in clients.publishers:
            assert [sent for sent in each.sent if sent.error is not None] == [], each.way
            numbers = [*range(len(each.sent))]
            assert sorted(set(clients.handled[each.event_type])) == numbers, each.way
            if each.way != WITHOUT_KEYS:
                assert clients.stored(each) == len(numbers), each.way
    latest_s = dict.fromkeys(late_s, LATE_MAX_S) | {"server": math.inf}
    if (kind, outage) == ("node", kill_the_broker):
        latest_s["consumer"] += SESSION_S
    assert {way: seconds for way, seconds in late_s.items() if seconds > latest_s[way]} == {}
