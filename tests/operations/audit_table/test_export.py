"""An audit table has each entry of the log once, however its exports ended."""

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from sqlalchemy import delete, select, update

from rioni.domain.errors import Conflict, Unavailable
from rioni.operations import verify_export
from rioni.operations.audit_table import export as module
from rioni.operations.audit_table import manifests
from rioni.projections.bulk import audit_table
from rioni.projections.bulk.audit_rows import TABLE_SCHEMA
from rioni.projections.log_rows import CorruptLog
from rioni.sql.log_tables import HEAD, LOG
from tests.operations.audit_table.conftest import Broker, shown


pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

FORMATS = ("parquet", "delta", "jsonl")
COUNTED = "SELECT count(*) AS rows, count(DISTINCT position) AS positions, max(position) AS last FROM audit"


class Died(BaseException):
    """The process ends here."""


def rows(folder: Path) -> list[dict[str, Any]]:
    files = [file for manifest in verify_export.manifests_of(folder) for file in manifest["files"]]
    return list(verify_export.rows_of(folder, files))


def verified(folder: Path, *options: str) -> bool:
    return verify_export.main([str(folder), *options]) == 0


@pytest.mark.parametrize("form", FORMATS)
def test_a_table_grows_with_the_log_and_is_verified(broker, tmp_path, monkeypatch, capsys, form):
    monkeypatch.setattr(audit_table, "FILE_ROWS_MAX", 30)
    table = tmp_path / "table"
    broker.grow(70)
    assert broker.export(table, form) == (72, 72)
    seen = tmp_path / "seen"
    seen.write_text(verify_export.manifests_of(table)[0]["checkpoint"])
    broker.grow(50)
    assert broker.export(table, form) == (50, 122)
    assert broker.export(table, form) == (0, 122)

    assert [shown(row) for row in rows(table)] == broker.expected()
    assert [each["last"] for each in verify_export.manifests_of(table)] == [72, 122]
    assert verified(table, "--key", broker.key, "--seen", str(seen))
    said = capsys.readouterr().out
    assert "122 entries" in said
    assert "signed by the key that you gave" in said
    assert "extends the checkpoints" in said
    if form == "delta":
        found = deltalake.QueryBuilder().register("audit", deltalake.DeltaTable(table))
        (row,) = pa.table(found.execute(COUNTED).read_all()).to_pylist()
        assert list(row.values()) == [122, 122, 122]


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (module, "_signed"),
        (manifests.os, "fsync"),
        (manifests, "fsync_directory"),
        (manifests, "create_table_with_add_actions"),
        (deltalake.DeltaTable, "create_write_transaction"),
    ],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_an_export_that_died_is_repeated_by_the_next_one(broker, tmp_path, monkeypatch, owner, name):
    table = tmp_path / "table"
    for _ in range(2):
        broker.grow(10)
        with monkeypatch.context() as patched, contextlib.suppress(Died):
            patched.setattr(owner, name, dies)
            broker.export(table, "delta")
        broker.grow(5)
    broker.export(table, "delta")
    assert verified(table)
    assert [shown(row) for row in rows(table)] == broker.expected()
    present = {path.relative_to(table).as_posix() for path in table.glob("day=*/*")}
    assert present == {file["path"] for each in verify_export.manifests_of(table) for file in each["files"]}


def test_a_table_of_an_older_release_gets_the_columns_that_it_lacks(broker, tmp_path):
    table, older = tmp_path / "table", TABLE_SCHEMA
    broker.grow(10)
    broker.export(table, "delta")
    shutil.rmtree(table / "_delta_log")
    older = older.remove(older.get_field_index("realm"))
    manifests.follow(table, [*manifests.TableFolder(table).manifests()], older)
    assert "realm" not in {each.name for each in deltalake.DeltaTable(table).schema().fields}
    broker.grow(5)
    broker.export(table, "delta")
    assert verified(table)
    found = deltalake.QueryBuilder().register("audit", deltalake.DeltaTable(table))
    shown = pa.table(found.execute("SELECT position, realm FROM audit ORDER BY position").read_all()).to_pylist()
    assert shown == [{name: row[name] for name in ("position", "realm")} for row in broker.expected()]


def dies(*_: object, **__: object) -> None:
    raise Died


def test_a_log_that_was_changed_is_not_exported(broker, tmp_path):
    table = tmp_path / "table"
    broker.grow(20)
    broker.export(table)
    broker.grow(5)
    with broker.engine.begin() as connection:
        connection.execute(update(LOG).where(LOG.c.position == 7).values(actor="nobody"))
    with pytest.raises(CorruptLog, match=r"not begin with the 22|position 7 is not the one"):
        broker.export(table)
    assert len(verify_export.manifests_of(table)) == 1


def test_what_does_not_continue_a_table_is_refused(broker, tmp_path):
    table = tmp_path / "table"
    broker.grow(8)
    shutil.copytree(broker.config.data, tmp_path / "earlier")
    broker.grow(2)
    broker.export(table)
    with pytest.raises(Conflict, match="--format jsonl"):
        broker.export(table, "parquet")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    with pytest.raises(Conflict, match="no audit table"):
        broker.export(tmp_path / "mine")
    with manifests.TableFolder(table).locked(), pytest.raises(Conflict, match="Another export"):
        broker.export(table)
    with pytest.raises(Conflict, match="entries of the log"):
        Broker(tmp_path / "other").export(table)
    with pytest.raises(CorruptLog, match="ends at position 10, and"):
        export_of(broker, tmp_path / "earlier").export(table)
    (table / "_manifest" / "000000000001.json").write_text("{}")
    with pytest.raises(Unavailable, match="not the manifest"):
        broker.export(table)


def export_of(broker: Broker, data: Path) -> Broker:
    """A broker with another data directory."""
    copy = object.__new__(Broker)
    copy.config = broker.config.__class__(data=data)
    return copy


# --- forgeries ---


@pytest.fixture
def table(broker, tmp_path, monkeypatch) -> Iterator[Path]:
    """A table of two exports, several days, and overlapping files."""
    monkeypatch.setattr(audit_table, "FILE_ROWS_MAX", 7)
    for _ in range(2):
        broker.grow(12)
        broker.export(tmp_path / "table")
    return tmp_path / "table"


def files_of(table: Path) -> list[Path]:
    return sorted(table.glob("day=*/*"))


def change(path: Path, name: str, value: Any) -> None:
    """Change a member of the first row."""
    first, *others = path.read_text().splitlines(keepends=True)
    path.write_text("".join([json.dumps(json.loads(first) | {name: value}) + "\n", *others]))


FORGERIES = {
    "a field of the log": lambda table: change(files_of(table)[0], "actor", "nobody"),
    "a column that follows": lambda table: change(files_of(table)[1], "state", {"owning_application": "mine"}),
    "a column of its own": lambda table: change(files_of(table)[0], "hash", "00"),
    "a file is cut": lambda table: files_of(table)[2].write_text(files_of(table)[2].read_text().rpartition("{")[0]),
    "a file is gone": lambda table: files_of(table)[2].unlink(),
    "the first manifest is gone": lambda table: (table / "_manifest" / "000000000001.json").unlink(),
    "all files are gone": lambda table: [shutil.rmtree(each) for each in table.glob("day=*")],
}


@pytest.mark.parametrize("signed", ["digests as they were", "digests repaired"])
def test_forgeries_are_found(table, signed, broker, tmp_path):
    assert verified(table)
    for name, forge in FORGERIES.items():
        forged = Path(shutil.copytree(table, tmp_path / "forged"))
        forge(forged)
        if signed == "digests repaired":
            repair(forged)
        assert not verified(forged, "--key", broker.key), name
        shutil.rmtree(forged)


def repair(table: Path) -> None:
    """Let the manifests name the files as they are now, and each other, as a forger without the key would."""
    previous = ""
    for path in sorted((table / "_manifest").glob("*.json")):
        manifest = json.loads(path.read_text())
        present = [file for file in manifest["files"] if (table / file["path"]).exists()]
        for file in present:
            file["sha256"] = verify_export.sha256((table / file["path"]).read_bytes()).hex()
        path.write_text(json.dumps(manifest | {"files": present, "previous": previous}))
        previous = verify_export.sha256(path.read_bytes()).hex()


def test_every_member_of_a_manifest_is_signed(table, broker):
    path = max((table / "_manifest").glob("*.json"))
    manifest = json.loads(path.read_text())
    for name, value in manifest.items():
        other = value + 1 if isinstance(value, int) else value[1:] if len(value) > 1 else [*value, "x"]
        path.write_text(json.dumps(manifest | {name: other}))
        assert not verified(table, "--key", broker.key), name
    path.write_text(json.dumps(manifest))
    assert verified(table, "--key", broker.key)


def test_a_delta_table_with_other_files_is_found(broker, tmp_path):
    table = tmp_path / "table"
    broker.grow(3)
    broker.export(table, "delta")
    assert verified(table)
    deltalake.DeltaTable(table).delete("position = 2")
    assert not verified(table)


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
