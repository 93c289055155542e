"""Converts an audit table of an earlier release, whose signed manifests are files, to one whose commits have them.

The new log is made of the manifests, with a commit for each, then takes the place of the log that a Delta table has,
and only then the manifests are removed: a conversion that was interrupted is completed by the next one.
"""

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from rioni.domain.errors import Conflict, Invalid, Unavailable
from rioni.files.delta import LOG, MANIFEST, MANIFESTS, add_export, make_durable
from rioni.files.locks import open_lock, try_lock
from rioni.files.plain import digest_of, fsync_directory


class _Manifest(msgspec.Struct, frozen=True):
    format: str
    previous: str
    """The SHA-256 of the manifest before."""
    files: list[dict[str, Any]]


def convert_audit_table(folder: Path) -> Sequence[dict[str, Any]]:
    """Convert an audit table. Blocks on the disk.

    Returns:
        The files of the table, as its manifests name them.

    Raises:
        Conflict: an export to the table is running, or another conversion; or the folder has another Delta table.
        Invalid: it is a table of JSON lines.
        Unavailable: a manifest or a file is missing or was changed.
    """
    old = folder / MANIFESTS
    with open_lock(old / ".lock") as lock:
        if not try_lock(lock.fileno()):
            raise Conflict(f"An export to {folder} or its conversion is running.")
        texts = [path.read_bytes().decode() for path in sorted(old.glob("[0-9]*.json"))]
        manifests = [msgspec.json.decode(text, type=_Manifest) for text in texts]
        files = [file for each in manifests for file in each.files]
        logged, added = _log(folder)
        if not texts and not logged and ((folder / LOG).exists() or any(folder.glob("day=*/*"))):
            raise Unavailable(f"The manifests in {old} are missing. Restore them, or export to a new folder.")
        if not {*texts} <= logged:
            _check(folder, manifests, texts, files)
            if not (logged <= {*texts} and added <= {each["path"] for each in files}):
                raise Conflict(f"{folder} has a Delta table that has gone on. Move one of {LOG} and {MANIFESTS} away.")
            new = _made(folder, old / "new", texts, files)
            if (folder / LOG).exists():
                shutil.rmtree(old / LOG, ignore_errors=True)
                (folder / LOG).rename(old / LOG)
            new.rename(folder / LOG)
            fsync_directory(folder)
        shutil.rmtree(old)
        fsync_directory(folder)
    return files


def _log(folder: Path) -> tuple[set[str], set[str]]:
    """The manifests that the log of the table has, and the paths of the files."""
    try:
        table = DeltaTable(folder)
    except TableNotFoundError:
        return set(), set()
    paths = pa.table(table.get_add_actions(flatten=True))["path"].to_pylist()
    return {each[MANIFEST] for each in table.history() if MANIFEST in each}, {*paths}


def _check(folder: Path, manifests: Sequence[_Manifest], texts: Sequence[str], files: Sequence[Any]) -> None:
    digests = [hashlib.sha256(text.encode()).hexdigest() for text in texts]
    if [each.previous for each in manifests] != ["", *digests[:-1]]:
        raise Unavailable(f"A manifest in {folder} is missing, or was changed. Restore the table.")
    if manifests[0].format == "jsonl":
        raise Invalid(
            f"{folder} is a table of JSON lines, which can't be converted. Export to a new folder: "
            "rioni audit export --format delta --to FOLDER"
        )
    for file in files:
        if digest_of(folder / file["path"]) != file["sha256"]:
            raise Unavailable(f"{folder / file['path']} was changed. Restore the table.")


def _made(folder: Path, place: Path, texts: Sequence[str], files: Sequence[Any]) -> Path:
    """Make the log of the table in another place."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    columns = pa.unify_schemas([pq.read_schema(folder / each["path"]) for each in files])
    table = None
    for text in texts:
        add_export(place, table, columns, text)
        table = table or DeltaTable(place)
        table.update_incremental()
    make_durable(place)
    return place / LOG
