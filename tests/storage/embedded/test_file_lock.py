"""The lock of a file: order and timeout of waiting, and the clean-up after a wait that timed out."""

import contextlib
import fcntl
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rioni.domain.errors import Unavailable
from rioni.storage.embedded import file_lock
from rioni.storage.embedded.file_lock import WAITING_MAX, FileLock
from tests.support.waiting import WAIT_S, wait_until


@pytest.fixture
def path(tmp_path):
    return tmp_path / "lock"


@pytest.fixture
def hold(path):
    """Holds the lock as another process would: by its own file description."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT)

    def hold():
        fcntl.flock(fd, fcntl.LOCK_EX)
        return lambda: fcntl.flock(fd, fcntl.LOCK_UN)

    yield hold
    os.close(fd)


def test_threads_take_turns(path):
    lock, inside, most = FileLock(path), [], []

    def work():
        for _ in range(50):
            with lock.held():
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    with ThreadPoolExecutor(8) as threads:
        for each in [threads.submit(work) for _ in range(8)]:
            each.result(WAIT_S)
    assert most == [1] * 400


def test_waiting_for_a_lock_that_others_hold_times_out_and_succeeds_later(path, hold):
    lock, release = FileLock(path), hold()
    for _ in range(10 * WAITING_MAX):
        with pytest.raises(Unavailable, match=r"has kept the lock of .*/lock for more than 0\.01 s"):
            lock.held(0.01).__enter__()
    threads = threading.active_count()
    release()

    def can_lock():
        with contextlib.suppress(Unavailable), lock.held(1):
            return True
        return False

    wait_until(can_lock)
    # A wait that timed out releases the lock, and its files are closed.
    assert wait_until(lambda: not lock._given_up)
    assert threading.active_count() == threads
    for _ in range(100):
        with lock.held(1):
            pass


def test_waiting_behind_a_timed_out_waiter_has_its_own_shorter_limit(path, hold, monkeypatch):
    lock, release = FileLock(path), hold()
    with pytest.raises(Unavailable):
        lock.held(0.01).__enter__()
    with pytest.raises(Unavailable, match=r"more than 0\.2 s"):
        lock.held(3_600).__enter__()
    release()
    wait_until(lambda: not lock._given_up)
    release = hold()
    timer = threading.Timer(0.5, release)
    timer.start()
    with lock.held(60):
        timer.join(WAIT_S)


def times_open(path: Path) -> int:
    """How often this process has a file open; others may be closed meanwhile, by what earlier tests have left."""
    count = 0
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            count += each.readlink() == path
    return count


def test_files_are_not_left_open(path, hold):
    lock, release = FileLock(path), hold()
    before = times_open(path)
    assert before == 1
    for _ in range(20):
        with pytest.raises(Unavailable):
            lock.held(0.01).__enter__()
    release()
    wait_until(lambda: not lock._given_up)
    assert times_open(path) == before


def test_if_no_thread_can_be_started_no_file_is_left_open(tmp_path, monkeypatch):
    def refuse(*_):
        raise RuntimeError("can't start new thread")

    lock = FileLock(tmp_path / "lock")
    with lock.held():
        before = times_open(tmp_path / "lock")
        with monkeypatch.context() as patched:
            patched.setattr(file_lock, "start_native_thread", refuse)
            for _ in range(2 * WAITING_MAX):
                with pytest.raises(Unavailable, match="thread"), lock.held(0.01):
                    pass
        assert times_open(tmp_path / "lock") == before
        # Waiting is for the lock again, not for a place among the waiters.
        with pytest.raises(Unavailable, match="Another process"), lock.held(0.01):
            pass
        assert lock._waiters == 1
