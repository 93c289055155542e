"""Exports in a separate process, which is killed, with Spark's Java process, after some seconds of work.

Arguments: the data directory, the folder of the table, and how long to live once the job runs.
"""

import os
import signal
import sys
import threading
from pathlib import Path

from rioni.config.settings import Config
from rioni.operations.audit_table.export import TableOrder, export_table
from rioni.projections.bulk import audit_table


def main(data: str, folder: str, life_s: str) -> None:
    def kill() -> None:
        os.killpg(0, signal.SIGKILL)

    def progress(phase: str, done: int, total: int) -> None:
        if (phase, done, total) == ("start", 1, 1):
            timer = threading.Timer(float(life_s), kill)
            timer.daemon = True
            timer.start()

    audit_table.FILE_ROWS_MAX = 100
    export_table(Config(data=Path(data)), TableOrder(Path(folder)), progress)


if __name__ == "__main__":
    main(*sys.argv[1:])
