"""Streams while ZooKeeper, the connection to it, or a process does not answer for a while."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing, suppress
from pathlib import Path
from uuid import uuid4

import pytest
from kazoo.client import KazooClient
from kazoo.protocol.states import Callback
from structlog.testing import capture_logs

from rioni.cli.cluster.cluster import LocalCluster, running_cluster
from rioni.domain.errors import Invalid, Unavailable
from rioni.domain.ports.coordinator import Assignment
from rioni.domain.timelines.position import EventTypePartition
from rioni.storage.clock import SystemClock
from rioni.storage.zookeeper.nodes import WORKERS
from rioni.storage.zookeeper.quota import ZooKeeperConnectionQuota
from tests.contracts.coordination import A0, A1, ALL, ENOUGH_S, name, offset
from tests.support.tcp_proxy import proxies_to
from tests.support.waiting import wait_until


pytestmark = [pytest.mark.zookeeper, pytest.mark.slow]

SESSION_TIMEOUT_S = 2.0

WORKER = """
import sys
from pathlib import Path
import structlog
from rioni.domain.timelines.position import EventTypePartition
from rioni.domain.timelines.position import format_offset
from rioni.storage.embedded.signals import EmbeddedSignals
from rioni.storage.zookeeper.factory import open_shared

structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
hosts, data, subscription, stream = sys.argv[1:]
coordinator = open_shared(hosts, EmbeddedSignals(Path(data)), session_timeout_s=2).coordinator
coordinator.join(subscription, stream)
key = EventTypePartition("a", "0")
print("joined", flush=True)
for position in map(int, sys.stdin):
    try:
        print(coordinator.commit(subscription, stream, [(key, format_offset(1, position))]), flush=True)
    except Exception as error:
        print(error, flush=True)
    print(stream in coordinator.topology(subscription).sessions, flush=True)
"""


def expire(process, hosts: str = "") -> None:
    """End the session of a process as ZooKeeper does after its timeout: this needs only the session's password."""
    twin = KazooClient(
        hosts or ",".join(f"{host}:{port}" for host, port in process.session._client.hosts),
        client_id=process.session._client.client_id,
    )
    twin.start()
    twin.stop()
    twin.close()


@pytest.fixture
def subscription(coordinator) -> str:
    subscription = name()
    coordinator.initialise(subscription, ALL)
    return subscription


def test_a_broken_connection_ends_no_stream(this, coordinator, subscription, start):
    stream = name()
    coordinator.join(subscription, stream)
    for position in range(5):
        worker = coordinator.worker
        this.session.handler.disconnect()
        assert coordinator.commit(subscription, stream, [(A0, offset(position))]) == [True]
        this.session.handler.disconnect()
        assert stream in coordinator.topology(subscription).sessions
        # At first in the last known state: streams don't wait for the connection.
        wait_until(lambda: coordinator.cursors(subscription)[A0] == offset(position))  # noqa: B023 - at once
        assert coordinator.worker == worker
    assert start().coordinator.topology(subscription).partitions[A0] == Assignment(stream)


def initialised(coordinator, subscription, keys):
    """Whether the subscription has all cursors; a server that is slow with them may close the connection."""
    with suppress(Unavailable):
        coordinator.initialise(subscription, dict.fromkeys(keys, offset(-1)))
        return len(coordinator.cursors(subscription)) == len(keys)


def known(coordinator, subscription, key):
    """The cursor of a partition; None while a server that is slow with that many cursors has closed the connection."""
    with suppress(Unavailable):
        return coordinator.cursors(subscription)[key]


def test_a_connection_is_restored_however_many_nodes_are_watched(hosts, start_at):
    with closing(start_at(hosts, SESSION_TIMEOUT_S)) as process:
        coordinator, session = process.coordinator, process.session
        subscription, stream = name(), name()
        keys = [EventTypePartition("a", str(number)) for number in range(4_000)]
        watch = process.signals.watch([f"subscription:{subscription}"])
        wait_until(lambda: initialised(coordinator, subscription, keys))
        coordinator.join(subscription, stream)
        session.handler.disconnect()
        wait_until(lambda: not session.connected)
        wait_until(lambda: session.connected)
        assert coordinator.commit(subscription, stream, [(keys[0], offset(1))]) == [True]
        worker = session.worker
        expire(process)
        wait_until(lambda: session.worker != worker and session.is_session_safe())
        coordinator.join(subscription, name())
        wait_until(lambda: known(coordinator, subscription, keys[0]) == offset(1))
        watch.close()


def test_a_process_too_busy_to_handle_notifications_does_not_answer(hosts, start_at):
    with closing(start_at(hosts, SESSION_TIMEOUT_S)) as busy:
        done = threading.Event()
        busy.session.handler.dispatch_callback(Callback("busy", done.wait, ()))
        with pytest.raises(Unavailable):
            busy.session.barrier()
        done.set()
        busy.session.barrier()


def test_a_new_owner_of_a_partition_does_not_begin_before_the_committed_cursor(cut_off, coordinator, subscription):
    process, way = cut_off
    assert process.coordinator.cursors(subscription)[A0] == offset(-1)
    before, stream = name(), name()
    coordinator.join(subscription, before)
    assert coordinator.commit(subscription, before, [(A0, offset(9))]) == [True]
    coordinator.leave(subscription, before)
    process.coordinator.join(subscription, stream)
    assert process.coordinator.topology(subscription).partitions[A0] == Assignment(stream)
    way.cut()
    way.break_off()
    with ThreadPoolExecutor() as pool:
        cursors = pool.submit(process.coordinator.cursors, subscription)
        way.heal()
        assert cursors.result()[A0] == offset(9)


def test_reading_committed_cursors_never_returns_outdated_ones(cut_off, coordinator, subscription):
    process, way = cut_off
    own, stream = name(), name()
    process.coordinator.join(subscription, own, [A1])
    coordinator.join(subscription, stream, [A0])
    wait_until(lambda: process.coordinator.topology(subscription).partitions[A0] == Assignment(stream))
    assert process.coordinator.cursors(subscription)[A0] == offset(-1)
    way.cut()
    assert coordinator.commit(subscription, stream, [(A0, offset(9))]) == [True]
    with ThreadPoolExecutor() as pool:
        committed = pool.submit(process.coordinator.committed, subscription)
        way.break_off()
        wait_until(lambda: not process.session.connected)
        # Its own streams continue with the cached state.
        assert process.coordinator.cursors(subscription)[A0] == offset(-1)
        way.heal()
        assert committed.result()[A0] == offset(9)


def test_the_log_position_of_a_worker_is_published_however_late(cut_off, this):
    process, way = cut_off
    way.cut_answer_to(b'"position":7')
    with ThreadPoolExecutor() as pool:
        reported = pool.submit(process.session.publish_position, 7)
        wait_until(lambda: b'"position":7' in entry_of(process, this))
        way.break_off()
        reported.result()
    process.session.publish_position(8)
    way.heal()

    def is_there() -> bool:
        process.session.publish_position(8)
        return b'"position":8' in entry_of(process, this)

    wait_until(is_there)


def entry_of(process, witness) -> bytes:
    """The worker's entry in the registry of workers."""
    path = f"{WORKERS}/{process.session.worker}"
    return witness.session.request(lambda client: client.get_async(path))[0][0]


def test_calls_after_closing_fail_at_once(this, coordinator, subscription):
    coordinator.close()
    before_s = time.monotonic()
    with pytest.raises(Unavailable):
        coordinator.topology(subscription)
    assert time.monotonic() - before_s < this.session.timeout_s / 2


def test_a_subscription_recreated_after_data_loss_is_not_taken_for_the_old_one(coordinator, subscription, start):
    other = start().coordinator
    for each in (coordinator, other):
        assert each.topology(subscription).partitions.keys() == ALL.keys()
    coordinator.delete(subscription)
    coordinator.initialise(subscription, {A0: offset(1)})
    for each in (coordinator, other):
        assert each.topology(subscription).partitions.keys() == {A0}
        assert each.cursors(subscription) == {A0: offset(1)}


def test_the_log_says_when_zookeeper_is_back(this):
    with capture_logs() as logged:
        this.session.handler.disconnect()
        wait_until(lambda: [line["event"] for line in logged] == ["ZooKeeper answers again"])


def test_changes_while_the_connection_was_broken_are_noticed(this, signals, coordinator, subscription, start):
    other, stream = start().coordinator, name()
    other.join(subscription, stream)
    watch = signals.watch([f"subscription:{subscription}", f"stream:{stream}"])
    for position in range(5):
        this.session.handler.disconnect()
        assert other.commit(subscription, stream, [(A0, offset(position))]) == [True]
        while coordinator.cursors(subscription)[A0] != offset(position):
            assert watch.wait(ENOUGH_S)
    watch.close()


def test_when_the_session_ends_its_streams_end_and_their_commits_are_rejected(this, coordinator, subscription, start):
    other = start().coordinator
    mine, theirs = name(), name()
    coordinator.join(subscription, mine)
    coordinator.commit(subscription, mine, [(A0, offset(3))])
    other.join(subscription, theirs)
    worker = coordinator.worker
    assert other.is_alive(worker)
    expire(this)
    wait_until(lambda: set(other.topology(subscription).partitions.values()) == {Assignment(theirs)})
    assert not other.is_alive(worker)
    with pytest.raises(Invalid, match=f"Session with stream id {mine} not found"):
        coordinator.commit(subscription, mine, [(A0, offset(4))])
    assert set(coordinator.topology(subscription).sessions) == {theirs}
    wait_until(lambda: other.is_alive(coordinator.worker))
    assert coordinator.worker != worker
    assert coordinator.cursors(subscription)[A0] == offset(3)
    coordinator.join(subscription, name())


def test_a_stored_commit_whose_answer_was_lost_with_the_session_is_not_rejected(
    zookeeper_cluster, coordinator, subscription, hosts, start_at
):
    with proxies_to(zookeeper_cluster.zookeeper) as (way,), ThreadPoolExecutor() as pool:
        path = hosts.partition("/")[2]
        with closing(start_at(f"{way.address}/{path}", 5.0)) as cut_off:
            stream = name()
            cut_off.coordinator.join(subscription, stream)
            assert cut_off.coordinator.commit(subscription, stream, [(A0, offset(1))]) == [True]
            way.cut(there=False)
            answer = pool.submit(cut_off.coordinator.commit, subscription, stream, [(A0, offset(2))])
            wait_until(lambda: coordinator.cursors(subscription)[A0] == offset(2))
            expire(cut_off, zookeeper_cluster.zookeeper)
            wait_until(lambda: not cut_off.session.connected)
            way.heal()
            assert answer.result() == [True]
            with pytest.raises(Invalid, match="not found"):
                cut_off.coordinator.commit(subscription, stream, [(A0, offset(2))])


def test_a_join_whose_answer_was_lost_is_done_once_when_the_connection_is_back(cut_off, coordinator, subscription):
    process, way = cut_off
    stream = name()
    way.cut_answer_to(stream.encode())
    with ThreadPoolExecutor() as pool:
        joined = pool.submit(process.coordinator.join, subscription, stream)
        wait_until(lambda: stream in coordinator.topology(subscription).sessions)
        way.break_off()
        way.heal()
        joined.result()
    assert set(coordinator.topology(subscription).partitions.values()) == {Assignment(stream)}
    assert process.coordinator.commit(subscription, stream, [(A0, offset(1))]) == [True]


def test_a_join_that_was_reported_as_failed_owns_nothing_though_it_was_written(cut_off, coordinator, subscription):
    process, way = cut_off
    stream = name()
    way.cut_answer_to(stream.encode())
    with ThreadPoolExecutor() as pool:
        joined = pool.submit(process.coordinator.join, subscription, stream)
        wait_until(lambda: stream in coordinator.topology(subscription).sessions)
        while not joined.done():
            # Each attempt to connect keeps the session alive, though its answers are lost.
            way.break_off()
            wait([joined], timeout=0.5)
        with pytest.raises(Unavailable):
            joined.result()
    assert not process.coordinator.owns(stream)
    way.heal()

    def is_over() -> bool:
        process.coordinator.expire_dead_sessions()
        return coordinator.topology(subscription).sessions == {}

    wait_until(is_over)


def begun_without_an_answer(pool, cut_off, coordinator, subscription):
    """A reset by the process that is cut off, which is written without an answer."""
    process, way = cut_off
    way.cut_answer_to(b"reset-")
    reset = pool.submit(process.coordinator.reset, subscription, {A0: offset(3)}, ENOUGH_S)
    wait_until(lambda: coordinator.topology(subscription).resetting)
    return reset


def test_a_reset_continues_when_the_answer_to_its_first_write_was_lost(cut_off, coordinator, subscription):
    _, way = cut_off
    with ThreadPoolExecutor() as pool:
        reset = begun_without_an_answer(pool, cut_off, coordinator, subscription)
        way.break_off()
        way.heal()
        assert reset.result() == {A0: offset(-1)}
    assert not coordinator.topology(subscription).resetting
    assert coordinator.cursors(subscription)[A0] == offset(3)


def test_a_reset_without_a_process_that_runs_it_is_ended(cut_off, coordinator, subscription):
    process, way = cut_off
    with ThreadPoolExecutor() as pool:
        reset = begun_without_an_answer(pool, cut_off, coordinator, subscription)
        while not reset.done():
            # Each attempt to connect keeps the session alive, though its answers are lost.
            way.break_off()
            wait([reset], timeout=0.5)
        with pytest.raises(Unavailable):
            reset.result()
    way.heal()

    def is_over() -> bool:
        process.coordinator.expire_dead_sessions()
        return not coordinator.topology(subscription).resetting

    wait_until(is_over)
    assert coordinator.cursors(subscription)[A0] == offset(-1)


def test_a_reset_waits_for_a_stream_that_only_its_own_process_considers_lost(cut_off, coordinator, subscription):
    process, way = cut_off
    stream = name()
    process.coordinator.join(subscription, stream)
    with ThreadPoolExecutor() as pool:
        reset = pool.submit(process.coordinator.reset, subscription, {A0: offset(3)}, 6)
        wait_until(lambda: coordinator.topology(subscription).resetting)
        way.cut(there=False)
        wait_until(lambda: not process.session.is_session_safe())
        way.heal()
        with pytest.raises(Unavailable):
            reset.result()
    assert coordinator.topology(subscription).sessions.keys() == {stream}
    assert coordinator.commit(subscription, stream, [(A0, offset(1))]) == [True]


def test_connection_slots_outlive_the_session_of_a_live_process(this, start):
    slots = ZooKeeperConnectionQuota(this.session, SystemClock())
    assert slots.acquire("one", {"a": 2}) == []
    worker = this.session.worker
    expire(this)
    wait_until(lambda: this.session.worker != worker and this.session.is_session_safe())
    other = ZooKeeperConnectionQuota(start().session, SystemClock())
    assert slots.acquire("two", {"b": 1}) == []
    assert other.acquire("three", {"a": 2}) == []
    assert other.acquire("four", {"a": 2}) == ["a"]


def test_a_process_that_was_suspended_too_long_has_lost_its_partitions(hosts, coordinator, subscription, tmp_path):
    theirs, mine = name(), name()
    command = [sys.executable, "-c", WORKER, hosts, str(tmp_path), subscription, theirs]
    with subprocess.Popen(
        command, cwd=Path(__file__).parents[3], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:

        def commit(position: int) -> list[str]:
            process.stdin.write(f"{position}\n")
            process.stdin.flush()
            return [process.stdout.readline().strip() for _ in range(2)]

        assert process.stdout.readline() == "joined\n"
        assert commit(1) == ["[True]", "True"]
        os.kill(process.pid, signal.SIGSTOP)
        coordinator.join(subscription, mine)
        wait_until(lambda: set(coordinator.topology(subscription).partitions.values()) == {Assignment(mine)})
        assert coordinator.commit(subscription, mine, [(A0, offset(2))]) == [True]
        os.kill(process.pid, signal.SIGCONT)
        assert commit(3) == [f"Session with stream id {theirs} not found", "False"]
        assert coordinator.cursors(subscription)[A0] == offset(2)
        process.stdin.close()


@pytest.fixture
def own_cluster() -> Iterator[LocalCluster]:
    """A cluster that a test may damage."""
    with running_cluster(brokers=0, zookeepers=1, postgres=False) as cluster:
        yield cluster


@pytest.fixture
def only_process(own_cluster: LocalCluster, start_at) -> Iterator:
    with closing(start_at(f"{own_cluster.zookeeper}/{uuid4()}", SESSION_TIMEOUT_S)) as process:
        yield process


def test_without_zookeeper_streams_continue_until_others_may_have_taken_over(own_cluster, only_process):
    """Reference operations#worker-death."""
    (zookeeper,) = own_cluster.zookeepers
    coordinator, session = only_process.coordinator, only_process.session
    subscription, stream = name(), name()
    coordinator.initialise(subscription, ALL)
    coordinator.join(subscription, stream)
    deleted = name()
    coordinator.initialise(deleted, ALL)
    watch = only_process.signals.watch([f"subscription:{subscription}"])
    coordinator.topology(subscription)
    cursors = coordinator.cursors(subscription)
    zookeeper.pause()
    paused_at_s = time.monotonic()
    looks = []
    while stream in coordinator.topology(subscription).sessions:
        looks.append(coordinator.cursors(subscription) == cursors)
        assert coordinator.heartbeats(subscription) == dict.fromkeys(ALL, 0)
        assert coordinator.delivery_failures(subscription) == {}
        assert time.monotonic() - paused_at_s < SESSION_TIMEOUT_S
        watch.wait(SESSION_TIMEOUT_S)
    assert not coordinator.owns(stream)
    assert all(looks)
    with pytest.raises(Unavailable):
        coordinator.commit(subscription, stream, [(A0, offset(1))])
    # Streams that end meanwhile are removed when ZooKeeper is back.
    coordinator.leave(subscription, stream)
    with pytest.raises(Invalid, match=f"Session with stream id {stream} not found"):
        coordinator.commit(subscription, stream, [(A0, offset(1))])
    coordinator.delete(deleted)
    zookeeper.resume()
    wait_until(lambda: session.connected and session.is_session_safe())

    def is_over() -> bool:
        coordinator.expire_dead_sessions()
        return coordinator.topology(subscription).sessions == {} and coordinator.cursors(deleted) == {}

    wait_until(is_over)
    coordinator.join(subscription, name())
    watch.close()


def test_acknowledged_commits_survive_the_death_of_zookeeper(own_cluster, only_process):
    (zookeeper,) = own_cluster.zookeepers
    coordinator = only_process.coordinator
    subscription, stream = name(), name()
    coordinator.initialise(subscription, ALL)
    coordinator.join(subscription, stream)
    assert coordinator.commit(subscription, stream, [(A0, offset(7))]) == [True]
    zookeeper.kill()
    zookeeper.start()
    zookeeper.wait()
    # The session may still count as safe by its last answer, before the connection is noticed to have broken.
    wait_until(lambda: only_process.session.connected and only_process.session.is_session_safe())
    assert coordinator.cursors(subscription)[A0] == offset(7)
