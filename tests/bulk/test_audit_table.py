"""The files of an audit table: the same rows, wherever the log is, however often it was exported on the way."""

from itertools import islice, pairwise
from pathlib import Path
from random import Random

import msgspec
import pyarrow.parquet as pq
import pytest
from sqlalchemy import update

from rioni.domain.audit_events import shown_state
from rioni.domain.hash_chain import GENESIS, LogHead
from rioni.domain.json_patch import json_patch
from rioni.projections.bulk import audit_rows, audit_table
from rioni.projections.bulk.audit_table import write_entries
from rioni.projections.log_rows import CorruptLog
from rioni.projections.queries.audit_log import AuditFilter, entries
from rioni.sql.log_tables import LOG
from tests.support.history import Author
from tests.support.history import entries as history


pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

ENTRIES = 300
NOTHING = LogHead(0, GENESIS)


def exported(url: str, tmp_path: Path, after: LogHead, upto: int) -> tuple[LogHead, list[audit_rows.WrittenFile]]:
    scratch, folder = tmp_path / "scratch", tmp_path / "table"
    head, files = write_entries(url, scratch, folder, after=after, upto=upto, progress=lambda *_: None)
    return head, list(files)


def expected(engine) -> list[dict]:
    """The columns that follow from the log, from the live read models."""
    found = []
    for row in entries(engine.connect, AuditFilter()):
        before, after = (shown_state(row["resource_type"], row[name]) for name in ("before", "after"))
        state = None if after is None else msgspec.json.encode(after).decode()
        changes = msgspec.json.encode(json_patch(before, after)).decode()
        derived = {"address": row["client"], "changes": changes, "state": state}
        names = ("position", "recorded_at", "actor", "topic", "resource_type", "resource", "user_agent", "realm")
        found.append({name: row[name] for name in names} | derived)
    return found


@pytest.mark.parametrize("seed", [1, 2])
def test_exports_at_any_positions_give_each_entry_once(url, engine, write, spark, tmp_path, monkeypatch, seed):
    monkeypatch.setattr(audit_table, "FILE_ROWS_MAX", 40)
    monkeypatch.setattr(audit_rows, "ROWS_PER_BATCH", 7)
    monkeypatch.setattr(audit_rows, "ROWS_HELD_MAX", 3)
    write(islice(history(Author(Random(seed), seconds_between=7_200).commands()), ENTRIES))
    random = Random(seed)
    stops = [0, *sorted(random.sample(range(1, ENTRIES), 2)), ENTRIES]
    head, files = NOTHING, []
    for _, upto in pairwise(stops):
        head, added = exported(url, tmp_path, head, upto)
        files += added
    assert [(each.first, each.last) for each in files] == sorted((each.first, each.last) for each in files)
    tables = [pq.ParquetFile(tmp_path / "table" / each.path).read() for each in files]
    assert [each.num_rows for each in tables] == [each.rows for each in files]
    rows = sorted((row for table in tables for row in table.to_pylist()), key=lambda row: row["position"])
    shown = expected(engine)
    assert [{name: row[name] for name in shown[0]} for row in rows] == shown
    days = [path.name for path in (tmp_path / "table").iterdir()]
    assert sorted(days) == sorted({f"day={row['recorded_at'][:10]}" for row in shown})


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_damage_is_found_in_entries_that_were_exported_before(url, engine, write, spark, tmp_path):
    write(islice(history(Author(Random(3)).commands()), 50))
    head, _ = exported(url, tmp_path, NOTHING, 40)
    with engine.begin() as connection:
        connection.execute(update(LOG).where(LOG.c.position == 12).values(data=b"{}"))
    with pytest.raises(CorruptLog, match="position 12"):
        exported(url, tmp_path, head, 50)
    with pytest.raises(CorruptLog, match="position 40 of the log is not the one that was exported"):
        exported(url, tmp_path, LogHead(40, GENESIS), 50)
