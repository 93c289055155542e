"""prometheus_client, whose files of values have no disk blocks yet when a process writes to them.

Reason: on a full disk, the kernel ends a process that writes to a mapped file without blocks (SIGBUS), and so each
worker with its first answer. Here the blocks are allocated first. If that fails, the process counts in its own memory,
and other workers don't show its counts in `/metrics` until it is replaced. On an upgrade, look at
`MmapedDict._init_value`: when it makes the file larger, and how many bytes an entry takes.

Versions: prometheus-client>=0.26,<0.27.
"""

import mmap
import os
from pathlib import Path
from typing import IO, Any

import structlog
from prometheus_client import values
from prometheus_client.mmap_dict import MmapedDict


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


def use_slot(slot: int) -> None:
    """Have the counts of this process written to the files of a number, in the folder that the environment names."""
    # The library looks for the folder when it is imported, which is before the settings are read.
    values.MmapedDict = AllocatedDict  # type: ignore[attr-defined]
    values.ValueClass = values.MultiProcessValue(lambda: slot)  # type: ignore[no-untyped-call]
