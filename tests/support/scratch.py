"""Keeps the temporary files of a test run in memory, if there is enough of it.

PERF: tests write thousands of small databases, and wait for the disk with each transaction: it is a fifth of a run.
"""

import os
import re
import shutil
import tempfile
from pathlib import Path


MEMORY = Path("/dev/shm")
ENOUGH_BYTES = 8 * 2**30
"""A run on two cores takes up to a quarter of that."""
PREFIX = "rioni-tests-"


def move_to_memory() -> Path | None:
    """Let this process and those that it starts have their temporary files in memory.

    Nothing is changed if `TMPDIR` is set, or if less than `ENOUGH_BYTES` are free.

    Returns:
        The folder, which is to be removed at the end; None if nothing was changed.
    """
    if "TMPDIR" in os.environ or not MEMORY.is_dir():
        return None
    _remove_abandoned()
    if min(shutil.disk_usage(MEMORY).free, _available_bytes()) < ENOUGH_BYTES:
        return None
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=MEMORY))
    # The PostgreSQL of root runs as another user.
    folder.chmod(0o711)
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    return folder


def _remove_abandoned() -> None:
    """Remove the folders of runs that were killed."""
    for folder in MEMORY.glob(f"{PREFIX}*"):
        pid = folder.name.removeprefix(PREFIX).partition("-")[0]
        if not Path(f"/proc/{pid}").exists():
            shutil.rmtree(folder, ignore_errors=True)


def _available_bytes() -> int:
    found = re.search(r"MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text())
    return 1_024 * int(found[1]) if found else 0
