import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rioni.storage.embedded.data_directory import DataDirectory
from rioni.storage.embedded.signals import EmbeddedSignals
from tests.contracts.signals import SignalsContract
from tests.support.waiting import WAIT_S


ROOT = Path(__file__).parents[3]


ECHO = """
import sys
from pathlib import Path
from rioni.storage.embedded.signals import EmbeddedSignals

signals = EmbeddedSignals(Path(sys.argv[1]))
watch = signals.watch(["question"])
print("ready", flush=True)
while watch.wait(60):
    signals.notify("answer")
"""


@pytest.fixture
def echo(directory: DataDirectory) -> Iterator[subprocess.Popen[str]]:
    """Another process, which notifies `answer` whenever it is woken by `question`."""
    command = [sys.executable, "-c", ECHO, str(directory.signals)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


class TestInOneProcess(SignalsContract):
    pass


class TestBetweenInstances(SignalsContract):
    @pytest.fixture
    def other(self, directory: DataDirectory) -> Iterator[EmbeddedSignals]:
        other = EmbeddedSignals(directory.signals)
        yield other
        other.close()


def test_processes_wake_each_other(signals: EmbeddedSignals, echo: subprocess.Popen[str]):
    waiter = signals.watch(["answer"])
    for _ in range(50):
        signals.notify("question")
        assert waiter.wait(WAIT_S)


def test_notifications_rejected_by_a_full_queue_arrive_later(directory: DataDirectory, signals: EmbeddedSignals):
    # A receiver that doesn't listen yet: its queue is full after some datagrams; their number is set by the kernel.
    late = EmbeddedSignals(directory.signals)
    process = late._here()
    keys = [f"key-{number}" for number in range(2000)]
    watches = [late.watch([key]) for key in keys]
    with process._lock:  # the listener stops at its first datagram
        for key in keys:
            signals.notify(key)
    for waiter in watches:
        assert waiter.wait(WAIT_S)
    late.close()


def test_sockets_of_dead_processes_are_removed(directory: DataDirectory, signals: EmbeddedSignals, echo):
    assert len(list(directory.signals.iterdir())) == 1
    echo.kill()
    echo.wait()
    signals.notify("question")
    assert list(directory.signals.iterdir()) == []


def test_a_long_path_is_supported(tmp_path: Path):
    path = tmp_path.joinpath(*["a-rather-long-name-of-a-directory"] * 6)
    path.mkdir(parents=True)
    one, two = EmbeddedSignals(path), EmbeddedSignals(path)
    waiter = one.watch(["key"])
    two.notify("key")
    assert waiter.wait(WAIT_S)
    one.close()
    two.close()


def test_a_forked_process_has_its_own_socket(signals: EmbeddedSignals):
    waiter = signals.watch(["answer"])
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            own = signals.watch(["question"])
            signals.notify("answer")
            code = 0 if own.wait(WAIT_S) else 2
            signals.close()
        finally:
            os._exit(code)
    assert waiter.wait(WAIT_S)
    signals.notify("question")
    assert os.waitpid(pid, 0)[1] == 0
    signals.notify("answer")
    assert waiter.wait(WAIT_S)


def test_closing_removes_all_files_and_notifying_afterwards_has_no_effect(directory: DataDirectory):
    signals = EmbeddedSignals(directory.signals)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - counted only
    waiter = signals.watch(["key"])
    signals.close()
    signals.close()
    signals.notify("key")
    waiter.close()
    assert list(directory.signals.iterdir()) == []
    assert len(os.listdir("/proc/self/fd")) < before  # noqa: PTH208 - counted only


def test_files_of_other_processes_are_not_removed(directory: DataDirectory, signals: EmbeddedSignals):
    (directory.signals / "note").touch()
    signals.notify("key")
    assert (directory.signals / "note").exists()


def test_a_notification_that_comes_as_a_wait_times_out_is_not_lost(signals: EmbeddedSignals):
    class Late(threading.Event):
        """Times out, and is set before the waiting thread continues."""

        def wait(self, timeout=None):  # noqa: ARG002 - the signature of the base class
            signals.notify("key")
            return False

    with contextlib.closing(signals.watch(["key"])) as watch:
        watch._woken = Late()
        assert watch.wait(0.1)
        assert not watch._woken.is_set()
