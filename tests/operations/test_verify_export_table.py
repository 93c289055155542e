"""Forged audit tables: `verify_export.py` refuses whatever a reader of the table would believe."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rioni.operations import verify_export
from tests.support.audit_table import (
    ENTRIES,
    change,
    commits,
    converted,
    manifest_of,
    put_manifest,
    unpack,
    verified,
)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of three exports and several days."""
    return converted(unpack(tmp_path_factory.mktemp("frozen")) / "table" / "parquet")


@pytest.fixture
def table(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "table"))


@pytest.fixture
def key(original: Path) -> str:
    return (original.parents[1] / "key").read_text()


def files_of(table: Path) -> list[Path]:
    return sorted(table.glob("day=*/*"))


def rewrite(path: Path, changed: Callable[[list[dict[str, Any]]], Any], *further: str) -> None:
    """Change the rows of a file, which may get further columns."""
    read = pq.read_table(path, partitioning=None)
    rows = read.to_pylist()
    changed(rows)
    schema = pa.schema([*read.schema, *((name, pa.string()) for name in further)])
    pq.write_table(pa.Table.from_pylist(rows, schema), path)


def repair(table: Path) -> None:
    """Let the manifests name the files as they are now, and each other, as a forger without the key would."""
    previous = ""
    for commit in commits(table):
        manifest = manifest_of(commit)
        present = [file for file in manifest["files"] if (table / file["path"]).exists()]
        for file in present:
            data = (table / file["path"]).read_bytes()
            file |= {"sha256": verify_export.sha256(data).hex(), "bytes": len(data)}
        text = json.dumps(manifest | {"files": present, "previous": previous})
        added = [{"add": verify_export.added(file)} for file in present]
        change(commit, lambda actions, text=text, added=added: replace(actions, text, added))
        previous = verify_export.sha256(text.encode()).hex()


def replace(actions: list[dict[str, Any]], text: str, added: list[dict[str, Any]]) -> None:
    actions[0]["commitInfo"]["rioni.manifest"] = text
    actions[:] = [*(each for each in actions if "add" not in each), *added]


FORGED_FILES = {
    "a field of the log": lambda table: rewrite(files_of(table)[0], lambda rows: rows[0].update(actor="nobody")),
    "a column that follows": lambda table: rewrite(files_of(table)[1], lambda rows: rows[0].update(state="{}")),
    "a column of its own": lambda table: rewrite(files_of(table)[0], lambda rows: rows[0].update(hash="00"), "hash"),
    "a row is gone": lambda table: rewrite(files_of(table)[2], list.pop),
    "a row is there twice": lambda table: rewrite(files_of(table)[2], lambda rows: rows.append(rows[-1])),
    "a file is cut": lambda table: files_of(table)[2].write_bytes(files_of(table)[2].read_bytes()[:-9]),
    "a file is gone": lambda table: files_of(table)[2].unlink(),
    "all files are gone": lambda table: [shutil.rmtree(each) for each in table.glob("day=*")],
}


@pytest.mark.parametrize("signed", ["digests as they were", "digests repaired"])
@pytest.mark.parametrize("forgery", FORGED_FILES)
def test_forged_files_are_found(table, key, forgery, signed):
    FORGED_FILES[forgery](table)
    if signed == "digests repaired":
        repair(table)
    assert not verified(table, "--key", key)


def test_a_repaired_table_is_refused_for_its_signature_alone(table, key, capsys):
    repair(table)
    assert not verified(table, "--key", key)
    assert "signature of the manifest is not valid" in capsys.readouterr().out


# --- The log: only the manifests are signed, and a reader believes all of it ---


def rename_from(table: Path, number: int) -> None:
    """Let the commits have their numbers without gaps."""
    for at, path in enumerate(commits(table)[number:], number):
        path.rename(path.with_name(f"{at:020}.json"))


def remove_commit(table: Path, number: int) -> None:
    commits(table)[number].unlink()


def close_gap(table: Path, number: int) -> None:
    remove_commit(table, number)
    rename_from(table, number)


def add_commit(table: Path, *actions: dict[str, Any], info: dict[str, Any] | None = None) -> None:
    path = table / "_delta_log" / f"{len(commits(table)):020}.json"
    path.write_text(
        "".join(json.dumps(each) + "\n" for each in ({"commitInfo": info or {"operation": "WRITE"}}, *actions))
    )


def swap_manifests(table: Path) -> None:
    _, one, other = commits(table)
    first, second = manifest_of(one), manifest_of(other)
    put_manifest(one, second)
    put_manifest(other, first)


def adds(actions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each["add"] for each in actions if "add" in each]


def other_file(actions: list[dict[str, Any]]) -> dict[str, Any]:
    return {"add": adds(actions)[0] | {"path": "day=2026-01-01/000000000099-" + "0" * 32 + ".parquet"}}


def with_stats(actions: list[dict[str, Any]], **stats: Any) -> None:
    add = adds(actions)[0]
    add["stats"] = json.dumps(json.loads(add["stats"]) | stats)


def metadata(actions: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = next(each["metaData"] for each in actions if "metaData" in each)
    return found


def with_schema(actions: list[dict[str, Any]], old: str, new: str) -> None:
    declared = metadata(actions)
    assert old in declared["schemaString"]
    declared["schemaString"] = declared["schemaString"].replace(old, new)


def exchange_columns(actions: list[dict[str, Any]]) -> None:
    """Let readers with column mapping take one column for another."""
    declared = metadata(actions)
    schema = json.loads(declared["schemaString"])
    others = {"actor": "client", "client": "actor"}
    for number, field in enumerate(schema["fields"]):
        physical = others.get(field["name"], field["name"])
        field["metadata"] = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical}
    declared["schemaString"] = json.dumps(schema, separators=(",", ":"))
    declared["configuration"]["delta.columnMapping.mode"] = "name"


def declare_again(table: Path) -> None:
    """Declare fewer columns in a later commit."""
    declared = metadata([json.loads(line) for line in commits(table)[0].read_text().splitlines()])
    declared["schemaString"] = declared["schemaString"].replace(
        '{"name":"actor","type":"string","nullable":true,"metadata":{}},', ""
    )
    change(commits(table)[1], lambda actions: actions.append({"metaData": declared}))


def repeat_member(table: Path) -> None:
    path = commits(table)[1]
    text = path.read_text()
    path.write_text(text.replace('"size":', '"size":1,"size":', 1))


def instead_of_info(table: Path, kind: str) -> None:
    """Let a commit begin with an action that readers obey, and that has the manifest as well."""

    def changed(actions: list[dict[str, Any]]) -> None:
        (info,) = actions.pop(0).values()
        action = (
            {"path": adds(actions)[0]["path"], "dataChange": True} if kind == "remove" else other_file(actions)["add"]
        )
        actions.insert(0, {kind: action | {"rioni.manifest": info["rioni.manifest"]}})

    change(commits(table)[2], changed)


def on(number: int, changed: Callable[[list[dict[str, Any]]], Any]) -> Callable[[Path], None]:
    return lambda table: change(commits(table)[number], changed)


def put(name: str) -> Callable[[Path], object]:
    return lambda table: (table / "_delta_log" / name).write_text("{}")


def declare_twice(table: Path) -> None:
    """Readers obey the first declaration of a commit."""
    declared = metadata([json.loads(line) for line in commits(table)[0].read_text().splitlines()])
    few = declared | verify_export.table_of(["position", "day"])
    change(commits(table)[2], lambda actions: actions.extend([{"metaData": few}, {"metaData": declared}]))


def declare_further(table: Path) -> None:
    """Declare a column that no file has."""
    declared = metadata([json.loads(line) for line in commits(table)[0].read_text().splitlines()])
    names = [each["name"] for each in json.loads(declared["schemaString"])["fields"]]
    more = declared | verify_export.table_of([*names, "approved_by"])
    change(commits(table)[2], lambda actions: actions.append({"metaData": more}))


def join_lines(table: Path) -> None:
    path = commits(table)[1]
    path.write_text(path.read_text().replace('"}}\n{"add"', '"},"add"', 1).replace("}\n{", ",", 1))


FORGED_LOGS: dict[str, Callable[[Path], Any]] = {
    "all commits are gone": lambda table: [path.unlink() for path in commits(table)],
    "the first commit is gone": lambda table: remove_commit(table, 0),
    "a commit is gone": lambda table: remove_commit(table, 1),
    "a commit is gone, without a gap": lambda table: close_gap(table, 1),
    "a commit without a manifest": add_commit,
    "a commit with the manifest of another": lambda table: shutil.copyfile(
        commits(table)[-1], table / "_delta_log" / f"{len(commits(table)):020}.json"
    ),
    "a manifest is gone": on(1, lambda actions: actions[0]["commitInfo"].pop("rioni.manifest")),
    "the commit info is gone": on(1, lambda actions: actions.pop(0)),
    "manifests are swapped": swap_manifests,
    "a file more": on(1, lambda actions: actions.append(other_file(actions))),
    "a file less": on(1, lambda actions: actions.remove({"add": adds(actions)[0]})),
    "a file twice": on(1, lambda actions: actions.append({"add": adds(actions)[0]})),
    "another file": on(1, lambda actions: adds(actions)[0].update(other_file(actions)["add"])),
    "another size": on(1, lambda actions: adds(actions)[0].update(size=1)),
    "another day": on(1, lambda actions: adds(actions)[0].update(partitionValues={"day": "2026-01-09"})),
    "other statistics": on(1, lambda actions: with_stats(actions, maxValues={"position": 1})),
    "statistics of a further column": on(1, lambda actions: with_stats(actions, nullCount={"actor": 12})),
    "another count": on(1, lambda actions: with_stats(actions, numRecords=1)),
    "rows are deleted by a vector": on(
        1, lambda actions: adds(actions)[0].update(deletionVector={"storageType": "i", "cardinality": 1})
    ),
    "a file is removed": on(2, lambda actions: actions.append({"remove": {"path": "x", "dataChange": True}})),
    "an action of another kind": on(2, lambda actions: actions.append({"domainMetadata": {"domain": "x"}})),
    "a file is added instead of the commit info": lambda table: instead_of_info(table, "add"),
    "a file is removed instead of the commit info": lambda table: instead_of_info(table, "remove"),
    "a member is there twice": repeat_member,
    "a column less": on(
        0,
        lambda actions: with_schema(actions, '{"name":"actor","type":"string","nullable":true,"metadata":{}},', ""),
    ),
    "a column less, later": declare_again,
    "columns declared twice": declare_twice,
    "a column that no file has": declare_further,
    "numbers of another type": on(1, lambda actions: adds(actions)[0].update(modificationTime=False)),
    "two actions in a line": join_lines,
    "a name with a number sign": put(f"{2:020}.checkpoint.80a083e8#1.parquet"),
    "a column of another type": on(
        0, lambda actions: with_schema(actions, '"position","type":"long"', '"position","type":"integer"')
    ),
    "a column that is never null": on(
        0,
        lambda actions: with_schema(
            actions, '"state","type":"string","nullable":true', '"state","type":"string","nullable":false'
        ),
    ),
    "exchanged columns": on(0, exchange_columns),
    "another partitioning": on(0, lambda actions: metadata(actions).update(partitionColumns=[])),
    "commits may be removed": on(0, lambda actions: metadata(actions).update(configuration={})),
    "another protocol": on(
        0, lambda actions: next(each for each in actions if "protocol" in each)["protocol"].update(minReaderVersion=2)
    ),
    "rows are deleted": lambda table: deltalake.DeltaTable(table).delete("position = 2"),
    "a true checkpoint": lambda table: deltalake.DeltaTable(table).create_checkpoint(),
    "a checkpoint": put(f"{1:020}.checkpoint.parquet"),
    "the name of a checkpoint": put("_last_checkpoint"),
    "a compacted log": put(f"{0:020}.{2:020}.compacted.json"),
    "a checksum of a version": put(f"{2:020}.crc"),
}


@pytest.mark.parametrize("forgery", FORGED_LOGS)
def test_forged_logs_are_found(table, key, forgery):
    FORGED_LOGS[forgery](table)
    assert not verified(table, "--key", key)


def test_every_member_of_a_manifest_is_signed(table, key):
    commit = commits(table)[-1]
    manifest = manifest_of(commit)
    for name, value in manifest.items():
        other = value + 1 if isinstance(value, int) else value[1:] if len(value) > 1 else [*value, "x"]
        put_manifest(commit, manifest | {name: other})
        assert not verified(table, "--key", key), name
    put_manifest(commit, manifest)
    assert verified(table, "--key", key)


def test_a_table_is_verified_by_the_key_and_earlier_checkpoints(table, key, tmp_path, capsys):
    seen = tmp_path / "seen"
    seen.write_text(manifest_of(commits(table)[0])["checkpoint"])
    assert verified(table, "--key", key, "--seen", str(seen))
    said = capsys.readouterr().out
    assert f"{ENTRIES} entries in 6 files are the log" in said
    assert "extends the checkpoints" in said
    assert "signed by the key that you gave" in said


def test_a_table_without_its_newest_commit_is_found_by_a_later_checkpoint(table, key, tmp_path):
    seen = tmp_path / "seen"
    seen.write_text(manifest_of(commits(table)[-1])["checkpoint"])
    remove_commit(table, -1)
    assert verified(table, "--key", key)
    assert not verified(table, "--key", key, "--seen", str(seen))


def test_names_that_a_killed_writer_has_left_are_no_commits(table, key):
    put(f"{3:020}.json#1")(table)
    assert deltalake.DeltaTable(table).version() == 2
    assert verified(table, "--key", key)
