"""Audit tables of an earlier release become Delta tables whose commits have the same signed manifests."""

import contextlib
import json
import shutil
from pathlib import Path

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from rioni.domain.errors import Conflict, Invalid, Unavailable
from rioni.files.locks import open_lock, try_lock
from rioni.lake import audit_conversion
from rioni.lake.conversion import convert
from rioni.lake.location import parse_location
from tests.support.audit_table import ENTRIES, EXPORTS, commits, converted, manifest_of, unpack, verified


class Died(BaseException):
    """The process ends here."""


@pytest.fixture
def folder(tmp_path) -> Path:
    return unpack(tmp_path)


@pytest.fixture(params=["parquet", "delta"])
def table(request: pytest.FixtureRequest, folder: Path) -> Path:
    return folder / "table" / request.param


def key(table: Path) -> str:
    return (table.parents[1] / "key").read_text()


def check(table: Path, texts: list[str]) -> None:
    """Check that a table has all rows, and the manifests as they were."""
    assert verified(table, "--key", key(table))
    found = DeltaTable(table)
    assert found.metadata().configuration == {"delta.enableExpiredLogCleanup": "false"}
    assert sorted(found.to_pyarrow_table().column("position").to_pylist()) == [*range(1, ENTRIES + 1)]
    assert [each["rioni.manifest"] for each in found.history()] == texts[::-1]
    assert not [*table.rglob("_manifest*")]


def manifests(table: Path) -> list[str]:
    return [path.read_text() for path in sorted((table / "_manifest").glob("*.json"))]


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


def test_each_manifest_becomes_a_commit_with_its_text(table):
    texts = manifests(table)
    (done,) = convert(parse_location(str(table)))
    assert done == ("audit table", table.name, 6, ENTRIES)
    assert len(texts) == EXPORTS
    check(table, texts)
    with pytest.raises(Invalid, match="no archive"):
        list(convert(parse_location(str(table))))


@pytest.mark.parametrize("steps", range(12))
def test_a_conversion_that_died_is_completed_by_the_next_one(table, monkeypatch, steps):
    """It dies before any of its steps that change files, or while it removes the manifests."""
    texts, left = manifests(table), [None] * steps

    def dying(change):
        def step(*args, **options):
            if not left:
                raise Died
            left.pop()
            return change(*args, **options)

        return step

    def remove(path, **_):
        for each in sorted(path.rglob("*"), key=lambda each: (-len(each.parts), each)):
            step(each)
        path.rmdir()

    step = dying(lambda path: path.rmdir() if path.is_dir() else path.unlink())
    with monkeypatch.context() as patched:
        patched.setattr(audit_conversion, "add_export", dying(audit_conversion.add_export))
        patched.setattr(audit_conversion, "make_durable", dying(audit_conversion.make_durable))
        patched.setattr(Path, "rename", dying(Path.rename))
        patched.setattr(audit_conversion, "fsync_directory", dying(audit_conversion.fsync_directory))
        patched.setattr(audit_conversion.shutil, "rmtree", lambda path, **_: remove(path) if path.exists() else None)
        with contextlib.suppress(Died):
            list(convert(parse_location(str(table))))
    if (table / "_manifest").exists():
        assert not verified(table)
        converted(table)
    check(table, texts)


def test_a_folder_in_which_no_export_has_ended_is_empty_then(folder):
    table = folder / "table" / "parquet"
    for path in (table / "_manifest").glob("*.json"):
        path.unlink()
    for path in table.glob("day=*"):
        shutil.rmtree(path)
    converted(table)
    assert not (table / "_manifest").exists()
    assert not (table / "_delta_log").exists()


def test_a_table_of_json_lines_is_refused_with_the_way_to_export_anew(folder):
    table = folder / "table" / "jsonl"
    before = files(table)
    with pytest.raises(Invalid, match="rioni audit export --format delta --to"):
        converted(table)
    assert files(table) == before


def remove_first(table: Path) -> None:
    (table / "_manifest" / "000000000001.json").unlink()


def change_second(table: Path) -> None:
    path = table / "_manifest" / "000000000002.json"
    path.write_text(json.dumps(json.loads(path.read_text())))


def remove_file(table: Path) -> None:
    next(table.glob("day=*/*.parquet")).unlink()


def change_file(table: Path) -> None:
    one, other, *_ = sorted(table.glob("day=*/*.parquet"))
    shutil.copyfile(one, other)


def remove_manifests(table: Path) -> None:
    for path in (table / "_manifest").glob("*.json"):
        path.unlink()


def empty_manifest(table: Path) -> None:
    (table / "_manifest" / "000000000003.json").write_text("{}")


def cut_manifest(table: Path) -> None:
    (table / "_manifest" / "000000000003.json").write_text("{")


@pytest.mark.parametrize(
    "damage",
    [remove_first, remove_manifests, change_second, remove_file, change_file, empty_manifest, cut_manifest],
)
def test_a_damaged_table_is_refused_and_left_as_it_is(table, damage):
    damage(table)
    before = files(table)
    with pytest.raises(Unavailable):
        converted(table)
    assert files(table) == before


def test_a_delta_table_that_has_gone_on_is_left_as_it_is(folder):
    table = folder / "table" / "delta"
    rows = DeltaTable(table).to_pyarrow_table()
    write_deltalake(table, rows.slice(0, 1), mode="append", partition_by=["day"])
    before = files(table)
    with pytest.raises(Conflict, match="has gone on"):
        converted(table)
    assert files(table) == before


def test_a_table_to_which_an_export_runs_is_refused(table):
    with open_lock(table / "_manifest" / ".lock") as lock:
        assert try_lock(lock.fileno())
        with pytest.raises(Conflict, match="is running"):
            converted(table)


def test_a_commit_names_the_files_of_its_manifest(table):
    converted(table)
    for commit in commits(table):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        paths = [each["add"]["path"] for each in actions if "add" in each]
        assert sorted(paths) == sorted(each["path"] for each in manifest_of(commit)["files"])


def test_filters_find_the_rows_of_a_table(table):
    """Statistics of one column alone let filters of datasets on the other columns find nothing."""
    data = DeltaTable(converted(table)).to_pyarrow_dataset()
    changes = data.to_table(filter=pc.field("resource_type") == "event-type")
    assert changes.num_rows == sum(each == "event-type" for each in data.to_table()["resource_type"].to_pylist()) > 0
