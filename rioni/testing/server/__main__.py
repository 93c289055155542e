"""The process from which brokers for tests are forked: it has loaded the server once, so that each begins at once.

`python -m rioni.testing.server FD`; `rioni.testing.launcher` starts it. On the socket `FD` comes a message for each
broker, with the socket by which that one is controlled. At its end, which is that of the tests, everything ends. With
the argument `listen`, which `rioni-testing warm` adds, tests connect to the socket, and it goes on until Ctrl-C.
"""

import array
import contextlib
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rioni.patches.gevent import patch
from rioni.patches.standard_library import accept_descriptor
from rioni.testing.warm import greeting


if TYPE_CHECKING:
    from collections.abc import Callable


ENDS_WITHIN_S = 5.0
"""Seconds that killed processes may take to be gone, so that their folders can be removed."""
LOOK_EVERY_S = 0.005
LISTEN = "listen"
MEMORY, MEMORY_BYTES_MIN = "/dev/shm", 1_000_000_000  # noqa: S108 - only as a parent of folders with random names
"""PERF: where temporary files are in memory, brokers begin 50 ms sooner, and changes do not wait for a disk. Used if
this much is free there, unless `TMPDIR` names a folder for temporary files."""

# NOTE: as they are before patching. This process only waits and forks; no event loop runs in it.
_close, _select, _sleep, _socket, _waitpid = os.close, select.select, time.sleep, socket.socket, os.waitpid


def main() -> None:
    """Fork brokers until the tests end, or until Ctrl-C or SIGTERM."""
    given, listens = _socket(fileno=int(sys.argv[1])), LISTEN in sys.argv[2:]
    brokers, own = _Brokers(), os.getpid()

    def end(*_: object) -> None:
        if os.getpid() == own:
            brokers.end()
        # Nothing has to be tidied up here, and unloading so many modules would take time.
        os._exit(0)

    # NOTE: KeyboardInterrupt would be ignored if it is raised in a callback, such as those of import locks.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    brokers.load()
    _serve(given, brokers, listens=listens)
    end()


def _serve(given: socket.socket, brokers: "_Brokers", *, listens: bool) -> None:
    loaded = _loaded() if listens else {}
    sockets = [given]
    while sockets:
        for sock in _select(sockets, [], [])[0]:
            if listens and sock is given:
                if _loaded() != loaded:
                    _load_again(given)
                sockets.append(_connected(given))
            elif (control := _receive(sock)) is not None:
                brokers.fork(control, sockets)
            else:
                sockets.remove(sock)
                sock.close()


def _connected(listener: socket.socket) -> socket.socket:
    """Accept the connection of a test process."""
    connection = _socket(fileno=accept_descriptor(listener))
    with contextlib.suppress(OSError):
        connection.send(greeting())
    return connection


def _loaded() -> dict[str, tuple[int, int]]:
    """The files of all modules, with what changes when they do. PERF: 3 ms."""
    found = {}
    for module in [*sys.modules.values()]:
        if file := getattr(module, "__file__", None):
            with contextlib.suppress(OSError):
                status = os.stat(file)  # noqa: PTH116 - PERF: half of the time
                found[file] = status.st_mtime_ns, status.st_size
    return found


def _load_again(listener: socket.socket) -> None:
    """Start this process again, with the modules as they are now; the brokers that run go on."""
    listener.set_inheritable(True)
    command = [sys.executable, "-P", "-m", "rioni.testing.server", str(listener.fileno()), LISTEN]
    os.execv(sys.executable, command)  # noqa: S606 - no shell


def _receive(requests: socket.socket) -> int | None:
    """Receive the next broker's socket; None at the end."""
    fds = array.array("i")
    data, ancillary, *_ = requests.recvmsg(1, socket.CMSG_SPACE(fds.itemsize))
    for _level, _kind, received in ancillary:
        fds.frombytes(received[: fds.itemsize])
    return fds[0] if data and fds else None


class _Brokers:
    """The brokers that were forked, each the first process of its group."""

    def __init__(self) -> None:
        self._run: Callable[[int, str], None] | None = None
        self._folders: dict[int, str] = {}
        """The folders, by process."""

    def load(self) -> None:
        """Load the server; takes most of the time of a start."""
        patch()
        # At its import gunicorn notes the working directory; that of the tests may be removed before a broker begins.
        os.chdir("/")
        from rioni.testing.server.application import run  # noqa: PLC0415 - after patching

        self._run = run

    def fork(self, control: int, sockets: list[socket.socket]) -> None:
        """Fork a broker.

        Args:
            control: the file descriptor of its socket.
            sockets: what only this process needs.
        """
        # In the forked process event loops begin anew.
        from gevent.os import fork  # noqa: PLC0415 - after patching

        for gone in [each for each in self._folders if not _runs(each)]:
            # Killed processes leave their folders behind.
            shutil.rmtree(self._folders.pop(gone), ignore_errors=True)
        folder = tempfile.mkdtemp(prefix="rioni-testing-", dir=_parent())
        if (pid := fork()) == 0:
            for sock in sockets:
                sock.close()
            self._begin(control, folder)
        _close(control)
        self._folders[pid] = folder

    def end(self) -> None:
        """End the brokers that have not ended by themselves, and remove their folders."""
        for pid in filter(_runs, self._folders):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        until_s = time.monotonic() + ENDS_WITHIN_S
        while any(map(_runs, self._folders)) and time.monotonic() < until_s:
            _sleep(LOOK_EVERY_S)
        for folder in self._folders.values():
            shutil.rmtree(folder, ignore_errors=True)

    def _begin(self, control: int, folder: str) -> None:
        """Run a broker in this process; does not return."""
        status = 1
        try:
            os.setpgid(0, 0)
            assert self._run is not None, "the server was loaded"
            self._run(control, folder)
            status = 0
        except SystemExit as ex:
            status = ex.code if isinstance(ex.code, int) else 1
        finally:
            os._exit(status)


def _parent() -> str:
    if "TMPDIR" not in os.environ and Path(MEMORY).is_dir() and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES_MIN:
        return MEMORY
    return tempfile.gettempdir()


def _runs(pid: int) -> bool:
    try:
        return _waitpid(pid, os.WNOHANG) == (0, 0)
    except ChildProcessError:
        return False


if __name__ == "__main__":
    main()
