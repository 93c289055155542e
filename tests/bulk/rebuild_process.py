"""A rebuild in a process of its own, which may kill itself: `python -m tests.bulk.rebuild_process URL SCRATCH`."""

import argparse
import os
import signal
from functools import partial
from pathlib import Path

from rioni.projections.bulk import source
from rioni.projections.bulk.rebuild import Order, rebuild
from rioni.projections.bulk.session import SparkOptions
from rioni.projections.generations.engine import open_engine
from rioni.storage.sql.rebuild_lock import rebuild_lock


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--master", default="")
    parser.add_argument("--entries-per-task", type=int, default=source.ENTRIES_PER_TASK)
    parser.add_argument("--die-in", help="the phase in which to end by SIGKILL, once some of it is done")
    options = parser.parse_args()
    source.ENTRIES_PER_TASK = options.entries_per_task

    def progress(phase: str, done: int, _total: int) -> None:
        if phase == options.die_in and (done or phase == "swap"):
            os.kill(os.getpid(), signal.SIGKILL)

    alone = partial(rebuild_lock, open_engine(options.url))
    settings = {"spark.executor.memory": "512m", "spark.driver.memory": "512m"} if options.master else {}
    spark = SparkOptions(options.master, settings)
    rebuild(options.url, options.scratch, Order(), progress=progress, found=print, alone=alone, options=spark)


if __name__ == "__main__":
    main()
