"""Audit tables of an earlier release, and the commits of today's."""

import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rioni.lake.conversion import convert
from rioni.lake.location import parse_location
from rioni.operations import verify_export


FROZEN = Path(__file__).parents[1] / "frozen" / "audit-table-0.1.1.tar.xz"
ENTRIES, EXPORTS = 37, 3
Actions = list[dict[str, Any]]


def unpack(folder: Path) -> Path:
    """Put `data`, the `key`, and the tables `table/parquet`, `table/delta` and `table/jsonl` into a folder."""
    with tarfile.open(FROZEN) as packed:
        packed.extractall(folder, filter="data")
    return folder


def converted(table: Path) -> Path:
    """Convert a table."""
    assert [each.kind for each in convert(parse_location(str(table)))] == ["audit table"]
    return table


def verified(table: Path, *options: str) -> bool:
    return verify_export.main([str(table), *options]) == 0


def commits(table: Path) -> list[Path]:
    """The commits of a table."""
    return sorted((table / "_delta_log").glob("*.json"))


def change(commit: Path, changed: Callable[[Actions], Any]) -> None:
    """Change the actions of a commit; the first one has its manifest."""
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    changed(actions)
    commit.write_text("".join(json.dumps(each) + "\n" for each in actions))


def manifest_of(commit: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(
        json.loads(commit.read_text().splitlines()[0])["commitInfo"]["rioni.manifest"]
    )
    return manifest


def put_manifest(commit: Path, manifest: dict[str, Any]) -> None:
    change(commit, lambda actions: actions[0]["commitInfo"].update({"rioni.manifest": json.dumps(manifest)}))
