"""Lets Spark write entries of the log, with their changes, into the files of a table."""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait  # threads: a separate command, which is not patched
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.utils import is_remote

from rioni.domain.hash_chain import LogHead
from rioni.projections.bulk import loading
from rioni.projections.bulk.audit_rows import (
    DAY,
    ENTRIES,
    FILE_ROWS_MAX,
    FILES_SCHEMA,
    ROWS_SCHEMA,
    WrittenFile,
    entries_behind,
    write_files,
)
from rioni.projections.bulk.session import HERE, SparkOptions, cancel, runs_here, spark_session
from rioni.projections.bulk.source import check_count, copy_log, damage_named, map_log, read_head
from rioni.projections.generations.rebuilds import Progress
from rioni.projections.log_rows import CorruptLog
from rioni.sql.engines import open_engine


POLL_S = 0.1


def write_entries(
    url: str,
    scratch: Path,
    folder: Path,
    *,
    after: LogHead,
    upto: int,
    progress: Progress,
    options: SparkOptions = HERE,
) -> tuple[LogHead, Sequence[WrittenFile]]:
    """Write the entries after one position, up to another one, into new files of a table.

    Their states are folded from the whole log up to there, whose hash chain is checked on the way. Only the names of
    files are collected. Blocks for seconds at least.

    Args:
        url: the database, as SQLAlchemy writes it.
        scratch: a folder for temporary files; made if missing. With executors on other machines and a log in SQLite
            they have to see it too.
        folder: the folder of the table; all executors see it under this path.
        after: the last entry that the table has.
        upto: the last entry to write.
        progress: called periodically, from this thread.
        options: the options of Spark.

    Returns:
        The last entry that was written, and the files in the order of their positions.

    Raises:
        CorruptLog: the log is not what was written, or not the one that the table was made from.
        Unavailable: Java or PySpark is missing.
    """
    database = loading.database(open_engine(url))
    if after.position and read_head(database, after.position).hash != after.hash:
        raise CorruptLog(f"The entry at position {after.position} of the log is not the one that was exported.")
    head = read_head(database, upto)
    progress("start", 0, 1)
    with spark_session(scratch, options) as spark, damage_named(database):
        progress("start", 1, 1)
        copy = scratch / "audit-log.copy"
        if database.kind == "sqlite" and not runs_here(spark):
            database = copy_log(database, head, copy)
        try:
            read = Observation()
            log = map_log(spark, database, head, partial(entries_behind, after=after.position), ROWS_SCHEMA)
            rows = log.observe(read, f.sum(ENTRIES).alias(ENTRIES)).where(f.col(ENTRIES).isNull())
            parts = ceil((upto - after.position) / FILE_ROWS_MAX)
            ranges = rows.repartitionById(
                parts, f.floor((f.col("position") - after.position - 1) / FILE_ROWS_MAX).cast("int")
            )
            write = partial(write_files, folder=str(folder))
            files = ranges.sortWithinPartitions(DAY, "position").mapInArrow(write, from_arrow_schema(FILES_SCHEMA))
            found = [WrittenFile(*row) for row in _collected(spark, files, progress)]
        finally:
            copy.unlink(missing_ok=True)
        check_count(read.get[ENTRIES] or 0, head)
    return head, sorted(found, key=lambda each: (each.first, each.path))


def _collected(spark: SparkSession, files: Any, progress: Progress) -> Sequence[Any]:
    """Run the job, and show how many of its tasks are done."""
    with ThreadPoolExecutor(1, "spark") as pool:
        job: Future[Any] = pool.submit(files.collect)
        try:
            while not job.done():
                wait([job], POLL_S)
                if not is_remote():
                    _show(spark, progress)
        except BaseException:
            cancel(spark)
            raise
        rows: Sequence[Any] = job.result()  # waits: it is done
    return rows


def _show(spark: SparkSession, progress: Progress) -> None:
    tracker = spark.sparkContext.statusTracker()
    for number in tracker.getActiveStageIds()[:1]:
        if (stage := tracker.getStageInfo(number)) is not None:
            progress("export", stage.numCompletedTasks, stage.numTasks)
