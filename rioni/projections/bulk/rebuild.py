"""Rebuilds all read models from the internal log with Spark, and swaps them in."""

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from pyspark.sql import SparkSession
from sqlalchemy import Engine

from rioni.domain.errors import Conflict
from rioni.file_locks import try_lock
from rioni.projections.bulk import shadow, verify
from rioni.projections.bulk.executors import FILE_SUFFIX, WRITTEN_SCHEMA, sink_for, write_rows
from rioni.projections.bulk.session import spark_session
from rioni.projections.bulk.source import check_count, damage_named, map_log, read_head, tasks
from rioni.projections.stream_fold import AUDIT_LOG


Alone = Callable[[], AbstractContextManager[Callable[[], None]]]
"""Keeps other rebuilds of the database out; what it yields raises Unavailable where it does so no longer."""

Progress = Callable[[str, int, int], None]
"""Called with the phase, the completed amount, and the total."""

POLL_S = 0.1
FOLDER_PREFIX = "rebuild-"


class RebuildReport(NamedTuple):
    """Result of a rebuild."""

    entries: int
    """How many entries of the log were folded in bulk; what came behind them was caught up."""
    rows: Mapping[str, int]
    """For each read model how many rows were built in bulk."""
    differences: Sequence[verify.Difference]
    """Differences between the live read models and the log."""
    seconds: float


def rebuild(
    url: str, scratch: Path, *, dry_run: bool, progress: Progress, alone: Alone, turn: shadow.Turn = nullcontext
) -> RebuildReport:
    """Build all read models anew, compare them with the live ones, and unless it is a `dry_run` replace these.

    Commands go on meanwhile; the log is locked only for the swap. Blocks for seconds at least. Until the swap, which is
    one transaction, the live read models are not touched, whatever happens.

    Args:
        url: the database, as SQLAlchemy writes it.
        scratch: a folder for temporary files, about twice the size of the log; made if missing.
        dry_run: compare only.
        progress: called periodically, from this thread.
        alone: keeps other rebuilds of the database out.
        turn: what every other writer to the database holds while it writes.

    Raises:
        CorruptLog: the log is not what was written; names the position.
        Conflict: another rebuild is running.
        Unavailable: Java or PySpark is missing, or the connection was lost that kept other rebuilds out.
    """
    started = time.monotonic()
    engine = shadow.open_engine(url, turn)
    with (
        alone() as check_alone,
        _alone(scratch),
        TemporaryDirectory(prefix=FOLDER_PREFIX, dir=scratch) as folder,
    ):
        progress("start", 0, 1)
        shadow.create(engine)
        try:
            with spark_session(scratch) as spark:
                progress("start", 1, 1)
                entries, rows = _build(engine, spark, Path(folder), progress)
            check_alone()
            differences = _compare(engine, progress)
            if not dry_run:
                check_alone()
                _swap(engine, progress)
        finally:
            # If the lock was lost, the shadows may be another rebuild's by now.
            check_alone()
            shadow.drop(engine)
    return RebuildReport(entries, rows, differences, time.monotonic() - started)


def _compare(engine: Engine, progress: Progress) -> Sequence[verify.Difference]:
    progress("compare", 0, 1)
    differences = verify.compare(engine)
    progress("compare", 1, 1)
    return differences


def _swap(engine: Engine, progress: Progress) -> None:
    progress("swap", 0, 1)
    shadow.catch_up(engine)
    shadow.swap(engine)
    progress("swap", 1, 1)


def _build(engine: Engine, spark: SparkSession, folder: Path, progress: Progress) -> tuple[int, Mapping[str, int]]:
    """Fill the shadows with what the log says up to its present end; return that end and the rows per read model."""
    database = shadow.database(engine)
    head = read_head(database)
    write = partial(write_rows, targets=shadow.targets(engine), open_sink=sink_for(database, str(folder)))
    written = map_log(spark, database, head, write, WRITTEN_SCHEMA)
    counted = _Tasks(spark, total=tasks(spark, head))
    rows = dict.fromkeys(shadow.SHADOWS, 0)
    with ThreadPoolExecutor(1, "spark") as pool, damage_named(database):
        job = pool.submit(written.collect)
        try:
            while not job.done():
                progress("fold", head.position * counted.done() // counted.total, head.position)
                # PERF: loading while Spark still folds hides most of the time it takes.
                if not _load_one(engine, folder):
                    wait([job], POLL_S)
        except BaseException:
            spark.sparkContext.cancelAllJobs()
            raise
        for report in job.result():
            rows[report.table] += report.rows
    check_count(rows[AUDIT_LOG], head)
    progress("fold", head.position, head.position)
    _load_rest(engine, folder, progress)
    shadow.finish_load(engine, head.position)
    return head.position, rows


def _load_rest(engine: Engine, folder: Path, progress: Progress) -> None:
    files = len(list(folder.glob(f"*{FILE_SUFFIX}")))
    for done in range(files):
        progress("load", done, files)
        _load_one(engine, folder)
    progress("load", files, files)


def _load_one(engine: Engine, folder: Path) -> bool:
    """Load one of the files that executors have completed, if there is one; say whether."""
    for path in folder.glob(f"*{FILE_SUFFIX}"):
        shadow.load_file(engine, path)
        path.unlink()
        return True
    return False


class _Tasks:
    """Counts the tasks of the running job that are done."""

    def __init__(self, spark: SparkSession, total: int) -> None:
        self.total = total
        self._tracker = spark.sparkContext.statusTracker()
        self._done: dict[int, int] = {}

    def done(self) -> int:
        for stage in self._tracker.getActiveStageIds():
            if (info := self._tracker.getStageInfo(stage)) is not None:
                self._done[stage] = info.numCompletedTasks
        return min(sum(self._done.values()), self.total)


@contextmanager
def _alone(scratch: Path) -> Iterator[None]:
    """Make sure that no other rebuild uses the same folder."""
    scratch.mkdir(parents=True, exist_ok=True)
    with (scratch / "rebuild.lock").open("w") as file:
        if not try_lock(file.fileno()):
            raise Conflict(f"Another rebuild is running: it holds the lock on {scratch / 'rebuild.lock'}.")
        for leftover in scratch.glob(f"{FOLDER_PREFIX}*"):
            shutil.rmtree(leftover)
        yield
