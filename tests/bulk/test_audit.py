import json
from collections import Counter
from itertools import islice
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
import pytest
from sqlalchemy import delete, select, update

from rioni.domain.errors import Conflict
from rioni.projections.bulk.audit import HEAD_FILE, export
from rioni.projections.bulk.source import CorruptLog
from rioni.projections.queries.audit_log import AuditFilter
from rioni.projections.queries.audit_log import entries as audit_entries
from rioni.projections.tables import AUDIT_LOG
from rioni.sql.log_tables import HEAD, LOG
from tests.support.history import Author, entries


pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

ALL = AuditFilter()


@pytest.fixture
def history(write):
    write(islice(entries(Author(Random(3), seconds_between=3_600).commands()), 400))


def run(url: str, tmp_path: Path, wanted: AuditFilter = ALL):
    target = tmp_path / "export"
    return target, export(url, tmp_path / "scratch", target, wanted=wanted, progress=lambda *_: None)


def exported(target: Path) -> list[dict]:
    return sorted(pq.read_table(target).drop_columns("day").to_pylist(), key=lambda row: row["position"])


def live(engine, wanted: AuditFilter = ALL) -> list[dict]:
    return list(audit_entries(engine.connect, wanted))


def test_an_export_contains_the_audit_log_in_a_folder_per_day_and_the_head(url, engine, history, spark, tmp_path):
    expected = live(engine)
    target, report = run(url, tmp_path)

    assert exported(target) == expected
    assert report.rows == len(expected) == 400
    days = Counter(f"day={row['recorded_at'][:10]}" for row in expected)
    assert {folder.name: pq.read_table(folder).num_rows for folder in target.glob("day=*")} == days
    with engine.connect() as connection:
        position, digest = connection.execute(select(HEAD.c.position, HEAD.c.hash)).one()
    assert json.loads((target / HEAD_FILE).read_bytes()) == {"position": position, "hash": digest.hex()}
    assert [path.name for path in tmp_path.glob(".export-*")] == []


def test_an_export_is_folded_from_the_log_and_not_copied_from_the_live_tables(url, engine, history, spark, tmp_path):
    expected = live(engine)
    with engine.begin() as connection:
        connection.execute(delete(AUDIT_LOG).where(AUDIT_LOG.c.position == 5))
        connection.execute(update(AUDIT_LOG).values(actor="nobody"))
    assert exported(run(url, tmp_path)[0]) == expected


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_filters_select_the_same_as_queries_of_the_live_audit_log(url, engine, history, spark, tmp_path):
    one = live(engine)[100]
    for number, wanted in enumerate(
        (
            AuditFilter(since=one["recorded_at"], actor=one["actor"]),
            AuditFilter(until=one["recorded_at"]),
            AuditFilter(resource=one["resource"]),
            AuditFilter(resource=f"{one['resource_type']}:{one['resource']}"),
            AuditFilter(actor="nobody"),
        )
    ):
        expected = live(engine, wanted)
        target, report = run(url, tmp_path / str(number), wanted)
        assert (exported(target) if expected else []) == expected
        assert report.rows == len(expected)
        assert (target / HEAD_FILE).exists()


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_realm_selects_the_entries_that_show_it(url, engine, history, spark, tmp_path):
    everything = live(engine)
    realms = {row["realm"] for row in everything}
    assert "" in realms
    assert len(realms) > 2
    for number, realm in enumerate([*sorted(realms), "absent"]):
        expected = [row for row in everything if row["realm"] == realm]
        assert live(engine, AuditFilter(realm=realm)) == expected
        assert live(engine, AuditFilter(realm=f"/{realm}")) == expected
        target, _ = run(url, tmp_path / str(number), AuditFilter(realm=f"/{realm}"))
        assert (exported(target) if expected else []) == expected


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_short_log_is_exported_in_few_tasks(url, write, spark, tmp_path):
    write(islice(entries(Author(Random(3)).commands()), 20))
    spark.sparkContext.setJobGroup("export", "counted")
    run(url, tmp_path)
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup("export")]
    tasks = [tracker.getStageInfo(stage).numTasks for job in jobs for stage in job.stageIds]
    assert 3 <= sum(tasks) <= 10 * spark.sparkContext.defaultParallelism


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_target_that_is_not_empty_is_rejected_and_kept(url, engine, history, spark, tmp_path):
    (tmp_path / "export").mkdir()
    (tmp_path / "export" / "mine.txt").write_text("keep")
    with pytest.raises(Conflict, match="is not empty"):
        run(url, tmp_path)
    assert [path.name for path in (tmp_path / "export").iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_damaged_log_is_not_exported(url, engine, history, spark, tmp_path):
    with engine.begin() as connection:
        connection.execute(update(LOG).where(LOG.c.position == 77).values(data=b"{}"))
    with pytest.raises(CorruptLog, match="position 77"):
        run(url, tmp_path)
    assert not (tmp_path / "export").exists()
    assert [path.name for path in tmp_path.glob(".export-*")] == []
