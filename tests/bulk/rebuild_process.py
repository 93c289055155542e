"""A rebuild in a separate process, which may kill itself: `python -m tests.bulk.rebuild_process URL SCRATCH`."""

import argparse
import os
import signal
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

from pyspark import SparkContext

from rioni.projections.bulk import source
from rioni.projections.bulk.rebuild import Order, rebuild
from rioni.projections.bulk.session import SparkOptions
from rioni.sql.engines import open_engine
from rioni.storage.sql.database_locks import rebuild_lock
from tests.support.descendants import descendants, kill_all


VICTIMS = ("executor", "python")
SMALL = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
"""Settings of a cluster on one machine."""


def kill(victim: str) -> None:
    """End the first executor of this application, or the Python processes in which it runs tasks."""
    application = f"--app-id\0{SparkContext.getOrCreate().applicationId}\0".encode()
    processes = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]
    executor = next(pid for pid in processes if application in _command(pid))
    workers = descendants(executor)
    assert workers
    kill_all([executor] if victim == "executor" else workers)
    sys.stdout.write("killed\n")


def _command(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--master", default="")
    parser.add_argument("--entries-per-task", type=int, default=source.ENTRIES_PER_TASK)
    parser.add_argument("--die-in", help="the phase in which to end by SIGKILL, once some of it is done")
    parser.add_argument("--kill", choices=VICTIMS, help="what to end by SIGKILL, once some of the log is folded")
    options = parser.parse_args()
    source.ENTRIES_PER_TASK = options.entries_per_task

    def progress(phase: str, done: int, _total: int) -> None:
        if phase == options.die_in and (done or phase == "swap"):
            os.kill(os.getpid(), signal.SIGKILL)
        if options.kill and phase == "fold" and done:
            kill(options.kill)
            options.kill = None

    alone = partial(rebuild_lock, open_engine(options.url))
    spark = SparkOptions(options.master, SMALL if options.master else {})
    rebuild(options.url, options.scratch, Order(), progress=progress, found=print, alone=alone, options=spark)


if __name__ == "__main__":
    main()
