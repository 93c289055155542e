"""Exports the audit log to Parquet, a folder per day, together with the head of the log."""

import shutil
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as f

from rioni.domain.access.authorization import normalize_realm
from rioni.domain.errors import Conflict
from rioni.domain.events import REALM_MARK
from rioni.domain.hash_chain import LogHead
from rioni.projections.bulk import loading
from rioni.projections.bulk.executors import rows_of
from rioni.projections.bulk.session import spark_session
from rioni.projections.bulk.source import check_count, damage_named, map_log, read_head, record_batch, tasks
from rioni.projections.generations.generation import Generation
from rioni.projections.generations.rebuilds import Progress
from rioni.projections.log_rows import AUDIT_LOG, LogRow
from rioni.projections.queries import audit_log
from rioni.projections.queries.audit_log import AuditFilter
from rioni.sql.engines import open_engine


HEAD_FILE = "_head.json"
"""The file that contains the head; Parquet readers skip names that begin with an underscore."""

ROWS_PER_BATCH = 1_000

AUDITED = Generation("export", [AUDIT_LOG])
"""Gives the columns; its tables are never made."""


class AuditExportReport(NamedTuple):
    """The result of an export."""

    rows: int
    head: LogHead
    """The head of the exported log; keep it to detect later truncation."""


def export(url: str, scratch: Path, target: Path, *, wanted: AuditFilter, progress: Progress) -> AuditExportReport:
    """Write who changed what into `target/day=YYYY-MM-DD/*.parquet`, and the log's head into `target/_head.json`.

    Everything is folded again from the log, whose hash chain is checked on the way: the export does not depend on the
    live read models. `target` appears complete or not at all. Blocks for seconds at least.

    Args:
        url: the database, as SQLAlchemy writes it.
        scratch: a folder for temporary files; made if missing.
        target: a folder that does not exist or is empty.
        wanted: a filter of the changes to export.
        progress: called periodically.

    Raises:
        Conflict: the target is not empty.
        CorruptLog: the log is not what was written; the message names the position.
        Unavailable: Java is missing.
    """
    _check_empty(target)
    progress("start", 0, 1)
    database = loading.database(open_engine(url))
    target.absolute().parent.mkdir(parents=True, exist_ok=True)
    beside = target.absolute().with_name(f".{target.name}-{uuid4()}")
    beside.mkdir()
    try:
        with spark_session(scratch) as spark, damage_named(database):
            progress("start", 1, 1)
            head = read_head(database)
            progress("export", 0, head.position)
            engine = open_engine(url)
            (columns,) = [each.schema for each in loading.targets(engine, AUDITED) if each.name == AUDIT_LOG]
            with engine.connect() as connection:
                period = audit_log.in_log_within(connection, wanted.since, wanted.until)
            found = Observation()
            rows = map_log(spark, database, head, partial(audit_rows, schema=columns), columns)
            rows = rows.observe(found, f.count(f.lit(1)).alias("entries"))
            _write(_with_client_parts(rows.where(_matches(wanted, *period))), beside, tasks(spark, head))
            check_count(found.get["entries"], head)
            count = spark.read.parquet(str(beside)).count() if any(beside.glob("day=*")) else 0
        (beside / HEAD_FILE).write_bytes(msgspec.json.encode({"position": head.position, "hash": head.hash.hex()}))
        _check_empty(target)
        # A rename replaces an empty folder and refuses any other.
        beside.rename(target)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    progress("export", head.position, head.position)
    return AuditExportReport(count, head)


def audit_rows(_number: int, log: Iterable[LogRow], *, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Fold the log into the rows of the audit log alone: the function that Spark maps."""
    rows = []
    for table, row in rows_of(log):
        if table == AUDIT_LOG:
            rows.append([row[name] for name in schema.names])
        if len(rows) == ROWS_PER_BATCH:
            yield record_batch(schema, zip(*rows, strict=True))
            rows = []
    if rows:
        yield record_batch(schema, zip(*rows, strict=True))


def _with_client_parts(rows: DataFrame) -> DataFrame:
    """Add the results of `rioni.domain.events.client_parts` and `realm_of`, as three columns."""
    text = f.substring_index("client", REALM_MARK, 1)
    parts = {
        "client": f.substring_index(text, " ", 1),
        "user_agent": f.regexp_extract(text, "^[^ ]* (.*)$", 1),
        "realm": f.regexp_extract("client", f"{REALM_MARK}(.*)$", 1),
    }
    return rows.withColumns(parts)


def _write(rows: DataFrame, folder: Path, tasks: int) -> None:
    day = f.substring("recorded_at", 1, len("2026-01-01"))
    in_order = rows.withColumn("day", day).repartition(tasks, "day").sortWithinPartitions("day", "position")
    in_order.write.mode("append").partitionBy("day").parquet(str(folder))


def _matches(wanted: AuditFilter, first: int, last: int) -> Column:
    """The condition that `rioni.projections.queries.audit_log.entries` states in SQL."""
    condition = f.col("position").between(first, last)
    if wanted.actor is not None:
        condition &= f.col("actor") == wanted.actor
    if wanted.realm is not None:
        realm, client = normalize_realm(wanted.realm), f.col("client")
        condition &= client.endswith(f"{REALM_MARK}{realm}") if realm else ~client.contains(REALM_MARK)
    if wanted.resource is not None:
        kind, colon, key = wanted.resource.partition(":")
        named = f.col("resource") == wanted.resource
        condition &= named | ((f.col("resource_type") == kind) & (f.col("resource") == key)) if colon else named
    return condition


def _check_empty(target: Path) -> None:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise Conflict(f"{target} is not empty: name a new folder for the export.")
