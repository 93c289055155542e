"""Starts brokers for tests: a process loads the server in the background, and forks a broker when it is asked to."""

import atexit
import contextlib
import os
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
from pathlib import Path
from typing import IO

from rioni.testing import warm


ENDS_WITHIN_S = 10.0
"""Seconds that the process may take to end with its brokers; it is killed then."""

SAID_BYTES = 4_000
"""The most bytes of the output that are shown."""


class Launcher:
    """The process from which the brokers of this process are forked."""

    def __init__(self) -> None:
        """Start it, unless a developer has a warm one; it loads the server while this process goes on.

        It ends with this process, however that ends.
        """
        self.pid = os.getpid()
        self._process: subprocess.Popen[bytes] | None = None
        self._said: IO[bytes] | None = None
        self._requests = warm.connected() or self._start()

    def _start(self) -> socket.socket:
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        with there:
            self._process = subprocess.Popen(
                command(there.fileno()),
                pass_fds=[there.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._said,
                stderr=subprocess.STDOUT,
                # Ctrl-C in a terminal is for the tests, which end the brokers.
                start_new_session=True,
                env=environment(),
            )
        return here

    def said(self) -> str:
        """The output of the process: why it could not load the server, if it couldn't."""
        if self._said is None:
            return ""
        size = os.fstat(self._said.fileno()).st_size
        return os.pread(self._said.fileno(), SAID_BYTES, max(0, size - SAID_BYTES)).decode(errors="replace")

    def broker(self) -> socket.socket:
        """Fork a broker; return the socket that controls it.

        Raises:
            OSError: the process has ended.
        """
        here, there = socket.socketpair()
        try:
            with there:
                socket.send_fds(self._requests, [b"+"], [there.fileno()])
        except OSError:
            here.close()
            raise
        return here

    def close(self) -> None:
        """End the process and all of its brokers, and wait until they have; a warm one goes on."""
        self._requests.close()
        if self._said is not None:
            self._said.close()
        if self._process is not None:
            try:
                self._process.wait(ENDS_WITHIN_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()  # waits: it has been killed


_lock = threading.Lock()
_launchers: list[Launcher] = []
"""The one of this process, once there is one."""


def start() -> Launcher:
    """The launcher of this process, which is started if necessary: with it the first broker is there sooner."""
    with _lock:
        # A forked process does not use the one of its parent, nor does it end that.
        if not _launchers or _launchers[0].pid != os.getpid():
            _launchers[:] = [Launcher()]
            atexit.register(stop)
        return _launchers[0]


def stop() -> None:
    """End the launcher of this process, and all brokers, if there is one; blocks until they have ended."""
    atexit.unregister(stop)
    with _lock:
        while _launchers:
            launcher = _launchers.pop()
            if launcher.pid == os.getpid():
                launcher.close()


def new_broker() -> tuple[Launcher, socket.socket]:
    """Fork a broker, by a new launcher if that of before has ended; return it, and the socket that controls the broker.

    Raises:
        OSError: the launcher can't be started.
    """
    with contextlib.suppress(OSError):
        return (launcher := start()), launcher.broker()
    stop()
    return (launcher := start()), launcher.broker()


def run_warm() -> None:
    """Become a launcher that goes on between test runs, until Ctrl-C; does not return.

    Raises:
        OSError: there is one already, or its socket can't be made.
    """
    listener = warm.listener()
    listener.set_inheritable(True)
    os.chdir("/")
    os.execve(sys.executable, [*command(listener.fileno()), "listen"], environment())  # noqa: S606 - no shell


def command(fd: int) -> list[str]:
    """Return the command of a launcher that is asked for brokers on a socket."""
    # NOTE: with -P modules of the working directory do not take the places of those of the server.
    return [sys.executable, "-P", "-m", "rioni.testing.server", str(fd)]


def environment() -> dict[str, str]:
    """Return the environment of a launcher: it finds the package in the same place as this process."""
    root = str(Path(__file__).parents[2])
    installed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    if root in installed:
        return dict(os.environ)
    path = os.environ.get("PYTHONPATH")
    return os.environ | {"PYTHONPATH": root if not path else f"{root}{os.pathsep}{path}"}
