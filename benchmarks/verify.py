"""How fast `rioni verify` checks a long log, by one process and by several, its Merkle tree, and the read models.

    python -m benchmarks.verify --entries 1000000

The log is that of `benchmarks.rebuild`. Read models are compared in a smaller database: writing them takes long.
"""

import argparse
import os
import time
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from benchmarks.rebuild import write_log
from rioni.domain.aggregates import TOPICS
from rioni.installation.database import reading_models
from rioni.installation.log_tree import tree_findings
from rioni.projections.comparison import compare
from rioni.storage.log.verification import verify
from rioni.storage.sql.engines import create_engine
from rioni.storage.sql.read_only import read_only_engine
from tests.support.history import Author, entries
from tests.support.log import append, create_tables


def check_log(path: Path, count: int, processes: int) -> None:
    with read_only_engine(f"sqlite:///{path}") as engine:
        began = time.monotonic()
        assert not list(verify(engine, TOPICS, processes=processes))
        seconds = time.monotonic() - began
    print(f"log, {processes} process(es): {seconds:.1f} s, {count / seconds:,.0f} entries/s")


def check_tree(path: Path, count: int, processes: int) -> None:
    with read_only_engine(f"sqlite:///{path}") as engine:
        began = time.monotonic()
        assert not list(tree_findings(engine, [], processes=processes))
        seconds = time.monotonic() - began
    print(f"Merkle tree, {processes} process(es): {seconds:.1f} s, {count / seconds:,.0f} entries/s")


def compare_models(path: Path, count: int) -> None:
    engine = create_engine(f"sqlite:///{path}")
    create_tables(engine)
    with engine.begin() as connection:
        append(connection, islice(entries(Author(Random(1), properties=8).commands()), count))
    began = time.monotonic()
    assert not list(compare(partial(reading_models, engine), lambda *_: None))
    seconds = time.monotonic() - began
    print(f"read models of {count:,} entries: {seconds:.1f} s, {count / seconds:,.0f} entries/s")
    engine.dispose()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--compared", type=int, default=20_000)
    parser.add_argument("--folder", type=Path, help="where the databases go; default: a temporary folder")
    options = parser.parse_args()
    with TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder) / "registry.db"
        write_log(f"sqlite:///{path}", options.entries)
        for processes in sorted({1, os.cpu_count() or 1}):
            check_log(path, options.entries, processes)
            check_tree(path, options.entries, processes)
        compare_models(Path(folder) / "compared.db", options.compared)


if __name__ == "__main__":
    main()
