import json
import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rioni.cli.cluster.servers import free_ports
from rioni.domain.errors import Unavailable
from rioni.storage.embedded.signals import EmbeddedSignals
from rioni.storage.zookeeper.factory import ZooKeeperOptions, open_shared
from rioni.storage.zookeeper.nodes import WORKERS
from tests.contracts.coordination import ALL


@pytest.fixture
def local(tmp_path: Path) -> Iterator[EmbeddedSignals]:
    with closing(EmbeddedSignals(tmp_path)) as local:
        yield local


@pytest.mark.zookeeper
def test_with_a_password_other_clients_have_no_access(hosts: str, local: EmbeddedSignals):
    options = ZooKeeperOptions(user="rioni", password="secret")
    ours = open_shared(hosts, local, options=options)
    ours.coordinator.initialise("s", ALL)
    for others in (ZooKeeperOptions(), ZooKeeperOptions(user="rioni", password="wrong")):
        with pytest.raises(Unavailable, match="ZooKeeper authentication failed"):
            open_shared(hosts, local, options=others)
    again = open_shared(hosts, local, options=options)
    assert again.coordinator.cursors("s") == ALL
    again.coordinator.close()
    ours.coordinator.close()


@pytest.mark.zookeeper
def test_closing_removes_the_worker_from_the_registry(hosts: str, local: EmbeddedSignals):
    one, two = open_shared(hosts, local), open_shared(hosts, local)
    one.coordinator.close()
    one.coordinator.close()
    assert not two.coordinator.is_alive(one.coordinator.worker)
    assert two.coordinator.is_alive(two.coordinator.worker)
    two.coordinator.close()


def test_the_error_without_an_answering_server_names_the_hosts(local: EmbeddedSignals):
    (port,) = free_ports(1)
    with pytest.raises(Unavailable, match=rf"^ZooKeeper at 127.0.0.1:{port}/rioni can't be used: .* reached"):
        open_shared(f"127.0.0.1:{port}/rioni", local, session_timeout_s=1)


@pytest.mark.parametrize("hosts", ["", "host:port", "/rioni"])
def test_invalid_hosts_are_rejected(local: EmbeddedSignals, hosts: str):
    with pytest.raises(Unavailable, match="setting `zookeeper`"):
        open_shared(hosts, local)


@pytest.mark.zookeeper
def test_workers_publish_their_identity_and_their_log_position(hosts: str, local: EmbeddedSignals, this):
    shared = open_shared(hosts, local)
    path = f"{WORKERS}/{shared.coordinator.worker}"
    for position in (7, 8, 8):
        shared.publish_position(position)
        ((data, stat),) = this.session.request(lambda client: client.get_async(path))
        assert json.loads(data) == {"host": socket.gethostname(), "pid": os.getpid(), "position": position}
    assert stat.version == 2
    shared.coordinator.close()
    assert this.session.request(lambda client: client.exists_async(path)) == [None]
    shared.publish_position(9)


@pytest.mark.zookeeper
def test_a_path_belongs_to_one_installation(hosts: str, local: EmbeddedSignals):
    """Two clusters on one path would share cursors and locks, and delete each other's."""
    first = open_shared(hosts, local)
    with closing(first.coordinator):
        first.claim("one", None)
        first.claim("one", None)
        again = open_shared(hosts, local)
        with closing(again.coordinator):
            again.claim("one", None)
            with pytest.raises(Unavailable, match=r"belongs to another installation, one; .* is that of two"):
                again.claim("two", None)
    elsewhere = open_shared(f"{hosts}-elsewhere", local)
    with closing(elsewhere.coordinator):
        elsewhere.claim("two", None)
