"""Servers forked from one process that has imported everything: that takes a quarter of the CPU time of a new process.

That process starts when a server is first needed, and ends with the test run, also when that dies, and so does what it
has forked. That runs `rioni serve` in a separate session, as if it had been executed.
`tests/server/test_processes.py` starts real processes.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence

# NOTE: gevent replaces these in the process that forks, where no event loop runs.
from os import close, fork, waitpid
from pathlib import Path
from select import POLLIN, poll
from signal import signal as set_handler


ROOT = Path(__file__).parents[2]
MESSAGE_BYTES_MAX = 100_000
"""The limit for the arguments and the environment of a server."""
ANSWER_TIMEOUT_S = 60
PRELOADED = (
    "rioni.cli.app",
    "rioni.cli.host.serve",
    "rioni.config.logs",
    "rioni.server.processes",
    "alembic.command",
    "rioni.storage.tokens.jwt_tokens",
    "rioni.storage.kafka.events",
    "rioni.storage.zookeeper.coordination",
    "psycopg",
    "typer._adapters",
)
"""With what `rioni serve` imports only if it needs it."""


class ForkedProcess:
    """A process that is the child of another one; usable like `subprocess.Popen`."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start `rioni` with these arguments; its output goes to `stdout`."""
        output, output_end = os.pipe()
        self._exit_code, exit_code_end = os.pipe()
        self.pid = _ask(arguments, environment, [output_end, exit_code_end])
        os.close(output_end)
        os.close(exit_code_end)
        self.stdout = os.fdopen(output)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, None while the process runs; negative after a signal."""
        if self.returncode is None and select.select([self._exit_code], [], [], 0)[0]:
            self.returncode = int(os.read(self._exit_code, 16))
            os.close(self._exit_code)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, and return the exit code; subprocess.TimeoutExpired if it takes longer."""
        if self.returncode is None and not select.select([self._exit_code], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("rioni", timeout)
        return self.poll()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


_lock = threading.Lock()


def _ask(arguments: Sequence[str], environment: Mapping[str, str], files: list[int]) -> int:
    request = {"arguments": arguments, "environment": dict(environment), "folder": str(Path.cwd())}
    with _lock:
        connection = _connection()
        socket.send_fds(connection, [json.dumps(request).encode()], files)
        answer = connection.recv(16)
    assert answer, "the process that forks servers has ended; its output says why"
    return int(answer)


@functools.cache
def _connection() -> socket.socket:
    connection, other_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(ANSWER_TIMEOUT_S)
    with other_end:
        command = [sys.executable, "-m", __name__, str(other_end.fileno())]
        process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, pass_fds=[other_end.fileno()], start_new_session=True
        )
    atexit.register(process.wait, ANSWER_TIMEOUT_S)
    atexit.register(connection.close)
    return connection


# --- the process that forks ---


def main(connection: socket.socket) -> None:
    """Fork a server for each request until the other end of the connection is closed; returns in each of them."""
    exit_code_ends: dict[int, int] = {}
    # Handlers of signals may interrupt each other, so that two would wait for the same child: this one only wakes.
    woken, wakes = socket.socketpair()
    for end in (woken, wakes):
        end.setblocking(False)
    signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
    set_handler(signal.SIGCHLD, lambda *_: None)
    waiting = poll()
    waiting.register(connection, POLLIN)
    waiting.register(woken, POLLIN)
    while True:
        ready = {file for file, _ in waiting.poll()}
        if woken.fileno() in ready:
            woken.recv(1024)
            _reap(exit_code_ends)
        if connection.fileno() in ready:
            message, files, _, _ = socket.recv_fds(connection, MESSAGE_BYTES_MAX, 2)
            if not message:
                for pid in exit_code_ends:
                    os.kill(pid, signal.SIGKILL)
                    # It has no group of its own yet if it was forked a moment ago.
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(pid, signal.SIGKILL)
                sys.exit()
            if (pid := fork()) == 0:
                os.dup2(files[0], 1)
                os.dup2(files[0], 2)
                signal.set_wakeup_fd(-1)
                ends = [each.detach() for each in (connection, woken, wakes)]
                for file in [*ends, *files, *exit_code_ends.values()]:
                    close(file)
                _become(json.loads(message))
                return
            exit_code_ends[pid] = files[1]
            close(files[0])
            connection.send(str(pid).encode())


def _reap(exit_code_ends: dict[int, int]) -> None:
    """Report the exit codes of the children that have ended."""
    for pid, file in list(exit_code_ends.items()):
        ended, status = waitpid(pid, os.WNOHANG)
        if ended:
            os.write(file, str(os.waitstatus_to_exitcode(status)).encode())
            close(exit_code_ends.pop(pid))


def _become(request: dict) -> None:
    set_handler(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = ["rioni", *request["arguments"]]


def run_to_end(program: Callable[[], object]) -> None:
    """Run a program, and end the process as Python does, but without taking all modules apart.

    PERF: that would copy all memory shared with the process that has forked this one: 0.1 s, also of each worker.
    """
    code = 0
    try:
        program()
    except SystemExit as ex:
        if isinstance(ex.code, str):
            raise
        code = ex.code or 0
    threading._shutdown()
    atexit._run_exitfuncs()
    for output in (sys.stdout, sys.stderr):
        output.flush()
    os._exit(code)


if __name__ == "__main__":
    control = socket.socket(fileno=int(sys.argv[1]))
    sys.argv = ["rioni", "serve"]
    import gevent.monkey

    gevent.monkey.patch_all()
    importlib.import_module("tests.support.native_locks").watch()
    for module in PRELOADED:
        importlib.import_module(module)
    # It looks into all installed packages, which are the same for each server.
    importlib.import_module("rioni.projections.custom").installed()
    gc.collect()
    gc.freeze()
    main(control)
    # An import has made an event loop, which needs files of its own now.
    gevent.reinit()
    run_to_end(importlib.import_module("rioni.__main__").main)
