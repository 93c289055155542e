"""The process from which brokers for tests are forked: it has loaded the server once, so that each begins at once.

`python -m rioni.testing.server FD`; `rioni.testing.launcher` starts it. On the socket `FD` comes a message for each
broker, with the socket by which that one is controlled. At its end, which is that of the tests, everything ends.
"""

import array
import contextlib
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rioni.greenlets import patch


ENDS_WITHIN_S = 5.0
"""How long killed processes may take to be gone, so that their folders can be removed."""
LOOK_EVERY_S = 0.005
MEMORY, MEMORY_BYTES_MIN = "/dev/shm", 1_000_000_000  # noqa: S108 - only as a parent of folders with random names
"""PERF: where temporary files are in memory, brokers begin 50 ms sooner, and changes do not wait for a disk. Used where
so much is free there, unless `TMPDIR` says where temporary files belong."""

# NOTE: as they are before patching. This process only waits and forks; no event loop runs in it.
_close, _sleep, _waitpid = os.close, time.sleep, os.waitpid


def main() -> None:
    """Fork brokers until the tests end."""
    requests = socket.socket(fileno=int(sys.argv[1]))  # as the functions above
    patch()
    # In the forked process event loops begin anew.
    from gevent.os import fork  # noqa: PLC0415 - after patching

    from rioni.testing.server.application import run  # noqa: PLC0415 - after patching

    folders: dict[int, str] = {}
    while (control := _receive(requests)) is not None:
        folder = tempfile.mkdtemp(prefix="rioni-testing-", dir=_parent())
        if (pid := fork()) == 0:
            requests.close()
            _broker(run, control, folder)
        _close(control)
        for gone in [each for each in folders if not _runs(each)]:
            # Those that were killed leave theirs behind.
            shutil.rmtree(folders.pop(gone), ignore_errors=True)
        folders[pid] = folder
    _end(folders)


def _receive(requests: socket.socket) -> int | None:
    """Wait for the next broker's socket; None at the end."""
    fds = array.array("i")
    data, ancillary, *_ = requests.recvmsg(1, socket.CMSG_SPACE(fds.itemsize))
    if not data:
        return None
    for _level, _kind, received in ancillary:
        fds.frombytes(received[: fds.itemsize])
    return fds[0]


def _parent() -> str:
    if "TMPDIR" not in os.environ and Path(MEMORY).is_dir() and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES_MIN:
        return MEMORY
    return tempfile.gettempdir()


def _broker(run: Callable[[int, str], None], control: int, folder: str) -> None:
    """Run a broker in this process, which is the first one of its group; does not return."""
    status = 1
    try:
        os.setpgid(0, 0)
        run(control, folder)
        status = 0
    except SystemExit as ex:
        status = ex.code if isinstance(ex.code, int) else 1
    finally:
        os._exit(status)


def _runs(pid: int) -> bool:
    try:
        return _waitpid(pid, os.WNOHANG) == (0, 0)
    except ChildProcessError:
        return False


def _end(folders: dict[int, str]) -> None:
    """End the brokers that have not ended by themselves, and remove their folders."""
    for pid in filter(_runs, folders):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    until_s = time.monotonic() + ENDS_WITHIN_S
    while any(map(_runs, folders)) and time.monotonic() < until_s:
        _sleep(LOOK_EVERY_S)
    for folder in folders.values():
        shutil.rmtree(folder, ignore_errors=True)
    # There is nothing to tidy up in this process, which has loaded so much.
    os._exit(0)


if __name__ == "__main__":
    main()
