"""Signed checkpoints, proofs, and exports of the log, for auditors at the command line."""

import contextlib
import functools
import json
import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import Connection, Engine, select

from rioni.config.settings import Config
from rioni.domain.errors import Conflict, Invalid, NotFound, Unavailable
from rioni.domain.hash_chain import GENESIS
from rioni.domain.transparency.checkpoint import (
    Checkpoint,
    Note,
    Verifier,
    base64_text,
    parse_checkpoint,
    parse_verifier,
    sign,
    verifier_of,
)
from rioni.domain.transparency.log_keys import LogKey, SigningKey, sign_successor
from rioni.domain.transparency.merkle_tree import inclusion_proof, verify_consistency
from rioni.files.plain import digest_of, private_umask
from rioni.files.signing_key import load_key, replace_key
from rioni.installation.database import opened_for_reading, reading_models
from rioni.installation.from_config import key_file
from rioni.installation.log_tree import known_keys, read_checkpoint, signature_findings
from rioni.operations import verify_export
from rioni.projections import log_tree
from rioni.projections.generations.rebuilds import Progress
from rioni.projections.log_rows import CorruptLog
from rioni.projections.log_tree import LogTree, leaves
from rioni.projections.queries import audit_log
from rioni.projections.queries.audit_log import AuditFilter
from rioni.sql.log_tables import LOG
from rioni.storage.sql.engines import reading


# --- Signs checkpoints and makes proofs for auditors at the command line: next to a running broker or on a copy ---

NO_KEY = "This log names no signing key yet: a broker records it soon after its start. Run `rioni serve`."


def checkpoint(config: Config) -> Note:
    """Sign the present state of the log with the broker's key, which the log already names.

    Raises:
        Unavailable: the data, or the key, does not exist or can't be read.
    """
    with _reading(config) as connection:
        return signed_checkpoint(config, connection)


def prove(config: Config, position: int) -> dict[str, Any]:
    """Return all that shows that the log has an entry: its leaf, the proof, and a signed checkpoint; as JSON.

    Raises:
        Invalid: there is no such entry.
        Unavailable: as `checkpoint`.
    """
    with _reading(config) as connection:
        size, hashes = log_tree.inclusion(connection, position)
        (leaf,) = leaves(connection, position - 1, position)
        return {
            "position": position,
            "leaf": base64_text(leaf),
            "size": size,
            "hashes": [*map(base64_text, hashes)],
            "checkpoint": str(signed_checkpoint(config, connection)),
        }


def consistency(config: Config, file: Path, key: str | None) -> tuple[dict[str, Any], list[str]]:
    """Return the proof that the log extends an earlier checkpoint, as JSON, and sentences on what speaks against it.

    Args:
        config: names the data.
        file: has the earlier checkpoint.
        key: a trusted verifier key, which signed it, or keys that follow it did; None for those that the log names.

    Raises:
        Malformed: the file holds no checkpoint.
        Unavailable: as `checkpoint`.
    """
    seen = read_checkpoint(file)
    with _reading(config) as connection:
        known = known_keys(connection, [parse_verifier(key)] if key else ())
        first = seen.checkpoint.size
        try:
            second, hashes = log_tree.consistency(connection, first)
            verify_consistency(first, second, seen.checkpoint.root, log_tree.root(connection)[1], hashes)
        except Invalid as ex:
            return {}, [str(ex)]
        proof = {"first": first, "second": second, "hashes": [*map(base64_text, hashes)]}
        return proof | {"checkpoint": str(signed_checkpoint(config, connection))}, list(signature_findings(seen, known))


def signed_checkpoint(config: Config, connection: Connection) -> Note:
    """Sign the present state of the log with the key that the log names last.

    Raises:
        NotFound: the log names no key yet.
        Unavailable: the key can't be read, or is another one.
    """
    path = key_file(config)
    keys = known_keys(connection)
    if not keys:
        raise NotFound(NO_KEY)
    key, name = load_key(path, create=False), keys[-1].name
    if verifier_of(name, key) != keys[-1]:
        raise Unavailable(
            f"{path} is not the key that the log names last. Ask the running broker: GET /log/checkpoint."
        )
    text = str(Checkpoint(name, *log_tree.root(connection)))
    return Note(text, (sign(text, name, key),))


@private_umask()
def rotate_key(config: Config, *, lost: bool) -> Verifier:
    """Replace the signing key by a new one, which the present one signs; the broker records it when it signs next.

    Args:
        config: names the data and the key.
        lost: whether the present key is lost: then the new one is not signed, and auditors have to be told of it.

    Returns:
        The new verifier key.

    Raises:
        NotFound: the log names no key yet.
        Conflict: the key in the file is not the one that the log names.
        Unavailable: the data or the key can't be read or written.
    """
    with _reading(config) as connection:
        keys = known_keys(connection)
    path, new = key_file(config), Ed25519PrivateKey.generate()
    if not keys:
        raise NotFound(NO_KEY)
    present = keys[-1]
    after = verifier_of(present.name, new)
    if lost:
        replace_key(path, SigningKey(new, lost=str(present)))
        return after
    key = load_key(path) if path.exists() else None
    if key is None or verifier_of(present.name, key) != present:
        raise Conflict(
            f"{path} is not the key that the log names, {present}. If it is a new one that the broker has not used "
            "yet, ask it for GET /log/checkpoint; if the present key is lost: --lost."
        )
    replace_key(path, SigningKey(new, sign_successor(present, key, after)))
    return after


@contextlib.contextmanager
def _reading(config: Config) -> Iterator[Connection]:
    with opened_for_reading(config) as engine, reading(engine) as connection:
        yield connection


# --- Exports the log for auditors: all entries or some, a signed checkpoint, and a script to verify them offline ---

ENTRIES_PER_READ = 64
"""An entry may hold a schema of 256 kB."""


class ExportReport(NamedTuple):
    """The result of an export."""

    entries: int
    size: int
    """The size of the log at its checkpoint."""


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
                keys = log_tree.keys(connection)
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
            "files": {name: digest_of(beside / name) for name in verify_export.HASHED_FILES},
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
        "proof": [*map(base64_text, hashes)],
    }


def _check_empty(target: Path) -> None:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise Conflict(f"{target} is not an empty folder. Name another one.")
