"""The files in which worker processes share their counts: their disk blocks, and the numbers of the processes."""

import contextlib
import mmap
import os
from pathlib import Path
from typing import IO, Any

import structlog
from prometheus_client.mmap_dict import MmapedDict
from prometheus_client.multiprocess import mark_process_dead

from rioni.files.locks import try_lock


# --- Memory-mapped files in which worker processes share their counts, with disk blocks allocated in advance ---
#
# A file that is only made longer has no blocks yet: on a full disk the kernel then ends the process that writes to the
# mapping (SIGBUS), and so each worker with its first answer. Here the blocks are allocated first. If that fails the
# process counts in its own memory, and other workers don't show its counts in `/metrics` until it is replaced.

INITIAL_BYTES = 65_536
"""The initial size of a file of `prometheus_client`."""

_OF_ENTRY = 64
"""The bytes that an entry of such a file takes in addition to its key, rounded up."""

_log = structlog.get_logger("rioni.server")


def allocated(file: IO[bytes], size: int) -> bool:
    """Allocate at least this length for a file, with its blocks; False, changing nothing, if the disk is full."""
    before = os.fstat(file.fileno()).st_size
    try:
        os.posix_fallocate(file.fileno(), 0, max(size, before))
    except OSError as ex:
        os.ftruncate(file.fileno(), before)
        _log.warning("the disk is full: other workers do not show the metrics of this one; make room", error=str(ex))
        return False
    return True


def in_memory() -> IO[bytes]:
    """An anonymous file in memory."""
    return os.fdopen(os.memfd_create("rioni-metrics"), "r+b")


def mapped(path: Path, size: int) -> mmap.mmap:
    """Map a file of a fixed size, made if it doesn't exist; memory of this process if the disk has no room."""
    with path.open("a+b") as file:
        if allocated(file, size):
            return mmap.mmap(file.fileno(), size)
    path.unlink()
    return mmap.mmap(-1, size)


class AllocatedDict(MmapedDict):
    """The library's file of values, with blocks for all that is written."""

    def __init__(self, filename: str, read_mode: bool = False) -> None:  # noqa: FBT001, FBT002 - of the library
        if not read_mode:
            with Path(filename).open("a+b") as file:
                room = allocated(file, INITIAL_BYTES)
            if not room and not Path(filename).stat().st_size:
                # The others would stumble over an empty file.
                Path(filename).unlink()
                with in_memory() as file:
                    super().__init__(f"/proc/self/fd/{file.fileno()}")  # type: ignore[no-untyped-call]
                return
        super().__init__(filename, read_mode)  # type: ignore[no-untyped-call]

    def _init_value(self, key: str) -> None:
        needed, capacity = self._used + len(key.encode()) + _OF_ENTRY, self._capacity
        while capacity < needed:
            capacity *= 2
        if capacity > self._capacity and not allocated(self._f, capacity):
            self._move_to_memory()
        super()._init_value(key)  # type: ignore[no-untyped-call]

    def _move_to_memory(self) -> None:
        file: Any = in_memory()
        file.truncate(self._capacity)
        values = mmap.mmap(file.fileno(), self._capacity)
        values[:] = self._m[:]
        self._m.close()
        self._f.close()
        self._f, self._m = file, values


# --- Numbers the worker processes of a node for their metrics files; a new worker continues those of a dead one ---
#
# The files of `prometheus_client` are called after process ids by default; those of dead processes would stay until the
# server ends, and be read for every answer.

MULTIPROCESS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable that names the folder in which worker processes share their counts."""
WORKERS_MAX = 1_024

_held: list[Any] = []
"""The locked files of this process; the kernel releases them when it ends."""


def claim_slot(folder: Path) -> int:
    """The lowest number that no living process has; this process keeps it until it ends. Never blocks.

    Raises:
        RuntimeError: `WORKERS_MAX` processes live.
    """
    for slot in range(WORKERS_MAX):
        file = (folder / f"slot_{slot}").open("ab", buffering=0)
        if not try_lock(file.fileno()):
            file.close()
            continue
        file.truncate(0)
        # On a full disk the gauges of this process stay until another one has the number.
        with contextlib.suppress(OSError):
            file.write(str(os.getpid()).encode())
        _held.append(file)
        _drop_gauges(folder, slot)
        return slot
    raise RuntimeError(f"{WORKERS_MAX} processes already write metrics to {folder}")


def release_slot(folder: Path, pid: int) -> None:
    """Drop the gauges of a process that has died; its counts stay."""
    for file in folder.glob("slot_*"):
        if file.read_text() == str(pid):
            _drop_gauges(folder, int(file.name.removeprefix("slot_")))


def _drop_gauges(folder: Path, slot: int) -> None:
    mark_process_dead(slot, str(folder))  # type: ignore[no-untyped-call]  # prometheus_client leaves it out
