"""Converts archives of earlier releases, folders of Parquet with manifests of their own, to Delta: the files stay.

A manifest, `_manifest/NNNNNNNNNNNN.json` in the folder of a table, names the files of the table, its columns, and the
offsets up to which it is complete; the newest one counts. The Delta table is made of the same files in one commit, and
then the manifests are removed, the newest one last: a conversion that was interrupted is completed by the next one.
"""

import base64
import io
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import msgspec
import obstore
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.exceptions import DeltaError
from obstore.exceptions import BaseError

from rioni.client import ClientError
from rioni.client.ranges import place
from rioni.domain.errors import Invalid, Unavailable
from rioni.files.delta import MANIFESTS, DeltaFile, make_durable
from rioni.lake.audit_conversion import convert_audit_table
from rioni.lake.delta_table import DeltaLake, opened_store
from rioni.lake.location import Location, Secrets
from rioni.lake.table import DAY, EVENTS, QUARANTINE, TableProgress


FOOTER_BYTES = 8
"""The last bytes of a file in Parquet: the length of its metadata, and a mark."""

_MANIFEST = re.compile(rf"(?:_({QUARANTINE})/)?([^/]+)/{MANIFESTS}/[0-9]{{12}}\.json")
_FILE = re.compile(rf"{DAY}=([0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}})/[0-9]{{12}}-[0-9a-f]{{32}}\.parquet")


class Converted(NamedTuple):
    """A table that was converted."""

    kind: str
    """`events`, `quarantine`, or `audit table`."""
    event_type: str
    """For an audit table the name of its folder."""
    files: int
    rows: int


class _Manifest(msgspec.Struct, frozen=True):
    event_type: str
    created_at_ms: int | None
    offsets: dict[str, str]
    columns: str
    """The schema: an Arrow IPC message in base64."""
    files: list[str]
    """Paths in the folder of the table."""


def convert(location: Location) -> Iterator[Converted]:
    """Convert all tables in a folder or bucket, one after the other, or an audit table. Blocks on disk or network.

    No archive and no export to the table may run.

    Raises:
        Invalid: there is no table of an earlier release, or an audit table of JSON lines.
        Conflict: a folder has another Delta table already.
        Unavailable: a manifest, or a file that it names, is damaged or missing; or the location can't be used.
    """
    if location.folder is not None and not location.folder.is_dir():
        raise Invalid(f"There is no folder {location.folder}.")
    if location.folder is not None and (location.folder / MANIFESTS).is_dir():
        with _translated(location):
            files = convert_audit_table(location.folder)
        yield Converted("audit table", location.folder.name, len(files), sum(each["rows"] for each in files))
        return
    with _translated(location):
        store = opened_store(location)
        sizes = {str(each["path"]): int(each["size"]) for page in obstore.list(store) for each in page}
        tables: dict[tuple[str, str], list[str]] = {}
        for path in sorted(sizes):
            if found := _MANIFEST.fullmatch(path):
                tables.setdefault((found[1] or EVENTS, found[2]), []).append(path)
    if not tables:
        raise Invalid(f"{location.url} has no archive in Parquet of an earlier release.")
    for (kind, event_type), manifests in sorted(tables.items()):
        with _translated(location):
            yield _convert(location, store, kind, event_type, manifests, sizes)


def _convert(
    location: Location, store: Any, kind: str, event_type: str, manifests: list[str], sizes: Mapping[str, int]
) -> Converted:
    newest = manifests[-1]
    manifest = msgspec.json.decode(bytes(obstore.get(store, newest).bytes()), type=_Manifest)
    if manifest.event_type != event_type:
        raise Unavailable(f"{newest} is of the event type {manifest.event_type!r:.100}, not of {event_type}.")
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(manifest.columns)))
    folder = newest.partition(f"{MANIFESTS}/")[0]
    files = [_checked(store, folder, path, schema, sizes) for path in manifest.files]
    places = {partition: place(offset) for partition, offset in manifest.offsets.items()}
    # A manifest without columns is of a process that died before its first commit.
    if manifest.created_at_ms is not None:
        progress = TableProgress(manifest.created_at_ms, places)
        DeltaLake(location).make(kind, event_type, schema, files, progress)
    if location.folder is not None:
        make_durable(location.folder / folder)
    for path in manifests:
        obstore.delete(store, path)
    if location.folder is not None:
        # A file that a killed archive has left in it does no harm.
        with suppress(OSError):
            (location.folder / folder / MANIFESTS).rmdir()
    return Converted(kind, event_type, len(files), sum(each.rows for each in files))


def _checked(store: Any, folder: str, path: str, schema: pa.Schema, sizes: Mapping[str, int]) -> DeltaFile:
    """A file of a table, after a look at its end, which has its columns and the number of its rows."""
    day = _FILE.fullmatch(path)
    if day is None or f"{folder}{path}" not in sizes:
        raise Unavailable(
            f"The newest manifest in {folder} names {path!r:.200}, which is missing. Restore the archive."
        )
    size = sizes[f"{folder}{path}"]
    end = bytes(obstore.get_range(store, f"{folder}{path}", start=max(size - FOOTER_BYTES, 0), end=size))
    length = int.from_bytes(end[-FOOTER_BYTES:-4], "little") + FOOTER_BYTES
    if length > size:
        raise Unavailable(f"{folder}{path} is damaged. Restore the archive.")
    footer = bytes(obstore.get_range(store, f"{folder}{path}", start=size - length, end=size))
    metadata = pq.read_metadata(io.BytesIO(footer))
    if unknown := set(metadata.schema.to_arrow_schema().names) - set(schema.names):
        raise Unavailable(f"{folder}{path} has columns that its manifest lacks: {', '.join(sorted(unknown))}.")
    return DeltaFile(path, size, day[1], metadata.num_rows)


@contextmanager
def _translated(location: Location) -> Iterator[None]:
    try:
        yield
    except (BaseError, OSError, ValueError, ClientError, pa.ArrowException, msgspec.MsgspecError, DeltaError) as ex:
        shown = Secrets(location.s3).removed_from(ex)
        raise Unavailable(f"The archive in {location.url} can't be converted: {shown}") from ex
