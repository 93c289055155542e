"""Exports the log, with what each entry changed, to a Delta table that grows: exactly once, by Spark."""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec
from sqlalchemy import Connection

from rioni.config.settings import Config
from rioni.domain.errors import Conflict, Unavailable
from rioni.domain.hash_chain import GENESIS, LogHead
from rioni.domain.transparency.checkpoint import Note, parse_checkpoint, parse_note, sign
from rioni.files.extras import check_spark, requirement
from rioni.files.signing_key import load_key
from rioni.installation.database import check_exists, database_url, opened_for_reading
from rioni.installation.from_config import key_file
from rioni.operations import verify_export
from rioni.operations.checkpoints import key_line, signed_checkpoint
from rioni.projections import log_tree
from rioni.projections.generations.rebuilds import Progress
from rioni.projections.log_rows import CorruptLog
from rioni.storage.sql.engines import reading


try:
    from deltalake import DeltaTable
    from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

    from rioni.files.delta import LOG, MANIFESTS, add_export, make_durable
except ModuleNotFoundError as ex:
    raise Unavailable(f"Tables in the Delta format need more packages: pip install {requirement('lake')}") from ex


DATA = re.compile(r"[0-9]{12}-[0-9a-f]{32}\.parquet|\.[0-9a-f]{32}\.part")
LEFTOVER_AGE_S = 7 * 24 * 3_600
"""How old a file without a commit must be to be removed: no export lasts so long, so no running one will commit it."""
VERIFIER = "verify_export.py"


class TableOrder(NamedTuple):
    """The table to export to, and the Spark to use."""

    folder: Path
    master: str = ""
    """See `rioni.projections.bulk.session.SparkOptions`."""
    settings: Sequence[tuple[str, str]] = ()
    """Further settings of Spark."""
    scratch: Path | None = None
    """A folder for temporary files; by default in the data directory."""


class TableReport(NamedTuple):
    """The result of an export."""

    added: int
    """Entries."""
    last: int
    """The last position that the table has."""


def export_table(config: Config, order: TableOrder, progress: Progress) -> TableReport:
    """Add to a table the entries that the log has more, up to a checkpoint signed for it; the broker may run. Blocks.

    Each export is one commit, which is made after its files: however an export ends, each entry is in the table once,
    and the next export continues after it.

    Args:
        config: names the data and the signing key.
        order: what to export.
        progress: called periodically with the phase, and how much of it is done.

    Raises:
        Conflict: the folder holds something else, or another export has ended since this one began.
        CorruptLog: the log was changed, or is not the one that the table was made from.
        NotFound: the log has no signing key yet.
        Unavailable: the data, the key, Spark or the folder can't be used.
    """
    check_exists(config)
    check_spark()
    from rioni.projections.bulk.audit_rows import TABLE_SCHEMA  # noqa: PLC0415 - an extra
    from rioni.projections.bulk.audit_table import write_entries  # noqa: PLC0415 - an extra
    from rioni.projections.bulk.session import SparkOptions  # noqa: PLC0415 - an extra

    folder = order.folder.absolute()
    table = _opened(folder)
    manifests, digest = _manifests(folder) if table else ([], "")
    with opened_for_reading(config) as engine, reading(engine) as connection:
        note = signed_checkpoint(config, connection)
        keys = [key_line(each).strip() for each in log_tree.keys(connection)]
        _check_continues(connection, folder, note, keys, manifests)
    _prepare(folder, manifests)
    checkpoint = parse_checkpoint(note.text)
    after = LogHead(manifests[-1]["last"], bytes.fromhex(manifests[-1]["hash"])) if manifests else LogHead(0, GENESIS)
    if checkpoint.size > after.position:
        head, files = write_entries(
            database_url(config),
            (order.scratch or config.data / "scratch").absolute(),
            folder,
            after=after,
            upto=checkpoint.size,
            progress=progress,
            options=SparkOptions(order.master, dict(order.settings)),
        )
        manifest = {
            "version": 1,
            "format": "delta",
            "number": len(manifests) + 1,
            "first": after.position + 1,
            "last": head.position,
            "origin": checkpoint.origin,
            "hash": head.hash.hex(),
            "checkpoint": str(note),
            "keys": keys,
            "files": [each._asdict() for each in files],
            "previous": digest,
        }
        text = msgspec.json.format(msgspec.json.encode(_signed(config, manifest)), indent=1).decode()
        with _translated(folder):
            add_export(folder, table, TABLE_SCHEMA, text)
        make_durable(folder)
    return TableReport(checkpoint.size - after.position, checkpoint.size)


def _signed(config: Config, manifest: Mapping[str, Any]) -> dict[str, Any]:
    text = verify_export.statement(manifest)
    return {**manifest, "signature": str(sign(text, manifest["origin"], load_key(key_file(config))))}


def _opened(folder: Path) -> DeltaTable | None:
    """Open the table as it is now; None if there is none yet."""
    if (folder / MANIFESTS).is_dir():
        raise Conflict(
            f"{folder} is an audit table of an earlier release. Convert it first: rioni convert-archive {folder}"
        )
    if unquote(str(folder)) != str(folder):
        raise Conflict(f"Readers of Delta take the %XX in {folder} for other characters. Name another folder.")
    with _translated(folder):
        try:
            return DeltaTable(folder)
        except TableNotFoundError:
            # An export that was interrupted before its commit leaves these.
            left = (LOG, VERIFIER, f".{VERIFIER}.part")
            others = [each for each in folder.glob("*") if each.name not in left and not each.name.startswith("day=")]
            if others or any("#" not in each.name for each in folder.glob(f"{LOG}/*")):
                raise Conflict(f"{folder} has files that are no audit table. Name another folder.") from None
            return None


def _manifests(folder: Path) -> tuple[list[dict[str, Any]], str]:
    """Return the manifests of all exports, and the SHA-256 of the newest one."""
    try:
        manifests, digest, _ = verify_export.log_of(folder)
    except (verify_export.Finding, *verify_export.UNREADABLE) as ex:
        raise Unavailable(
            f"The log of {folder} is not the one that was written: {ex}. Restore the folder, or name a new one."
        ) from ex
    return manifests, digest


def _check_continues(
    connection: Connection, folder: Path, note: Note, keys: Sequence[str], manifests: Sequence[Mapping[str, Any]]
) -> None:
    """Check that the log has signed the table, and begins with its entries."""
    if not manifests:
        return
    newest, checkpoint = manifests[-1], parse_checkpoint(note.text)
    if newest["origin"] != checkpoint.origin:
        raise Conflict(f"{folder} has entries of the log {newest['origin']}, and this is {checkpoint.origin}.")
    if newest["last"] > checkpoint.size:
        raise CorruptLog(f"The log ends at position {checkpoint.size}, and {folder} has its entry {newest['last']}.")
    _check_signed(folder, newest, [each.split()[0] for each in keys])
    exported = parse_checkpoint(parse_note(newest["checkpoint"].encode()).text)
    if log_tree.root(connection, newest["last"])[1] != exported.root:
        raise CorruptLog(f"The log does not begin with the {newest['last']} entries that {folder} has: it was changed.")


def _check_signed(folder: Path, newest: Mapping[str, Any], keys: Sequence[str]) -> None:
    """Check that the log has signed the table: the next signature covers all of it, forged or not."""
    try:
        used = newest["keys"][-1].split()[0]
        verify_export.check(used in keys, "the newest manifest names a key that the log never had")
        verify_export.verify_manifest(newest, used)
    except (verify_export.Finding, *verify_export.UNREADABLE) as ex:
        raise Unavailable(f"{folder} was changed: {ex}. Restore the folder, or name a new one.") from ex


def _prepare(folder: Path, manifests: Sequence[Mapping[str, Any]]) -> None:
    """Put the verifier into the folder, and remove files of exports that were interrupted."""
    known = {file["path"] for manifest in manifests for file in manifest["files"]}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f".{VERIFIER}.part"
        part.write_bytes(Path(verify_export.__file__).read_bytes())
        part.replace(folder / VERIFIER)
        for path in folder.glob("day=*/*"):
            unknown = DATA.fullmatch(path.name) and path.relative_to(folder).as_posix() not in known
            if unknown and time.time() - path.stat().st_mtime > LEFTOVER_AGE_S:
                path.unlink(missing_ok=True)
    except OSError as ex:
        raise Unavailable(f"{folder} can't be written to: {ex.strerror}.") from ex


@contextmanager
def _translated(folder: Path) -> Iterator[None]:
    try:
        yield
    except CommitFailedError as ex:
        raise Conflict(f"Another export to {folder} has ended meanwhile; nothing was added.") from ex
    except (DeltaError, OSError) as ex:
        if "already exists at that location" in str(ex):
            raise Conflict(f"Another export has made {folder} meanwhile; nothing was added.") from ex
        raise Unavailable(f"The Delta table {folder} can't be used: {ex}") from ex
