"""Brokers that do not coordinate with each other never use one database at the same time."""

import contextlib
import threading

import psycopg
import pytest
from sqlalchemy import make_url

from rioni.domain.errors import Unavailable
from rioni.storage.sql import database_connections
from rioni.storage.sql.database_locks import ClusterIdentity, DatabaseLease
from rioni.storage.sql.engines import create_engine
from tests.support.proxy import proxy_to
from tests.support.waiting import wait_until


pytestmark = pytest.mark.postgres

WAIT_S = 20.0
"""The timeout of waits that are expected to succeed."""

ONE, OTHER = (
    ClusterIdentity("one", "a broker without zookeeper on here"),
    ClusterIdentity("other", "a node with zookeeper path / on there"),
)


@pytest.fixture
def url(postgres_url):
    return postgres_url()


@pytest.fixture
def process():
    """Creates the lease of one process; it is closed with the test."""
    with contextlib.ExitStack() as stack:

        def make(url: str, cluster: ClusterIdentity) -> DatabaseLease:
            lease = DatabaseLease(create_engine(url), cluster)
            stack.callback(lease.close)
            return lease

        yield make


def end_sessions(url):
    """End all connections, as a restart of the server does."""
    with psycopg.connect(make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)) as stranger:
        return stranger.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND application_name IN (%s, %s)",
            (ONE.name, OTHER.name),
        ).rowcount


def test_nodes_of_one_cluster_share_a_database(url, process):
    members = [process(url, ONE).acquire(0) for _ in range(6)]
    assert all(map(_checked, members))


def test_the_error_for_others_names_the_holder_and_the_remedy(url, process):
    process(url, ONE).acquire(0)
    with pytest.raises(
        Unavailable, match=r"in use by a broker without zookeeper on here\..*Stop the other broker or use another"
    ):
        process(url, OTHER).acquire(0)


def test_a_rejected_process_leaves_nothing_behind(url, process):
    held = process(url, ONE).acquire(0)
    with pytest.raises(Unavailable):
        process(url, OTHER).acquire(0)
    process(url, ONE).acquire(0)
    held.check()


def test_the_next_cluster_waits_for_the_last_node_to_leave(url, process):
    first, second = (process(url, ONE).acquire(0) for _ in range(2))
    coming = process(url, OTHER)
    arrival = threading.Thread(target=coming.acquire, args=(WAIT_S,))
    arrival.start()
    first.close()
    wait_until(lambda: coming.refusal)
    assert arrival.is_alive()
    second.close()
    arrival.join()
    coming.check()


def test_of_concurrent_acquisitions_those_of_one_cluster_succeed(url, process):
    arrivals = [process(url, ClusterIdentity(str(number), f"number {number}")) for number in range(8)]
    acquired = []

    def acquire(lease):
        with contextlib.suppress(Unavailable):
            acquired.append(lease.acquire(0))

    threads = [threading.Thread(target=acquire, args=(each,)) for each in arrivals]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(acquired) == 1


def test_databases_of_one_server_are_leased_independently(postgres_url, process):
    one, other = process(postgres_url(), ONE).acquire(0), process(postgres_url(), OTHER).acquire(0)
    assert _checked(one)
    assert _checked(other)


def test_a_lost_lock_is_acquired_again(url, process):
    held = process(url, ONE).acquire(0)
    assert end_sessions(url) == 1
    wait_until(lambda: _rejected(process(url, OTHER)))
    wait_until(lambda: _checked(held))
    assert not held.refusal


def test_a_lost_lock_is_noticed_though_the_server_can_not_be_reached(url, process):
    with proxy_to(url) as proxy:
        held = process(proxy.url, ONE).acquire(0)
        proxy.close()
        other = process(url, OTHER).acquire(WAIT_S)
        with pytest.raises(Unavailable, match="lost with its connection"):
            wait_until(held.check)
    held.close()
    other.close()


def test_a_process_that_lost_the_lease_names_the_new_holder_and_gets_it_back_afterwards(url, process):
    held = process(url, ONE).acquire(0)
    # If its own thread is late, the result is the same.
    other = process(url, OTHER)
    while not _acquired(other):
        end_sessions(url)
    wait_until(lambda: OTHER.name in held.refusal)
    with pytest.raises(Unavailable, match="in use by a node with zookeeper"):
        held.check()
    other.close()
    wait_until(lambda: not held.refusal)
    held.check()


def test_the_server_detects_a_silent_host_by_tcp_keepalives(url, monkeypatch):
    options = []
    connect = database_connections.connect

    def recording(arguments, parameters):
        options.append(parameters["options"])
        return connect(arguments, parameters)

    monkeypatch.setattr(database_connections, "connect", recording)
    engine = create_engine(url)
    with engine.connect():
        for setting in ("tcp_keepalives_idle=10", "tcp_keepalives_interval=5", "tcp_keepalives_count=3"):
            assert f"-c {setting}" in options[0]
    engine.dispose()


def test_an_sqlite_file_needs_no_lease_besides_the_lock_of_its_directory(tmp_path, process):
    for cluster in (ONE, OTHER):
        assert _checked(process(f"sqlite:///{tmp_path / 'registry.db'}", cluster).acquire(0))


def _acquired(lease):
    try:
        lease.acquire(0)
    except Unavailable:
        return False
    return True


def _rejected(lease):
    if acquired := _acquired(lease):
        lease.close()
    return not acquired


def _checked(lease):
    try:
        lease.check()
    except Unavailable:
        return False
    return True
