import itertools
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pytest

from rioni.cli.cluster.cluster import LocalCluster
from rioni.storage.clock import SystemClock
from rioni.storage.embedded.signals import EmbeddedSignals, SharedChangeFlags
from rioni.storage.zookeeper.coordination import ZooKeeperCoordinator
from rioni.storage.zookeeper.session import ZooKeeperSession
from rioni.storage.zookeeper.signals import ZooKeeperSignals
from tests.support.tcp_proxy import TcpProxy, proxies_to


class Process(NamedTuple):
    """The session, coordinator and signals of one worker process."""

    session: ZooKeeperSession
    signals: ZooKeeperSignals
    coordinator: ZooKeeperCoordinator
    flags: SharedChangeFlags

    def close(self) -> None:
        self.coordinator.close()
        self.signals.close()


@pytest.fixture
def hosts(zookeeper_cluster: LocalCluster) -> str:
    """The ensemble, with a path of the test's own."""
    return f"{zookeeper_cluster.zookeeper}/{uuid4()}/rioni"


@pytest.fixture
def start_at(tmp_path: Path) -> Callable[[str, float], Process]:
    """Starts the adapters of another process, on another machine; they are closed with the test."""
    numbers = itertools.count()

    def start_at(hosts: str, session_timeout_s: float) -> Process:
        session = ZooKeeperSession(hosts, clock=SystemClock(), session_timeout_s=session_timeout_s)
        directory = tmp_path / f"signals-{next(numbers)}"
        directory.mkdir()
        flags = SharedChangeFlags()
        signals = ZooKeeperSignals(session, EmbeddedSignals(directory, flags))
        coordinator = ZooKeeperCoordinator(session, signals.cache, clock=SystemClock(), watch=signals.watch)
        return Process(session, signals, coordinator, flags)

    return start_at


@pytest.fixture
def start(hosts: str, start_at: Callable[[str, float], Process]) -> Iterator[Callable[[], Process]]:
    """Starts the adapters of another process, on the path of the test."""
    started: list[Process] = []

    def start() -> Process:
        started.append(start_at(hosts, 10.0))
        return started[-1]

    yield start
    for process in started:
        process.close()


@pytest.fixture
def this(start: Callable[..., Process]) -> Process:
    return start()


@pytest.fixture
def coordinator(this: Process) -> ZooKeeperCoordinator:
    return this.coordinator


@pytest.fixture
def flags(this: Process) -> SharedChangeFlags:
    return this.flags


@pytest.fixture
def signals(this: Process) -> ZooKeeperSignals:
    return this.signals


@pytest.fixture
def cut_off(
    zookeeper_cluster: LocalCluster, hosts: str, start_at: Callable[[str, float], Process]
) -> Iterator[tuple[Process, TcpProxy]]:
    """A process, and the proxy between it and ZooKeeper."""
    with (
        proxies_to(zookeeper_cluster.zookeeper) as (way,),
        closing(start_at(f"{way.address}/{hosts.partition('/')[2]}", 5.0)) as process,
    ):
        yield process, way
