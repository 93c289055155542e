"""How long Spark takes to rebuild the read models of a long log, phase by phase.

    python -m benchmarks.rebuild --entries 1000000

The log is made up by the same author as the tests' histories: event types with schemas of about 1 kB, subscriptions,
timelines, settings; most of it changes. The rebuild is the one of `rioni rebuild`, Spark's start included.
"""

import argparse
import time
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from rioni.domain.hash_chain import GENESIS
from rioni.log_tables import HEAD, LOG
from rioni.projections.bulk.rebuild import Order, RebuildReport, rebuild
from rioni.projections.generations.engine import open_engine
from rioni.storage.sql.rebuild_lock import rebuild_lock
from tests.support.history import Author, entries
from tests.support.log import create_tables, rows


ENTRIES_PER_WRITE = 5_000


def write_log(url: str, count: int) -> None:
    """Write a log without read models."""
    engine = open_engine(url)
    create_tables(engine)
    marks = ", ".join("?" * len(LOG.columns))
    history = entries(Author(Random(1), properties=8).commands())
    previous, position = GENESIS, 0
    with engine.connect() as connection:
        raw = connection.connection.cursor()
        raw.execute("PRAGMA journal_mode=WAL")
        while part := list(rows(islice(history, min(ENTRIES_PER_WRITE, count - position)), previous)):
            position, previous = part[-1][0], part[-1][-1]
            raw.execute("BEGIN")
            raw.executemany(f"INSERT INTO log VALUES ({marks})", part)
            raw.execute("COMMIT")
    with engine.begin() as connection:
        connection.execute(HEAD.update().values(position=position, hash=previous))
    engine.dispose()


class Phases:
    """Notes when each phase began."""

    def __init__(self) -> None:
        self.began: dict[str, float] = {}

    def __call__(self, phase: str, *_: int) -> None:
        self.began.setdefault(phase, time.monotonic())


def rebuilt(url: str, folder: Path, *, dry_run: bool) -> tuple[RebuildReport, Phases]:
    """Rebuild, with temporary files in a folder."""
    phases, alone = Phases(), partial(rebuild_lock, open_engine(url))
    return rebuild(
        url, folder / "scratch", Order(dry_run=dry_run), progress=phases, found=lambda _: None, alone=alone
    ), phases


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, help="where the database goes; default: a temporary folder")
    options = parser.parse_args()
    with TemporaryDirectory(dir=options.folder) as folder:
        url = f"sqlite:///{folder}/registry.db"
        began = time.monotonic()
        write_log(url, options.entries)
        size = (Path(folder) / "registry.db").stat().st_size
        print(f"log of {options.entries:,} entries, {size / 1e6:,.0f} MB, written in {time.monotonic() - began:.1f} s")
        for title, dry_run in (("rebuild", False), ("dry run", True)):
            report, phases = rebuilt(url, Path(folder), dry_run=dry_run)
            ended = time.monotonic()
            print(f"\n{title}: {report.seconds:.1f} s, {sum(report.rows.values()):,} rows")
            ends = [*list(phases.began.values())[1:], ended]
            for (phase, start), end in zip(phases.began.items(), ends, strict=True):
                print(f"  {phase:8} {end - start:7.1f} s")


if __name__ == "__main__":
    main()
