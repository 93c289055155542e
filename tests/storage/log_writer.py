"""A process that appends to the log and prints what was committed.

Run as `python -m tests.storage.log_writer <url> <name> <appends>`; 0 appends mean no end. Each append is two entries of
the stream of that name.
"""

import itertools
import os
import sys
from pathlib import Path

from rioni.storage.log.event_log import SqlEventLog
from rioni.storage.sql.engines import create_engine
from tests.contracts.event_log import TOPICS, note


ROOT = Path(__file__).parents[2]


def command(url: str, name: str, appends: int) -> list[str]:
    return [sys.executable, "-m", "tests.storage.log_writer", url, name, str(appends)]


def main(url: str, name: str, appends: int) -> None:
    log = SqlEventLog(create_engine(url), TOPICS)
    for number in range(appends) if appends else itertools.count():
        first, second = note(log, name, f"{number} a", f"{number} b", version=2 * number)
        # One write for each commit, so that a killed process has printed all or nothing of it.
        os.write(1, f"{name} {number} {first.position} {second.position}\n".encode())
    log.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
