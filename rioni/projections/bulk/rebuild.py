"""Rebuilds read models from the internal log with Spark: to replace the live ones, or as a separate generation."""

import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait  # threads: a separate command, which is not patched
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession
from sqlalchemy import Engine, inspect

from rioni.domain.errors import Conflict
from rioni.domain.hash_chain import LogHead
from rioni.domain.timestamps import rfc3339
from rioni.files.locks import open_lock, try_lock
from rioni.files.plain import file_errors
from rioni.projections.bulk.executors import DONE_SCHEMA, ENTRIES, FILE_SUFFIX, sink_for, write_rows
from rioni.projections.bulk.loading import database, load_file, targets
from rioni.projections.bulk.session import HERE, SparkOptions, cancel, is_lost, runs_here, spark_session
from rioni.projections.bulk.source import (
    Database,
    check_count,
    copy_log,
    count_entries,
    damage_named,
    map_log,
    read_head,
    tasks,
)
from rioni.projections.comparison import Difference
from rioni.projections.fold import FOLD_VERSION
from rioni.projections.generations import rebuilds
from rioni.projections.generations.generation import (
    WORKING,
    Generation,
    catch_up,
    create,
    find,
    finish_load,
    record,
    remove,
)
from rioni.projections.generations.rebuilds import Progress, Rebuild, RebuildPlan
from rioni.projections.generations.swap import check_usable, compare, swap
from rioni.sql.engines import Turn, open_engine, snapshot, writing


Alone = Callable[[], AbstractContextManager[Callable[[], None]]]
"""Keeps other rebuilds of the database out; it yields a function that raises Unavailable if that is no longer so."""

POLL_S = 0.1
FOLDER_PREFIX = "rebuild-"
KEYS_NAMED_MAX = 10


class Order(NamedTuple):
    """The scope and mode of a rebuild."""

    tables: Collection[str] | None = None
    """The names of the read models; None for all."""
    into: str | None = None
    """The name of the generation that is built; None for one that replaces the live read models."""
    upto: int | None = None
    """The last entry of the log that counts; None for the end. Only for a generation with a name."""
    incremental: bool = False
    """Whether a generation with a name is continued at its end, after the log up to there was checked."""
    dry_run: bool = False
    """Whether the result is only compared."""
    differences_max: int | None = KEYS_NAMED_MAX
    """How many differences to report for each table and kind; None for all."""


class RebuildReport(NamedTuple):
    """Result of a rebuild."""

    id: str
    entries: int
    """How many entries of the log were folded in bulk; later ones were caught up."""
    rows: Mapping[str, int]
    """The number of rows that were built in bulk, by table."""
    differences: int
    """How many differences between the live read models and the log were reported."""
    seconds: float


def rebuild(
    url: str,
    scratch: Path,
    order: Order,
    *,
    progress: Progress,
    found: Callable[[Difference], None],
    alone: Alone,
    turn: Turn = nullcontext,
    options: SparkOptions = HERE,
) -> RebuildReport:
    """Build read models anew, compare them with the live ones, and unless ordered otherwise replace these.

    Commands go on meanwhile; the log is locked only for the swap. Blocks for seconds at least. Until the swap, which is
    one transaction, the live read models are never touched. A rebuild that was killed, or whose Java
    process was, is resumed by the next one with the same order.

    Args:
        url: the database, as SQLAlchemy writes it.
        scratch: a folder for temporary files, about twice the size of the log; made if missing. With executors on other
            machines and a log in SQLite they have to see it too.
        order: the scope and mode of the rebuild.
        progress: called periodically, from this thread.
        found: called with each difference; none are searched if only a part of the log counts.
        alone: keeps other rebuilds of the database out.
        turn: the lock that every other writer to the database holds while it writes.
        options: the options of Spark.

    Raises:
        CorruptLog: the log is not what was written; the message names the position.
        Conflict: another rebuild is running, or a generation can't be continued.
        NotFound: there is no such generation to continue.
        Unavailable: Java or PySpark is missing, Java was killed, the connection was lost that kept other rebuilds out,
            or the folder can't be written to.
    """
    engine = open_engine(url, turn)
    with alone() as check_alone, _alone(scratch):
        started = time.monotonic()
        progress("start", 0, 1)
        with spark_session(scratch, options) as spark:
            progress("start", 1, 1)
            report = _Rebuild(engine, spark, scratch, order, progress, found, check_alone).run()
        return report._replace(seconds=time.monotonic() - started)


class _Rebuild:
    """One rebuild, from top to bottom."""

    def __init__(
        self,
        engine: Engine,
        spark: SparkSession,
        scratch: Path,
        order: Order,
        progress: Progress,
        found: Callable[[Difference], None],
        check_alone: Callable[[], None],
    ) -> None:
        self._engine, self._spark, self._scratch, self._order = engine, spark, scratch, order
        self._show, self._found, self._check_alone = progress, found, check_alone
        self._database = database(engine)
        self._generation = Generation(order.into or WORKING, order.tables)
        if order.incremental:
            with snapshot(engine) as connection:
                known = find(connection, self._generation.name)
                check_usable(connection, known)
            self._generation, head = Generation(known.name, known.tables), known.checked
        else:
            head = read_head(self._database, order.upto)
        self._record = rebuilds.begin(engine, self._plan(head), self._usable)
        self._head = self._record.plan.head
        self._folder = scratch / f"{FOLDER_PREFIX}{self._record.id}"

    def run(self) -> RebuildReport:
        """Build, compare, and replace."""
        self._clean_up()
        self._folder.mkdir(exist_ok=True)
        try:
            rows = {} if self._order.incremental else self._build()
            if self._order.incremental:
                self._check_log()
                catch_up(self._engine, self._generation)
            self._check_alone()
            differences = 0 if self._order.upto else self._compare()
            self._check_alone()
            self._finish()
        except BaseException as ex:
            # Without Java it is as if this process had died: the next rebuild goes on with what is built.
            if not is_lost(self._spark, ex):
                self._fail(ex)
            raise
        self._record.finish(rebuilds.DONE, f"{self._head.position} entries, {differences} differences")
        shutil.rmtree(self._folder)
        return RebuildReport(self._record.id, self._head.position, rows, differences, seconds=0)

    def _plan(self, head: LogHead) -> RebuildPlan:
        return RebuildPlan(
            generation=self._generation.name,
            tables=sorted(self._generation.tables),
            incremental=self._order.incremental,
            fold=FOLD_VERSION,
            upto=self._order.upto,
            position=head.position,
            hash=head.hash.hex(),
            tasks=tasks(self._spark, head),
        )

    def _usable(self, interrupted: Rebuild) -> bool:
        """Whether the result of an interrupted rebuild is still there, and the log is the same."""
        if interrupted.plan.incremental:
            return False
        with snapshot(self._engine) as connection:
            present = set(inspect(connection).get_table_names())
        head = read_head(self._database, interrupted.plan.position)
        folder = self._scratch / f"{FOLDER_PREFIX}{interrupted.id}"
        return (
            head.hash == interrupted.plan.head.hash
            and present.issuperset(each.name for each in self._generation.tables.values())
            and (folder.is_dir() or self._database.kind != "sqlite")
        )

    def _clean_up(self) -> None:
        """Remove the files of other rebuilds."""
        for leftover in self._scratch.glob(f"{FOLDER_PREFIX}*"):
            if leftover != self._folder:
                shutil.rmtree(leftover)
        if not (self._record.resumed or self._order.incremental):
            create(self._engine, self._generation)

    def _build(self) -> Mapping[str, int]:
        """Fill the tables from the log up to the head; return the number of rows of each."""
        with snapshot(self._engine) as connection:
            if self._generation.projector.fold_version(connection) is not None:
                return {}
        for part in self._folder.glob("*.part"):
            part.unlink()
        with damage_named(self._database):
            self._fold()
        done = self._record.tasks()
        rows = {name: sum(each.get(name, 0) for each in done.values()) for name in (ENTRIES, *self._generation.tables)}
        check_count(rows.pop(ENTRIES), self._head)
        finish_load(self._engine, self._generation, self._head.position)
        return rows

    def _fold(self) -> None:
        """Let Spark fold the tasks that are not done, and meanwhile load the rows that it has written."""
        done, total = {*self._record.tasks(), *self._files()}, self._record.plan.tasks
        here = self._database_of_executors()
        write = partial(
            write_rows,
            targets=targets(self._engine, self._generation),
            open_sink=sink_for(here, self._record.id, str(self._folder)),
        )
        folded = map_log(self._spark, here, self._head, write, DONE_SCHEMA, count=total, skip=done)
        with ThreadPoolExecutor(1, "spark") as pool:
            job = pool.submit(folded.collect)
            try:
                self._load_while(job, total)
            except BaseException:
                cancel(self._spark)
                raise
            job.result()  # waits: it is done
        self._progress("fold", self._head.position, self._head.position)
        for number, path in enumerate(files := [*self._files().values()]):
            self._progress("load", number, len(files))
            self._load(path)
        self._progress("load", 1, 1)

    def _load_while(self, job: Future[Any], total: int) -> None:
        """PERF: loading while Spark still folds hides most of the time it takes."""
        while not job.done():
            done = {*self._record.tasks(), *self._files()}
            self._progress("fold", self._head.position * len(done) // total, self._head.position)
            for path in [*self._files().values()][:1]:
                self._load(path)
                break
            else:
                wait([job], POLL_S)

    def _files(self) -> Mapping[int, Path]:
        """The files that executors have completed, by the numbers of their tasks."""
        return {int(path.stem): path for path in self._folder.glob(f"[0-9]*{FILE_SUFFIX}")}

    def _load(self, path: Path) -> None:
        load_file(self._engine, self._generation, self._record.id, path)
        path.unlink()

    def _database_of_executors(self) -> Database:
        """The log's database for executors: on other machines a copy, if it is an SQLite file, which changes."""
        if self._database.kind != "sqlite" or runs_here(self._spark):
            return self._database
        return copy_log(self._database, self._head, self._folder / "log.copy")

    def _check_log(self) -> None:
        """Check the hash chain of the log up to the entry at which the generation was checked before."""
        self._progress("check", 0, self._head.position)
        with damage_named(self._database):
            entries = count_entries(self._spark, self._database_of_executors(), self._head)
        check_count(entries, self._head)
        self._progress("check", self._head.position, self._head.position)

    def _compare(self) -> int:
        self._progress("compare", 0, 1)
        count = 0
        for difference in compare(self._engine, self._generation, self._order.differences_max):
            self._found(difference)
            count += 1
        self._progress("compare", 1, 1)
        return count

    def _finish(self) -> None:
        if self._order.dry_run:
            with writing(self._engine) as connection:
                remove(connection, self._generation.name)
        elif self._order.into is None:
            self._progress("swap", 0, 1)
            catch_up(self._engine, self._generation)
            swap(self._engine, self._generation)
            self._progress("swap", 1, 1)
        elif not self._order.incremental:
            with writing(self._engine) as connection:
                record(connection, self._generation, rfc3339(int(time.time() * 1000)), self._head)

    def _fail(self, ex: BaseException) -> None:
        # If the lock was lost, the tables may be another rebuild's by now.
        self._check_alone()
        if not self._order.incremental:
            with writing(self._engine) as connection:
                remove(connection, self._generation.name)
        self._record.finish(rebuilds.FAILED, f"{type(ex).__name__}: {ex}")
        shutil.rmtree(self._folder, ignore_errors=True)

    def _progress(self, phase: str, done: int, total: int) -> None:
        self._show(phase, done, total)
        self._record.progress(phase, done, total)


@contextmanager
def _alone(scratch: Path) -> Iterator[None]:
    """Make sure that no other rebuild uses the same folder."""
    with file_errors(f"{scratch} can't be written to"):
        scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = open_lock(scratch / "rebuild.lock")
    with file:
        if not try_lock(file.fileno()):
            raise Conflict(f"Another rebuild is running: it holds the lock on {scratch / 'rebuild.lock'}.")
        yield
