from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from rioni.domain.errors import OutcomeUnknown, Overloaded, Unavailable
from rioni.domain.ports.host import direct
from rioni.storage import group_commit
from rioni.storage.group_commit import GroupCommit, WriteJob
from tests.support.waiting import WAIT_S, wait_until


class Writer:
    """Writes some jobs, and leaves the others in progress."""

    def __init__(self) -> None:
        self.slow: set[WriteJob] = set()
        self.failing = False
        self.groups: list[Sequence[WriteJob]] = []

    def write(self, group: Sequence[WriteJob]) -> Callable[[], None]:
        if self.failing:
            raise Unavailable("no")
        self.groups.append(group)
        for job in group:
            job.under_way = job in self.slow
        return lambda: None


@pytest.fixture
def writer() -> Writer:
    return Writer()


@pytest.fixture
def commits(writer: Writer) -> GroupCommit[WriteJob]:
    return GroupCommit(writer.write, direct)


def test_a_job_in_progress_is_passed_again_and_delays_no_other_one(writer, commits):
    slow = WriteJob(1)
    writer.slow.add(slow)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(commits.submit, slow, WAIT_S)
        wait_until(lambda: writer.groups)
        commits.submit(quick := WriteJob(1), WAIT_S)
        assert not waiting.done()
        assert slow in next(group for group in writer.groups if quick in group)
        writer.slow.clear()
        waiting.result(WAIT_S)
    commits.close()


def test_jobs_in_progress_count_as_waiting(writer, commits, monkeypatch):
    monkeypatch.setattr(group_commit, "PENDING_BYTES_MAX", 10)
    slow = WriteJob(9)
    writer.slow.add(slow)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(commits.submit, slow, WAIT_S)
        wait_until(lambda: writer.groups)
        with pytest.raises(Overloaded, match="write queue is full") as refused:
            wait_until(lambda: commits.submit(WriteJob(2), WAIT_S))
        assert refused.value.retry_after_s
        writer.slow.clear()
        waiting.result(WAIT_S)
    commits.close()


def test_an_error_ends_jobs_in_progress_too(writer, commits):
    slow = WriteJob(1)
    writer.slow.add(slow)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(commits.submit, slow, WAIT_S)
        wait_until(lambda: writer.groups)
        writer.failing = True
        # It was handed over, so its outcome is not known yet.
        with pytest.raises(OutcomeUnknown):
            waiting.result(WAIT_S)
    commits.close()


def test_a_writer_that_waits_for_others_gets_what_has_come_meanwhile(monkeypatch):
    monkeypatch.setattr(group_commit, "GROUP_BYTES_MAX", 10)
    waits, may_write = Event(), Event()
    groups: list[list[WriteJob]] = []

    def write(group: list[WriteJob]) -> Callable[[], None]:
        waits.set()
        assert may_write.wait(WAIT_S)
        commits.add_pending(group)
        groups.append(list(group))
        return lambda: None

    commits = GroupCommit(write, direct)
    first, second, withdrawn, large = WriteJob(1), WriteJob(2), WriteJob(3), WriteJob(8)
    with ThreadPoolExecutor() as pool:
        done = [pool.submit(commits.submit, first, WAIT_S)]
        assert waits.wait(WAIT_S)
        with pytest.raises(Overloaded, match="nothing was written"):
            commits.submit(withdrawn, 0.01)
        for job in (second, large):
            done.append(pool.submit(commits.submit, job, WAIT_S))
            wait_until(lambda job=job: job in commits._pending)
        may_write.set()
        for each in done:
            each.result(WAIT_S)
    assert groups == [[first, second], [large]]
    commits.close()
