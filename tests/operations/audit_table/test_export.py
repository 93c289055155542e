"""An audit table has each entry of the log once, however its exports ended."""

import contextlib
import json
import os
import shutil
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from sqlalchemy import delete, select, update

from rioni.domain.errors import Conflict, Unavailable
from rioni.files import delta
from rioni.operations.audit_table import export as module
from rioni.projections.bulk import audit_table
from rioni.projections.bulk.audit_rows import TABLE_SCHEMA
from rioni.projections.log_rows import CorruptLog
from rioni.sql.log_tables import HEAD, LOG
from rioni.storage.sql.migration import upgrade
from tests.operations.audit_table.conftest import Broker, rows, shown
from tests.support.audit_table import commits, converted, manifest_of, put_manifest, unpack, verified


pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

COUNTED = "SELECT count(*) AS rows, count(DISTINCT position) AS positions, max(position) AS last FROM audit"
UNKNOWN = f"000000000099-{0:032x}.parquet"


class Died(BaseException):
    """The process ends here."""


def queried(table: Path, query: str) -> list[dict[str, object]]:
    found = deltalake.QueryBuilder().register("audit", deltalake.DeltaTable(table))
    return pa.table(found.execute(query).read_all()).to_pylist()


def test_a_table_grows_with_the_log_and_is_verified(broker, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(audit_table, "FILE_ROWS_MAX", 30)
    table = tmp_path / "table"
    broker.grow(70)
    assert broker.export(table) == (72, 72)
    seen = tmp_path / "seen"
    seen.write_text(manifest_of(commits(table)[0])["checkpoint"])
    broker.grow(50)
    assert broker.export(table) == (50, 122)
    assert broker.export(table) == (0, 122)

    assert [shown(row) for row in rows(table)] == broker.expected()
    assert [manifest_of(each)["last"] for each in commits(table)] == [72, 122]
    assert verified(table, "--key", broker.key, "--seen", str(seen))
    said = capsys.readouterr().out
    assert "122 entries" in said
    assert "signed by the key that you gave" in said
    assert "extends the checkpoints" in said
    (row,) = queried(table, COUNTED)
    assert [*row.values()] == [122, 122, 122]
    (table / "_manifest").mkdir()
    with pytest.raises(Conflict, match=f"rioni convert-archive {table}"):
        broker.export(table)


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (module, "_signed"),
        (delta, "create_table_with_add_actions"),
        (deltalake.DeltaTable, "create_write_transaction"),
        (module, "make_durable"),
    ],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_an_export_that_died_is_repeated_by_the_next_one(broker, tmp_path, monkeypatch, owner, name):
    table = tmp_path / "table"
    for _ in range(2):
        broker.grow(10)
        with monkeypatch.context() as patched, contextlib.suppress(Died):
            patched.setattr(owner, name, dies)
            broker.export(table)
        broker.grow(5)
    monkeypatch.setattr(module, "LEFTOVER_AGE_S", 0)
    broker.export(table)
    assert verified(table)
    assert [shown(row) for row in rows(table)] == broker.expected()
    present = {path.relative_to(table).as_posix() for path in table.glob("day=*/*")}
    assert present == {file["path"] for each in commits(table) for file in manifest_of(each)["files"]}


def test_an_export_does_not_sign_what_others_have_changed(broker, tmp_path):
    table = tmp_path / "table"
    broker.grow(5)
    broker.export(table)
    (newest,) = commits(table)
    manifest = manifest_of(newest)
    broker.grow(5)
    for forged, error in (({"keys": []}, "was changed"), ({"hash": "00" * 32}, "manifest is not valid")):
        put_manifest(newest, manifest | forged)
        with pytest.raises(Unavailable, match=error):
            broker.export(table)
    assert len(commits(table)) == 1


def test_a_folder_whose_path_readers_take_otherwise_is_refused(broker, tmp_path):
    with pytest.raises(Conflict, match="%XX"):
        broker.export(tmp_path / "x%20y")


def dies(*_: object, **__: object) -> None:
    raise Died


def test_a_first_export_that_failed_in_its_commit_is_repeated(broker, tmp_path):
    """A full disk, or a killed process, leaves a log without a commit."""
    table = tmp_path / "table"
    (table / "_delta_log").mkdir(parents=True)
    (table / "_delta_log" / f"{0:020}.json#1").write_text("")
    assert broker.export(table).added == broker.end
    assert verified(table)
    other = tmp_path / "other"
    (other / "_delta_log").mkdir(parents=True)
    (other / "_delta_log" / f"{1:020}.json").write_text("")
    with pytest.raises((Conflict, Unavailable)):
        broker.export(other)


def test_of_two_exports_at_once_one_adds_its_entries(broker, tmp_path):
    table, other = tmp_path / "table", tmp_path / "other"
    for count in (5, 4):
        broker.grow(count)
        if table.exists():
            shutil.copytree(table, other)
        broker.export(other)

        def other_ends(phase: str, done: int, _total: int) -> None:
            if (phase, done) == ("start", 1):
                shutil.copytree(other, table, dirs_exist_ok=True)

        with pytest.raises(Conflict, match="nothing was added"):
            broker.export(table, other_ends)
        assert verified(table)
        assert commits(table)[-1].read_text() == commits(other)[-1].read_text()
        assert broker.export(table) == (0, broker.end)
        assert [shown(row) for row in rows(table)] == broker.expected()
        shutil.rmtree(other)


def test_only_old_files_of_exports_are_removed(broker, tmp_path):
    """A running export may commit files that are young."""
    table = tmp_path / "table"
    broker.grow(3)
    broker.export(table)
    (day, *_) = table.glob("day=*")
    left = [day / UNKNOWN, day / f".{0:032x}.part", day / "notes.parquet"]
    for path in left:
        path.touch()
    broker.export(table)
    assert all(path.exists() for path in left)
    for path in table.glob("day=*/*"):
        os.utime(path, (0, 0))
    broker.export(table)
    assert [path.exists() for path in left] == [False, False, True]
    assert verified(table)


def test_an_export_without_new_entries_writes_no_commit(broker, tmp_path):
    table = tmp_path / "table"
    broker.export(table)
    broker.export(table)
    assert len(commits(table)) == 1


def test_a_table_of_an_older_release_gets_the_columns_that_it_lacks(broker, tmp_path):
    table, older = tmp_path / "table", TABLE_SCHEMA
    broker.grow(10)
    broker.export(table)
    (commit,) = commits(table)
    text = json.dumps(manifest_of(commit))
    shutil.rmtree(table / "_delta_log")
    older = older.remove(older.get_field_index("realm"))
    delta.add_export(table, None, older, text)
    assert "realm" not in {each.name for each in deltalake.DeltaTable(table).schema().fields}
    broker.grow(5)
    broker.export(table)
    assert len(commits(table)) == 2
    assert verified(table)
    found = queried(table, "SELECT position, realm FROM audit ORDER BY position")
    assert found == [{name: row[name] for name in ("position", "realm")} for row in broker.expected()]


@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_a_converted_table_goes_on(spark, tmp_path, form):
    folder = unpack(tmp_path)
    table = folder / "table" / form
    # The third export is taken back: the log of a Delta table has a commit for each.
    (table / "_manifest" / "000000000003.json").unlink()
    (table / "_delta_log" / f"{2:020}.json").unlink(missing_ok=True)
    broker = Broker.of(folder / "data")
    upgrade(broker.engine)
    with pytest.raises(Conflict, match="rioni convert-archive"):
        broker.export(table)
    converted(table)
    last = manifest_of(commits(table)[-1])["last"]
    assert broker.export(table) == (broker.end - last, broker.end)
    assert verified(table, "--key", (folder / "key").read_text())
    assert [shown(row) for row in rows(table)] == broker.expected()
    broker.engine.dispose()


def test_a_log_that_was_changed_is_not_exported(broker, tmp_path):
    table = tmp_path / "table"
    broker.grow(20)
    broker.export(table)
    broker.grow(5)
    with broker.engine.begin() as connection:
        connection.execute(update(LOG).where(LOG.c.position == 7).values(actor="nobody"))
    with pytest.raises(CorruptLog, match=r"not begin with the 22|position 7 is not the one"):
        broker.export(table)
    assert len(commits(table)) == 1


def test_what_does_not_continue_a_table_is_refused(broker, tmp_path):
    table = tmp_path / "table"
    broker.grow(8)
    shutil.copytree(broker.config.data, tmp_path / "earlier")
    broker.grow(2)
    broker.export(table)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    with pytest.raises(Conflict, match="no audit table"):
        broker.export(tmp_path / "mine")
    with pytest.raises(Conflict, match="entries of the log"):
        Broker(tmp_path / "other").export(table)
    earlier = Broker.of(tmp_path / "earlier")
    with pytest.raises(CorruptLog, match="ends at position 10, and"):
        earlier.export(table)
    (commit,) = commits(table)
    put_manifest(commit, manifest_of(commit) | {"number": 2})
    with pytest.raises(Unavailable, match="not the one that was written"):
        broker.export(table)
    deltalake.write_deltalake(tmp_path / "foreign", pa.table({"position": [1]}))
    with pytest.raises(Unavailable, match="does not begin with a manifest"):
        broker.export(tmp_path / "foreign")
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable, match="file"):
        broker.export(tmp_path / "file" / "table")
    earlier.engine.dispose()


def test_the_newest_entry_of_the_log_is_not_replaced_unnoticed(broker, tmp_path):
    """The tree is computed from the log as it is: what was exported is compared with both, hash and root."""
    table = tmp_path / "table"
    broker.grow(4)
    broker.export(table)
    with broker.engine.begin() as connection:
        last = connection.scalar(select(HEAD.c.position))
        connection.execute(delete(LOG).where(LOG.c.position == last))
        connection.execute(update(HEAD).values(position=last - 1))
    with pytest.raises((CorruptLog, Unavailable)):
        broker.export(table)
