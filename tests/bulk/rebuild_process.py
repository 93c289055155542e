"""A rebuild in a process of its own, which may kill itself: `python -m tests.bulk.rebuild_process URL SCRATCH`."""

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
from rioni.projections.generations.engine import open_engine
from rioni.storage.sql.rebuild_lock import rebuild_lock


VICTIMS = ("executor", "python")


def kill(victim: str) -> None:
    """End the first executor of this application, or the Python processes in which it runs tasks."""
    application = f"--app-id\0{SparkContext.getOrCreate().applicationId}\0".encode()
    processes = {int(each.name): each for each in Path("/proc").iterdir() if each.name.isdigit()}
    executor = next(pid for pid, each in processes.items() if application in _read(each / "cmdline"))
    if victim == "executor":
        os.kill(executor, signal.SIGKILL)
    else:
        workers = [pid for pid in processes if _ancestor(pid, executor)]
        assert workers
        for pid in workers:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    sys.stdout.write("killed\n")


def _ancestor(pid: int, ancestor: int) -> bool:
    while pid > 1:
        stat = _read(Path(f"/proc/{pid}/stat"))
        pid = int(stat.rpartition(b")")[2].split()[1]) if stat else 0
        if pid == ancestor:
            return True
    return False


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
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
    settings = {"spark.executor.memory": "512m", "spark.driver.memory": "512m"} if options.master else {}
    spark = SparkOptions(options.master, settings)
    rebuild(options.url, options.scratch, Order(), progress=progress, found=print, alone=alone, options=spark)


if __name__ == "__main__":
    main()
