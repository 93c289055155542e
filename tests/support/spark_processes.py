"""Finds the processes of a driver of Spark, to end them."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tests.support.descendants import descendants


PARTS = {"java": b"SparkSubmit", "executor": b"CoarseGrainedExecutorBackend", "python": b"pyspark.daemon"}
"""Texts in the command line of a process, by the part that it plays."""


def spark_processes(driver: int) -> Mapping[str, Sequence[int]]:
    """The ids of the processes that a driver has started: its Java, separate executors, and Python that runs tasks."""
    lines = {pid: _command_line(pid) for pid in descendants(driver)}
    return {part: [pid for pid, line in lines.items() if mark in line] for part, mark in PARTS.items()}


def _command_line(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""
