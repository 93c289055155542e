"""Signals that ask `rioni serve` to end are obeyed from the first instruction on, also as PID 1 of a container."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.waiting import WAIT_S, wait_until


NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc")
SESSION = ("setsid", "--ctty")
"""A session of its own with a terminal: standard input."""
IN_NAMESPACE = subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode == 0
needs_namespaces = pytest.mark.skipif(not IN_NAMESPACE, reason="processes of their own namespace need root")
AT_ONCE, SERVES = "at once", "as soon as it serves"
MOMENTS = [AT_ONCE, 0.1, 0.2, 0.3, 0.45, 0.6, 0.9, 1.2, SERVES]
"""When the signal is sent, in seconds after the first instruction."""


class Started:
    """A process that was started, perhaps as PID 1, and what it has printed."""

    def __init__(self, outer, output):
        self.outer, self._output = outer, output

    @property
    def printed(self):
        return self._output.read_text()

    def pid(self):
        """The number of the process outside of its namespace; None while there is none."""
        if self.outer.args[0] != NAMESPACE[0]:  # the others become the program
            return self.outer.pid
        pid = self.outer.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return int(children[0]) if children else None

    def catches(self, number):
        """Whether it is Python that has a handler for the signal."""
        pid = self.pid()
        if pid is None or b"serve" not in Path(f"/proc/{pid}/cmdline").read_bytes():
            return False
        (line,) = [each for each in Path(f"/proc/{pid}/status").read_text().splitlines() if each.startswith("SigCgt")]
        return bool(int(line.split()[1], 16) >> (number - 1) & 1)


@contextlib.contextmanager
def started(folder, prefix, stdin=subprocess.DEVNULL):
    output = folder / "output"
    command = [
        *prefix,
        sys.executable,
        "-m",
        "rioni",
        "serve",
        "--port",
        "0",
        "--workers",
        "1",
        "--data",
        str(folder / "data"),
    ]
    with output.open("w") as file:
        own_session = SESSION[0] not in prefix
        outer = subprocess.Popen(
            command, stdin=stdin, stdout=file, stderr=subprocess.STDOUT, start_new_session=own_session
        )
    try:
        yield Started(outer, output)
    finally:
        if outer.poll() is None:
            os.killpg(outer.pid, signal.SIGKILL)
        outer.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize(
    "prefix", [pytest.param((), id="process"), pytest.param(NAMESPACE, id="pid-1", marks=needs_namespaces)]
)
def test_no_signal_is_lost_while_the_server_starts(tmp_path, prefix, moment, number):
    with started(tmp_path, prefix) as server:
        # Python itself handles SIGINT from its start on; SIGTERM shows that this program has begun.
        wait_until(lambda: server.catches(signal.SIGTERM))
        if moment == SERVES:
            wait_until(lambda: "Rioni serves" in server.printed)
        elif moment != AT_ONCE:
            time.sleep(moment)
        os.kill(server.pid(), number)
        assert server.outer.wait(WAIT_S) == 0, server.printed
        assert "Traceback" not in server.printed


@pytest.mark.parametrize("prefix", [(), ("nohup",)], ids=["ends", "nohup"])
def test_a_closed_terminal_ends_the_server_unless_it_shall_go_on(tmp_path, prefix):
    master, terminal = os.openpty()
    with started(tmp_path, (*SESSION, *prefix), stdin=terminal) as server:
        os.close(terminal)
        wait_until(lambda: "Rioni serves" in server.printed)
        workers = children_of(server.pid())
        os.close(master)
        if prefix:
            os.kill(server.pid(), signal.SIGHUP)  # as a shell does
            wait_until(lambda: not workers & children_of(server.pid()))
            assert server.outer.poll() is None
            os.kill(server.pid(), signal.SIGTERM)
        assert server.outer.wait(WAIT_S) == 0, server.printed
    assert "Traceback" not in server.printed


def test_the_signal_of_a_terminal_from_elsewhere_replaces_the_workers(tmp_path):
    with started(tmp_path, ()) as server:
        wait_until(lambda: "Rioni serves" in server.printed)
        workers = children_of(server.pid())
        os.kill(server.pid(), signal.SIGHUP)
        wait_until(lambda: (now := children_of(server.pid())) and not workers & now)
        os.kill(server.pid(), signal.SIGTERM)
        assert server.outer.wait(WAIT_S) == 0, server.printed
    assert "Traceback" not in server.printed


@needs_namespaces
def test_the_first_process_of_a_container_leaves_no_zombies(tmp_path):
    with started(tmp_path, NAMESPACE) as server:
        wait_until(lambda: "Rioni serves" in server.printed)
        pid = server.pid()
        # Each leaves a child behind, which the first process inherits; the exit code is what ends gunicorn of a worker.
        orphan = ["nsenter", "--target", str(pid), "--pid", "--mount", "sh", "-c", "(sleep 0.1; exit 3) & exit 0"]
        before = children_of(pid)
        for _ in range(3):
            subprocess.run(orphan, check=True)
        wait_until(lambda: children_of(pid) == before)
        assert not [child for child in before if state_of(child) == "Z"]
        os.kill(pid, signal.SIGTERM)
        assert server.outer.wait(WAIT_S) == 0, server.printed


def children_of(pid):
    return set(Path(f"/proc/{pid}/task/{pid}/children").read_text().split())


def state_of(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
