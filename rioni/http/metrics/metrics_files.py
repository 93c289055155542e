"""The files in which worker processes share their counts: their disk blocks, and the numbers of the processes."""

import contextlib
import mmap
import os
from pathlib import Path
from typing import Any

from prometheus_client.multiprocess import mark_process_dead

from rioni.files.locks import try_lock
from rioni.patches.prometheus_client import allocated


def mapped(path: Path, size: int) -> mmap.mmap:
    """Map a file of a fixed size, made if it doesn't exist; memory of this process if the disk has no room."""
    with path.open("a+b") as file:
        if allocated(file, size):
            return mmap.mmap(file.fileno(), size)
    path.unlink()
    return mmap.mmap(-1, size)


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
