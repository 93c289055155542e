"""Finds and ends processes that other processes of a test have started."""

import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path


def descendants(ancestor: int) -> Sequence[int]:
    """The ids of all processes that a process, or one of these, has started and that still run."""
    parents = {int(each.name): _parent(each) for each in Path("/proc").iterdir() if each.name.isdigit()}
    found = {ancestor}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found - {ancestor})


def kill_all(pids: Sequence[int]) -> None:
    """End processes by SIGKILL; some may have ended."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _parent(process: Path) -> int:
    try:
        return int((process / "stat").read_bytes().rpartition(b")")[2].split()[1])
    except OSError:
        return 0
