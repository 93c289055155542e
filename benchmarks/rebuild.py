"""How long Spark takes to rebuild the read models of a long log, phase by phase.

    python -m benchmarks.rebuild --entries 1000000 [--two-workers] [--single]

The log is made up by the same author as the tests' histories: event types with schemas of about 1 kB, subscriptions,
timelines, settings; most of it changes. The rebuild is the one of `rioni rebuild`, Spark's start included; with
`--two-workers` by a standalone master with two workers of one core on this machine. `--single` is what Spark has to be
compared with: the same tasks, folded and loaded one after the other by this process. Memory is the largest sum of the
proportional set sizes of this process and all that it has started.
"""

import argparse
import os
import time
from contextlib import ExitStack
from functools import partial
from itertools import islice
from math import ceil
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Self

from rioni.domain.hash_chain import GENESIS
from rioni.projections.bulk.executors import sink_for, write_rows
from rioni.projections.bulk.loading import database, load_file, targets
from rioni.projections.bulk.rebuild import Order, RebuildReport, rebuild
from rioni.projections.bulk.session import HERE, SparkOptions
from rioni.projections.bulk.source import ENTRIES_PER_TASK, PREFIXES, check_end, prefix, read_head, read_streams
from rioni.projections.generations.generation import WORKING, Generation, create, finish_load, remove
from rioni.sql.engines import open_engine, writing
from rioni.sql.log_tables import HEAD, LOG
from rioni.storage.sql.database_locks import rebuild_lock
from tests.support.descendants import descendants
from tests.support.history import Author, entries
from tests.support.log import create_tables, rows
from tests.support.standalone import standalone


ENTRIES_PER_WRITE = 5_000
SAMPLE_S = 0.5


def write_log(url: str, count: int, properties: int = 8) -> None:
    """Write a log without read models."""
    engine = open_engine(url)
    create_tables(engine)
    marks = ", ".join("?" * len(LOG.columns))
    history = entries(Author(Random(1), properties=properties).commands())
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


def rebuilt(url: str, folder: Path, *, dry_run: bool, spark: SparkOptions) -> tuple[RebuildReport, Phases]:
    """Rebuild, with temporary files in a folder."""
    phases, alone = Phases(), partial(rebuild_lock, open_engine(url))
    order = Order(dry_run=dry_run)
    report = rebuild(url, folder / "scratch", order, progress=phases, found=lambda _: None, alone=alone, options=spark)
    return report, phases


def single(url: str, folder: Path) -> float:
    """Fold and load all tasks one after the other, as a dry run does but for the comparison; return the seconds."""
    began = time.monotonic()
    engine, generation = open_engine(url), Generation(WORKING)
    folder.mkdir()
    create(engine, generation)
    log, columns = database(engine), targets(engine, generation)
    head = read_head(log)
    check_end(log, head)
    count = max(1, ceil(head.position / ENTRIES_PER_TASK))
    for number in range(count):
        begin, end = (prefix(each * PREFIXES // count) for each in (number, (number + 1) % count))
        entries_of_task = read_streams(log, begin, end, head)
        list(write_rows(number, entries_of_task, targets=columns, open_sink=sink_for(log, "single", str(folder))))
        (path,) = folder.glob("*.db")
        load_file(engine, generation, "single", path)
        path.unlink()
    finish_load(engine, generation, head.position)
    with writing(engine) as connection:
        remove(connection, generation.name)
    return time.monotonic() - began


class Memory:
    """Samples the memory of this process and all of its descendants, in a thread, while it is entered."""

    def __enter__(self) -> Self:
        self._peak, self._over = 0, Event()
        self._sampler = Thread(target=self._sample)
        self._sampler.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._sampler.join()

    def __str__(self) -> str:
        return f"{self._peak / 1e6:,.0f} MB"

    def _sample(self) -> None:
        while not self._over.wait(SAMPLE_S):
            used = sum(map(proportional_set_size, [os.getpid(), *descendants(os.getpid())]))
            self._peak = max(self._peak, used)


def proportional_set_size(pid: int) -> int:
    """The memory of a process in bytes, with its share of what several processes have in common."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1_024 for line in lines if line.startswith("Pss:")), 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--properties", type=int, default=8, help="of a schema; 8 make about 1 kB")
    parser.add_argument("--two-workers", action="store_true", help="also by a standalone master with two workers")
    parser.add_argument("--single", action="store_true", help="also by this process alone, without Spark")
    parser.add_argument("--folder", type=Path, help="where the database goes; default: a temporary folder")
    options = parser.parse_args()
    with TemporaryDirectory(dir=options.folder) as folder, ExitStack() as running:
        url = f"sqlite:///{folder}/registry.db"
        began = time.monotonic()
        write_log(url, options.entries, options.properties)
        size = (Path(folder) / "registry.db").stat().st_size
        print(f"log of {options.entries:,} entries, {size / 1e6:,.0f} MB, written in {time.monotonic() - began:.1f} s")
        measured = [("rebuild", False, HERE), ("dry run", True, HERE)]
        if options.two_workers:
            workers = running.enter_context(standalone(Path(folder) / "standalone"))
            memory = {"spark.executor.memory": "512m", "spark.driver.memory": "512m"}
            measured.append(("dry run, two workers", True, SparkOptions(workers.url, memory)))
        for title, dry_run, spark in measured:
            with Memory() as memory_used:
                report, phases = rebuilt(url, Path(folder), dry_run=dry_run, spark=spark)
            ended = time.monotonic()
            print(f"\n{title}: {report.seconds:.1f} s, {sum(report.rows.values()):,} rows, {memory_used}")
            ends = [*list(phases.began.values())[1:], ended]
            for (phase, start), end in zip(phases.began.items(), ends, strict=True):
                print(f"  {phase:8} {end - start:7.1f} s", flush=True)
        if options.single:
            with Memory() as memory_used:
                seconds = single(url, Path(folder) / "single")
            print(f"\nthis process alone: {seconds:.1f} s, {memory_used}")


if __name__ == "__main__":
    main()
