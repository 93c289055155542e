"""The manifests of an audit table, each signed and numbered, and the log of a Delta table that follows them."""

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import uuid4

import msgspec
import pyarrow as pa

from rioni.domain.errors import Conflict, Unavailable
from rioni.domain.hash_chain import GENESIS, LogHead
from rioni.files.extras import requirement
from rioni.files.locks import open_lock, try_lock
from rioni.files.plain import fsync_directory
from rioni.operations.verify_export import MANIFESTS


# The manifests of an audit table: signed, numbered, each names the files of one export and the manifest before it.

NAME = re.compile(r"[0-9]{12}\.json")
DATA = re.compile(r"[0-9]{12}-[0-9a-f]{32}\.(parquet|jsonl)|\.[0-9a-f]{32}\.part")
DIGITS = 12


class TableFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file with entries of one day."""

    path: str
    """The path in the folder of the table."""
    first: int
    last: int
    """The first and the last position in it."""
    rows: int
    bytes: int
    sha256: str
    """Hexadecimal."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The content of one export."""

    version: int = 1
    format: str
    """`parquet`, `delta` or `jsonl`."""
    number: int
    """The number of the export, from 1 on."""
    first: int
    last: int
    """The first and the last position of the export."""
    origin: str
    """The name of the log."""
    hash: str
    """The hash of the last entry in the hash chain, hexadecimal."""
    checkpoint: str
    """The checkpoint of the log with this last entry, as a signed note."""
    keys: tuple[str, ...]
    """The verifier keys that the log names, each with the signature of the one before it."""
    files: tuple[TableFile, ...]
    previous: str
    """The SHA-256 of the manifest before this one, hexadecimal; empty in the first one."""
    signature: str = ""
    """The signature of the log's key; see `rioni.operations.verify_export.statement`."""

    @property
    def head(self) -> LogHead:
        """The last entry of the table."""
        return LogHead(self.last, bytes.fromhex(self.hash))


NOTHING = LogHead(0, GENESIS)
"""The last entry of an empty table."""


class TableFolder:
    """A folder with an audit table; used by one process at a time. All methods block on the disk.

    Args:
        path: of the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._manifests = path / MANIFESTS

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder if it is missing, and keep other exports out.

        Raises:
            Conflict: another export is running, or the folder has other files.
            Unavailable: it can't be written to.
        """
        try:
            if self.path.exists() and not self._manifests.is_dir() and any(self.path.iterdir()):
                raise Conflict(f"{self.path} has files that are no audit table. Name another folder.")
            self._manifests.mkdir(parents=True, exist_ok=True)
            file = open_lock(self._manifests / ".lock")
        except OSError as ex:
            raise Unavailable(f"{self.path} can't be written to: {ex.strerror}.") from ex
        with file:
            if not try_lock(file.fileno()):
                raise Conflict(f"Another export to {self.path} is running.")
            yield

    def manifests(self) -> Sequence[Manifest]:
        """Return all manifests in their order.

        Raises:
            Unavailable: one is missing or was changed.
        """
        found: list[Manifest] = []
        digest = ""
        for number, path in enumerate(self._paths(), 1):
            data = path.read_bytes()
            try:
                manifest = msgspec.json.decode(data, type=Manifest)
            except msgspec.MsgspecError as ex:
                raise Unavailable(f"{path} is not the manifest that was written: {ex}.") from ex
            if (manifest.number, manifest.previous) != (number, digest):
                raise Unavailable(
                    f"{path} does not follow the manifest before it. Restore the folder, or name a new one."
                )
            found.append(manifest)
            digest = hashlib.sha256(data).hexdigest()
        return found

    def digest(self) -> str:
        """Return the SHA-256 of the newest manifest; empty if the table has no manifest."""
        paths = self._paths()
        return hashlib.sha256(paths[-1].read_bytes()).hexdigest() if paths else ""

    def add(self, manifest: Manifest) -> None:
        """Write the next manifest: from then on the table has its files.

        Raises:
            Conflict: there is one of its number.
        """
        path = self._manifests / f"{manifest.number:0{DIGITS}}.json"
        part = self._manifests / f".{uuid4().hex}.part"
        try:
            with part.open("wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(manifest), indent=1))
                file.flush()
                os.fsync(file.fileno())
            # Fails if there is one, on file systems without locks as well.
            path.hardlink_to(part)
        except FileExistsError as ex:
            raise Conflict(f"Another export has written {path}; nothing was added.") from ex
        finally:
            part.unlink(missing_ok=True)
        fsync_directory(self._manifests)

    def put(self, name: str, data: bytes) -> None:
        """Write another file into the folder, at once."""
        part = self._manifests / f".{uuid4().hex}.part"
        part.write_bytes(data)
        part.replace(self.path / name)

    def remove_leftovers(self, manifests: Sequence[Manifest]) -> None:
        """Remove files of exports that were interrupted."""
        known = {file.path for manifest in manifests for file in manifest.files}
        for path in self.path.glob("day=*/*"):
            if DATA.fullmatch(path.name) and path.relative_to(self.path).as_posix() not in known:
                path.unlink(missing_ok=True)
        for path in self._manifests.glob(".*.part"):
            path.unlink(missing_ok=True)

    def _paths(self) -> Sequence[Path]:
        return sorted(path for path in self._manifests.glob("*.json") if NAME.fullmatch(path.name))


# --- The log of a Delta table, which follows the manifests of an audit table ---

try:
    from deltalake import CommitProperties, DeltaTable, Schema, Transaction
    from deltalake.exceptions import DeltaError, TableNotFoundError
    from deltalake.transaction import AddAction, create_table_with_add_actions
except ModuleNotFoundError as ex:
    raise Unavailable(f"Tables in the Delta format need more packages: pip install {requirement('lake')}") from ex


APPLICATION = "rioni/audit-table"
"""The transaction of Delta whose version is the last position of the log that the table has."""
DAY = "day"


def follow(folder: Path, manifests: Sequence[Manifest], columns: pa.Schema) -> None:
    """Commit the files of those manifests that the Delta table does not have yet, one commit for each. Blocks.

    A manifest is written before its commit, so a commit that a killed process left out is made by the next one.

    Args:
        folder: of the table.
        manifests: all of them.
        columns: of the files.

    Raises:
        Unavailable: the table can't be read or written, or another process has written to it.
    """
    try:
        table: DeltaTable | None = DeltaTable(folder)
    except TableNotFoundError:
        table = None
    except DeltaError as ex:
        raise Unavailable(f"The Delta table {folder} can't be read: {ex}") from ex
    schema = Schema.from_arrow(columns.append(pa.field(DAY, pa.date32())))
    if table is not None:
        _complete(table, schema)
    for manifest in manifests:
        done = CommitProperties(app_transactions=[Transaction(APPLICATION, manifest.last)], max_commit_retries=0)
        added = [_added(each) for each in manifest.files]
        try:
            if table is None:
                create_table_with_add_actions(str(folder), schema, added, partition_by=[DAY], commit_properties=done)
                table = DeltaTable(folder)
            elif (table.transaction_version(APPLICATION) or 0) < manifest.last:
                table.create_write_transaction([*added], "append", schema, [DAY], commit_properties=done)
                table.update_incremental()
        except DeltaError as ex:
            raise Unavailable(f"The Delta table {folder} can't be written to: {ex}") from ex


def _complete(table: DeltaTable, schema: Schema) -> None:
    """Add the columns that a table of an older release does not have."""
    known = {each.name for each in table.schema().fields}
    missing = [each for each in schema.fields if each.name not in known]
    if not missing:
        return
    try:
        table.alter.add_columns(missing)
    except DeltaError as ex:
        raise Unavailable(f"The Delta table {table.table_uri} can't be written to: {ex}") from ex


def _added(file: TableFile) -> AddAction:
    day = file.path.partition("/")[0].removeprefix(f"{DAY}=")
    positions = {"minValues": {"position": file.first}, "maxValues": {"position": file.last}}
    stats = json.dumps({"numRecords": file.rows, **positions, "nullCount": {"position": 0}})
    return AddAction(file.path, file.bytes, {DAY: day}, 0, True, stats)
