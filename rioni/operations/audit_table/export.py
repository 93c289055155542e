"""Exports the log, with what each entry changed, as a table that grows: exactly once, by Spark."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from sqlalchemy import Connection

from rioni.config.settings import Config
from rioni.domain.errors import Conflict
from rioni.domain.transparency.checkpoint import Note, parse_checkpoint, parse_note, sign
from rioni.files.extras import check_spark
from rioni.files.signing_key import load_key
from rioni.installation.database import check_exists, database_url, opened_for_reading
from rioni.installation.from_config import key_file
from rioni.operations import verify_export
from rioni.operations.audit_table.manifests import NOTHING, Manifest, TableFile, TableFolder
from rioni.operations.checkpoints import key_line, signed_checkpoint
from rioni.projections import log_tree
from rioni.projections.generations.rebuilds import Progress
from rioni.projections.log_rows import CorruptLog
from rioni.storage.sql.engines import reading


DELTA = "delta"


class TableOrder(NamedTuple):
    """The table to export to, and the Spark to use."""

    folder: Path
    format: str
    """`parquet`, `delta` or `jsonl`."""
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

    Each export adds one manifest, which is written after its files and in one step: however an export ends, each entry
    is in the table once, and the next export continues after it.

    Args:
        config: names the data and the signing key.
        order: what to export.
        progress: called periodically with the phase, and how much of it is done.

    Raises:
        Conflict: the folder holds something else, or another export is running.
        CorruptLog: the log was changed, or is not the one that the table was made from.
        NotFound: the log has no signing key yet.
        Unavailable: the data, the key, Spark or the folder can't be used.
    """
    check_exists(config)
    check_spark()
    from rioni.projections.bulk.audit_rows import TABLE_SCHEMA  # noqa: PLC0415 - an extra
    from rioni.projections.bulk.audit_table import write_entries  # noqa: PLC0415 - an extra
    from rioni.projections.bulk.session import SparkOptions  # noqa: PLC0415 - an extra

    folder = TableFolder(order.folder.absolute())
    if order.format == DELTA:
        from rioni.operations.audit_table.manifests import follow  # noqa: PLC0415 - an extra
    with folder.locked():
        manifests = [*folder.manifests()]
        with opened_for_reading(config) as engine, reading(engine) as connection:
            note = signed_checkpoint(config, connection)
            keys = tuple(key_line(each).strip() for each in log_tree.keys(connection))
            _check_continues(connection, order, note, manifests)
        folder.remove_leftovers(manifests)
        checkpoint = parse_checkpoint(note.text)
        after = manifests[-1].head if manifests else NOTHING
        if checkpoint.size > after.position:
            head, files = write_entries(
                database_url(config),
                (order.scratch or config.data / "scratch").absolute(),
                folder.path,
                form=order.format,
                after=after,
                upto=checkpoint.size,
                progress=progress,
                options=SparkOptions(order.master, dict(order.settings)),
            )
            manifest = Manifest(
                format=order.format,
                number=len(manifests) + 1,
                first=after.position + 1,
                last=head.position,
                origin=checkpoint.origin,
                hash=head.hash.hex(),
                checkpoint=str(note),
                keys=keys,
                files=tuple(TableFile(**each._asdict()) for each in files),
                previous=folder.digest(),
            )
            manifests.append(_signed(config, manifest))
            folder.add(manifests[-1])
        if order.format == DELTA:
            follow(folder.path, manifests, TABLE_SCHEMA)
        folder.put("verify_export.py", Path(verify_export.__file__).read_bytes())
    return TableReport(checkpoint.size - after.position, checkpoint.size)


def _signed(config: Config, manifest: Manifest) -> Manifest:
    text = verify_export.statement(msgspec.to_builtins(manifest))
    return msgspec.structs.replace(manifest, signature=str(sign(text, manifest.origin, load_key(key_file(config)))))


def _check_continues(connection: Connection, order: TableOrder, note: Note, manifests: Sequence[Manifest]) -> None:
    """Check that a table is of this format, and that the log begins with the entries of the table."""
    if not manifests:
        return
    newest, checkpoint = manifests[-1], parse_checkpoint(note.text)
    if newest.format != order.format:
        raise Conflict(f"{order.folder} is a table in the format {newest.format}: --format {newest.format}.")
    if newest.origin != checkpoint.origin:
        raise Conflict(f"{order.folder} has entries of the log {newest.origin}, and this is {checkpoint.origin}.")
    if newest.last > checkpoint.size:
        raise CorruptLog(f"The log ends at position {checkpoint.size}, and {order.folder} has its entry {newest.last}.")
    exported = parse_checkpoint(parse_note(newest.checkpoint.encode()).text)
    if log_tree.root(connection, newest.last)[1] != exported.root:
        raise CorruptLog(
            f"The log does not begin with the {newest.last} entries that {order.folder} has: it was changed."
        )
