"""A process that writes a generated history, and prints the position of the log after each commit.

Run as `python -m tests.storage.projecting_writer <url> <seed>`. Events and read models are written in one transaction,
as the broker does. The history continues where the log ends, so processes killed one after the other write the same
one.
"""

import os
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from random import Random

from rioni.domain.aggregates import TOPICS
from rioni.domain.ports.event_log import LogEntry
from rioni.projections.projector import Projector
from rioni.storage.log.event_log import SqlEventLog
from rioni.storage.sql.engines import create_engine
from tests.support.history import Author, entries


ROOT = Path(__file__).parents[2]


def command(url: str, seed: int) -> list[str]:
    return [sys.executable, "-m", "tests.storage.projecting_writer", url, str(seed)]


def history(seed: int) -> Iterator[LogEntry]:
    """The endless history that such processes write."""
    return entries(Author(Random(seed)).commands())


def main(url: str, seed: int) -> None:
    log, projector = SqlEventLog(create_engine(url), TOPICS), Projector()
    end = log.head().position
    for _, group in groupby(history(seed), lambda entry: entry.origin.command_id):
        happened = list(group)
        if happened[-1].position <= end:
            continue
        with log.transaction() as transaction:
            for entry in happened:
                written = transaction.append(entry.stream, entry.version - 1, [entry.event], entry.origin)
                projector.apply(transaction.connection, written)
        # One write for each commit, so that a killed process has printed all or nothing of it.
        os.write(1, b"%d\n" % happened[-1].position)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
