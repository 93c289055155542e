from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import update

from rioni.sql.log_tables import HEAD
from rioni.storage.log import log_head
from rioni.storage.log.event_log import SqlEventLog
from rioni.storage.sql.engines import create_engine, writing
from tests.contracts.event_log import TOPICS, note
from tests.support.waiting import wait_until


class Processes:
    """Logs of one SQLite file with their own connections, as in several processes."""

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder}/registry.db"
        self.opened: list[SqlEventLog] = []

    def log(self) -> SqlEventLog:
        self.opened.append(SqlEventLog(create_engine(self.url), TOPICS))
        return self.opened[-1]


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    processes = Processes(tmp_path)
    HEAD.metadata.create_all(log := processes.log().engine)
    with writing(log) as connection:
        connection.execute(HEAD.insert().values(id=1, position=0, hash=b""))
    yield processes
    for each in processes.opened:
        each.close()


@pytest.fixture
def never_again(monkeypatch) -> None:
    """Without queries that no change mark demands."""
    monkeypatch.setattr(log_head, "_QUERY_EVERY_S", 1e9)


@pytest.mark.usefixtures("never_again")
def test_all_processes_see_a_change_at_once(processes: Processes):
    one, other = processes.log(), processes.log()
    for number in range(1, 20):
        assert one.position() == other.position() == number - 1
        note((one, other)[number % 2], f"a{number}", "text")
    assert one.position() == other.position() == 19


def test_a_position_is_queried_only_after_changes(processes: Processes, never_again, monkeypatch):
    log = processes.log()
    note(log, "a", "1")
    positions = [log.position() for _ in range(3)]
    monkeypatch.setattr(log._head, "read", lambda: pytest.fail("nothing has changed"))
    assert {*positions, log.position()} == {1}


def commit_and_die(processes: Processes) -> None:
    """Commit as a process that is killed before it can replace the change mark."""
    with writing(processes.log().engine) as connection:
        connection.execute(update(HEAD).values(position=1))


def test_what_a_killed_process_has_committed_is_seen_soon(processes: Processes):
    log = processes.log()
    assert log.position() == log.position() == 0
    commit_and_die(processes)
    wait_until(lambda: log.position() == 1)


@pytest.mark.usefixtures("never_again")
def test_what_one_process_has_served_no_other_may_miss(processes: Processes):
    one, other = processes.log(), processes.log()
    assert one.position() == one.position() == 0
    commit_and_die(processes)
    assert other.position() == 1
    assert one.position() == 1


def test_without_a_change_mark_each_position_is_queried(processes: Processes, tmp_path: Path, monkeypatch):
    log = processes.log()
    assert log.position() == log.position() == 0
    monkeypatch.setattr(log_head.mmap, "mmap", pytest.fail)
    (tmp_path / "registry.db-changes").unlink()
    (tmp_path / "registry.db-changes").mkdir()
    unmarked = processes.log()
    assert unmarked.position() == 0
    commit_and_die(processes)
    assert unmarked.position() == 1
    assert log.position() == 1, "it was waited until all processes had queried again"
