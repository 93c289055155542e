import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest

from rioni.domain.errors import Conflict
from rioni.domain.ports.coordinator import Assignment, DeliveryFailure
from rioni.storage.embedded.coordination.coordinator import EmbeddedCoordinator
from rioni.storage.embedded.data_directory import DataDirectory
from rioni.storage.embedded.signals import EmbeddedSignals
from tests.contracts.coordination import A0, ALL, ENOUGH_S, offset
from tests.contracts.coordinator import CoordinatorContract
from tests.support.clock import ManualClock


ROOT = Path(__file__).parents[4]


def start(directory: DataDirectory, subscription: str, stream: str, commits: int = 0) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "tests.storage.embedded.committer",
        str(directory.path),
        subscription,
        stream,
        str(commits),
    ]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "joined\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


@pytest.fixture
def coordinator(directory: DataDirectory, signals, clock: ManualClock) -> Iterator[EmbeddedCoordinator]:
    coordinator = EmbeddedCoordinator(directory.coordination, clock=clock, signals=signals)
    yield coordinator
    coordinator.close()


class TestEmbeddedCoordinator(CoordinatorContract):
    @pytest.fixture
    def other(self, directory: DataDirectory, clock: ManualClock) -> Iterator[EmbeddedCoordinator]:
        """A second coordinator with its own connections, caches and signals, as in another process."""
        signals = EmbeddedSignals(directory.signals, directory.changes)
        coordinator = EmbeddedCoordinator(directory.coordination, clock=clock, signals=signals)
        yield coordinator
        coordinator.close()
        signals.close()


@pytest.mark.slow
def test_the_sessions_of_a_killed_process_end_and_its_cursors_are_kept(directory, coordinator, signals, clock):
    subscription, mine, theirs = (str(uuid4()) for _ in range(3))
    coordinator.initialise(subscription, ALL)
    coordinator.join(subscription, mine)
    process = start(directory, subscription, theirs, commits=0)
    moving = [key for key, one in coordinator.topology(subscription).partitions.items() if one.next_session == theirs]
    assert len(moving) == 2
    coordinator.release(subscription, mine, moving[0])
    assert coordinator.commit(subscription, theirs, [(moving[0], offset(3))]) == [True]
    clock.advance(10_000)
    assert theirs in coordinator.topology(subscription).sessions
    watch = signals.watch([f"subscription:{subscription}"])
    end(process)
    assert theirs in coordinator.topology(subscription).sessions
    clock.advance(10_000)
    assert set(coordinator.topology(subscription).sessions) == {mine}
    assert watch.wait(ENOUGH_S)
    assert set(coordinator.topology(subscription).partitions.values()) == {Assignment(mine)}
    assert coordinator.cursors(subscription)[moving[0]] == offset(3)
    assert len(list(Path(f"{directory.coordination}-workers").iterdir())) == 1
    watch.close()


@pytest.mark.slow
def test_the_slot_of_a_killed_process_is_free_for_the_next_join(directory, coordinator):
    subscription, stream = str(uuid4()), str(uuid4())
    coordinator.initialise(subscription, {A0: offset(-1)})
    process = start(directory, subscription, stream)
    with pytest.raises(Conflict):
        coordinator.join(subscription, str(uuid4()))
    end(process)
    coordinator.join(subscription, str(uuid4()))


@pytest.mark.slow
def test_commits_of_a_killed_process_are_not_lost(directory, coordinator):
    subscription, stream = str(uuid4()), str(uuid4())
    coordinator.initialise(subscription, ALL)
    process = start(directory, subscription, stream, commits=1_000_000)
    for _ in range(50):
        acknowledged = int(process.stdout.readline())
    os.kill(process.pid, signal.SIGKILL)
    for line in process.stdout.read().splitlines(keepends=True):
        acknowledged = int(line) if line.endswith("\n") else acknowledged
    end(process)
    # The last commit may have been written without having been acknowledged.
    assert coordinator.cursors(subscription)[A0] in {offset(acknowledged), offset(acknowledged + 1)}


@pytest.mark.slow
def test_processes_commit_concurrently_and_only_their_own_partitions(directory, coordinator):
    subscription = str(uuid4())
    coordinator.initialise(subscription, ALL)
    streams = [str(uuid4()) for _ in range(3)]
    processes = [start(directory, subscription, stream, commits=30) for stream in streams]
    owner = coordinator.topology(subscription).partitions[A0].session
    for stream, process in zip(streams, processes, strict=True):
        process.stdin.close()
        lines = process.stdout.read().splitlines()
        process.stdout.close()
        assert process.wait() == 0
        if stream == owner:
            assert lines == [str(position) for position in range(30)]
        else:
            assert "cannot be committed" in lines[0]
    assert coordinator.cursors(subscription)[A0] == offset(29)


def test_sessions_do_not_survive_a_restart_and_cursors_do(directory: DataDirectory, signals, clock):
    subscription, stream = str(uuid4()), str(uuid4())
    first = EmbeddedCoordinator(directory.coordination, clock=clock, signals=signals)
    first.initialise(subscription, ALL)
    first.join(subscription, stream)
    first.commit(subscription, stream, [(A0, offset(7))])
    os.close(first._workers._fd)  # as the kernel does when the process dies
    second = EmbeddedCoordinator(directory.coordination, clock=clock, signals=signals)
    assert second.topology(subscription).sessions == {}
    assert set(second.topology(subscription).partitions.values()) == {Assignment()}
    assert second.cursors(subscription) == ALL | {A0: offset(7)}
    second.close()
    first._workers._fd = -1
    first._database.close()


VERSION_1 = """
CREATE TABLE subscriptions (id TEXT PRIMARY KEY, epoch INTEGER NOT NULL, revision INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE partitions (
    subscription TEXT NOT NULL, place INTEGER NOT NULL, event_type TEXT NOT NULL, partition TEXT NOT NULL,
    session TEXT NOT NULL DEFAULT '', next_session TEXT NOT NULL DEFAULT '', offset TEXT NOT NULL,
    PRIMARY KEY (subscription, event_type, partition)
) WITHOUT ROWID;
CREATE TABLE sessions (
    id TEXT PRIMARY KEY, subscription TEXT NOT NULL, worker TEXT NOT NULL, requested TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX sessions_of_subscriptions ON sessions (subscription);
CREATE INDEX sessions_of_workers ON sessions (worker);
CREATE TABLE resets (subscription TEXT PRIMARY KEY, worker TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO subscriptions VALUES ('s', 7, 9);
INSERT INTO partitions VALUES ('s', 0, 'a', '0', 'gone', '', '001-0001-000000000000000007');
INSERT INTO sessions VALUES ('gone', 's', 'dead', '[]');
PRAGMA user_version = 1;
"""


def test_a_file_of_version_1_is_upgraded_with_counters_and_keeps_its_cursors(tmp_path: Path, signals, clock):
    path = tmp_path / "coordination.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(VERSION_1)
    coordinator = EmbeddedCoordinator(path, clock=clock, signals=signals)
    assert coordinator.cursors("s") == {A0: offset(7)}
    assert coordinator.topology("s").sessions == {}
    coordinator.join("s", "stream")
    assert coordinator.commit("s", "stream", [(A0, offset(7))]) == [False]
    assert coordinator.heartbeats("s") == {A0: 1}
    coordinator.record_delivery_attempt("s", "stream", A0, offset(8))
    coordinator.record_failure_reasons("s", "stream", [(A0, offset(8), "why")])
    coordinator.leave("s", "stream")
    assert coordinator.delivery_failures("s") == {A0: DeliveryFailure(1, offset(8), "", offset(8), "why")}
    coordinator.close()


def test_waiting_commits_share_a_transaction(directory: DataDirectory, signals, clock):
    held: list[list[object]] = []

    def run_in_pool(function, *args, **kwargs):
        if args and isinstance(args[0], list):
            held.append(args[0])
        return function(*args, **kwargs)

    coordinator = EmbeddedCoordinator(directory.coordination, clock=clock, signals=signals, pool=run_in_pool)
    subscription, stream = str(uuid4()), str(uuid4())
    coordinator.initialise(subscription, ALL)
    coordinator.join(subscription, stream)
    held.clear()
    with coordinator._database.writing():  # the disk is busy
        threads = [
            threading.Thread(target=coordinator.commit, args=(subscription, stream, [(A0, offset(position))]))
            for position in range(20)
        ]
        for thread in threads:
            thread.start()
        while len(coordinator._changes._pending) + sum(map(len, held)) < 20:
            pass
    for thread in threads:
        thread.join()
    assert sum(map(len, held)) == 20
    assert len(held) <= 2
    assert coordinator.cursors(subscription)[A0] == offset(19)
    coordinator.close()
