"""Exports the log for auditors: all entries or some, with a signed checkpoint and what verifies them offline."""

import base64
import functools
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec
from sqlalchemy import Connection, Engine, select

from rioni.config.settings import Config
from rioni.domain.errors import Conflict, Unavailable
from rioni.domain.hash_chain import GENESIS
from rioni.domain.transparency.checkpoint import parse_checkpoint
from rioni.domain.transparency.key_succession import LogKey
from rioni.domain.transparency.merkle_tree import inclusion_proof
from rioni.installation.database import opened_for_reading, reading_models
from rioni.operations import verify_export
from rioni.operations.checkpoints import signed_checkpoint
from rioni.projections.log_rows import CorruptLog
from rioni.projections.log_tree import LogTree
from rioni.projections.queries import audit_log, log_proofs
from rioni.projections.queries.audit_log import AuditFilter
from rioni.sql.log_tables import LOG
from rioni.storage.sql.engines import reading


ENTRIES_PER_READ = 64
"""An entry may hold a schema of 256 kB."""

Progress = Callable[[str, int, int], None]


class ExportReport(NamedTuple):
    """What was exported."""

    entries: int
    size: int
    """Of the log at its checkpoint."""


def export(config: Config, target: Path, wanted: AuditFilter, progress: Progress) -> ExportReport:
    """Write the entries that match, and all that verifies them; see `rioni.operations.verify_export`. Blocks.

    Args:
        config: names the data.
        target: a folder that does not exist or is empty; it appears complete or not at all.
        wanted: which entries; without a condition all of them.
        progress: called with the phase, the position, and the last one.

    Raises:
        Conflict: the folder is not empty.
        CorruptLog: the log has no entry at a position, or the export is not what the log has.
        NotFound: the log has no signing key yet.
        Unavailable: the data do not exist or can't be read, or the folder can't be written.
    """
    beside = target.absolute().with_name(f".{target.name}-{uuid4()}")
    try:
        _check_empty(target)
        beside.mkdir(parents=True)
        with opened_for_reading(config) as engine:
            with reading(engine) as connection:
                note = signed_checkpoint(config, connection)
                keys = log_proofs.keys(connection)
            checkpoint = parse_checkpoint(note.text)
            complete = wanted == AuditFilter()
            (beside / "checkpoint").write_text(str(note), encoding="utf-8")
            (beside / "log.vkey").write_text("".join(map(key_line, keys)), encoding="utf-8")
            positions = range(1, checkpoint.size + 1) if complete else _matching(engine, wanted, checkpoint.size)
            count = 0
            with (beside / "entries.jsonl").open("wb") as file:
                for entry in _entries(engine, iter(positions), checkpoint.size, proved=not complete):
                    file.write(msgspec.json.encode(entry) + b"\n")
                    count += 1
                    progress("export", entry["position"], checkpoint.size)
        shutil.copyfile(verify_export.__file__, beside / "verify_export.py")
        manifest = {
            "format": 1,
            "origin": checkpoint.origin,
            "size": checkpoint.size,
            "root": checkpoint.root.hex(),
            "complete": complete,
            "entries": count,
            "files": {name: _digest(beside / name) for name in verify_export.HASHED_FILES},
        }
        (beside / "manifest.json").write_text(json.dumps(manifest, indent=2), encoding="utf-8")
        _check_empty(target)
        # A rename replaces an empty folder and refuses any other.
        beside.rename(target)
    except OSError as ex:
        raise Unavailable(f"{target} can't be written: {ex.strerror or ex}. Check disk space and permissions.") from ex
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    progress("export", checkpoint.size, checkpoint.size)
    return ExportReport(count, checkpoint.size)


def key_line(key: LogKey) -> str:
    """A key, and the last field of the signature line of the key before, in base64."""
    return " ".join([str(key.verifier), *key.signature.split(" ")[-1:]]).rstrip() + "\n"


def _matching(engine: Engine, wanted: AuditFilter, size: int) -> Iterator[int]:
    begin = functools.partial(reading_models, engine)
    for entry in audit_log.entries(begin, wanted):
        if entry["position"] > size:
            return
        yield entry["position"]


def _entries(engine: Engine, positions: Iterator[int], size: int, *, proved: bool) -> Iterator[dict[str, Any]]:
    while page := list(islice(positions, ENTRIES_PER_READ)):
        with reading(engine) as connection:
            rows = connection.execute(select(LOG).where(LOG.c.position.in_(page)).order_by(LOG.c.position)).all()
            if [row.position for row in rows] != page:
                missing = min({*page} - {row.position for row in rows})
                raise CorruptLog(f"The log has no entry at position {missing}: `rioni verify` shows what is damaged.")
            tree = LogTree(connection, size)
            for row in rows:
                entry = row._asdict() | {"data": bytes(row.data).decode(), "hash": bytes(row.hash).hex()}
                yield entry | (_proof(connection, tree, row.position) if proved else {})


def _proof(connection: Connection, tree: LogTree, position: int) -> dict[str, Any]:
    previous = connection.scalar(select(LOG.c.hash).where(LOG.c.position == position - 1))
    hashes = inclusion_proof(position - 1, tree.size, tree.node)
    return {
        "previous": bytes(previous or GENESIS).hex(),
        "proof": [base64.b64encode(each).decode() for each in hashes],
    }


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_empty(target: Path) -> None:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise Conflict(f"{target} is not an empty folder. Name another one.")
