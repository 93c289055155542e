"""Tables as folders of Parquet files: a manifest names the files that count, and the offsets they are complete to.

Each commit writes the next manifest, by its number, which fails if another process has done so. Files that no manifest
names were left by a process that died. They are removed when the table is opened, after a separate commit that makes
sure that their writer, if it still lives, can't name them any more.
"""

import base64
import contextlib
import io
import os
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import msgspec
import obstore
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError
from obstore.store import LocalStore, S3Store

from rioni.client.ranges import Place, place
from rioni.domain.errors import Unavailable
from rioni.lake.location import Location, Secrets
from rioni.lake.table import DAY, EVENTS, Progress, WriterConflict, keys_behind, plain_schema


MANIFESTS = "_manifest"
OLD_MANIFESTS_KEPT = 10
"""The number of old manifests kept for readers that have listed them and read one a little later."""

_NUMBER = re.compile(rf"{MANIFESTS}/([0-9]{{12}})\.json")
_DATA = re.compile(rf"{DAY}=[0-9-]{{10}}/([0-9]{{12}})-[0-9a-f]{{32}}\.parquet")


class Manifest(msgspec.Struct, frozen=True):
    """The state of a table."""

    number: int
    event_type: str
    created_at_ms: int | None
    offsets: dict[str, str]
    columns: str
    """The schema: an Arrow IPC message in base64."""
    files: list[str]
    """Paths in the folder of the table."""


class ParquetLake:
    """A folder or prefix with a folder of Parquet files for each event type."""

    def __init__(self, location: Location) -> None:
        self._location = location

    def open(self, kind: str, event_type: str) -> "ParquetEvents":
        """Open a table, which need not exist yet."""
        names = (event_type,) if kind == EVENTS else (f"_{kind}", event_type)
        return ParquetEvents(_Files(self._location, self._location.below(*names)), event_type)


class ParquetEvents:
    """A folder of Parquet files."""

    def __init__(self, files: "_Files", event_type: str) -> None:
        self._files, self._event_type = files, event_type
        with _translated(files):
            self._manifest = self._newest()
            self._remove_orphans()

    @property
    def progress(self) -> Progress:
        """The places up to which the table is complete."""
        if self._manifest is None:
            return Progress(None, {})
        places = {partition: place(offset) for partition, offset in self._manifest.offsets.items()}
        return Progress(self._manifest.created_at_ms, places)

    @property
    def schema(self) -> pa.Schema | None:
        """The columns."""
        if self._manifest is None:
            return None
        return plain_schema(pa.ipc.read_schema(pa.py_buffer(base64.b64decode(self._manifest.columns))))

    def append(self, rows: pa.Table, progress: Progress) -> None:
        """Write a file for each day, and then the manifest."""
        number = self._manifest.number + 1 if self._manifest else 0
        written: list[str] = []
        with _translated(self._files):
            for day in sorted(pc.unique(rows[DAY]).to_pylist()):
                path = f"{DAY}={day}/{number:012d}-{uuid.uuid4().hex}.parquet"
                part = rows.filter(pc.equal(rows[DAY], pa.scalar(day, pa.date32()))).drop_columns([DAY])
                self._files.write(path, _parquet(part))
                written.append(path)
            self._commit(
                Manifest(
                    number,
                    self._event_type,
                    progress.created_at_ms,
                    {partition: each.offset for partition, each in progress.places.items()},
                    base64.b64encode(rows.schema.serialize()).decode(),
                    [*(self._manifest.files if self._manifest else ()), *written],
                ),
                written,
            )

    def keys_behind(self, places: Mapping[str, Place]) -> set[tuple[str, str]]:
        """The rows of a quarantine after some places."""
        found: set[tuple[str, str]] = set()
        with _translated(self._files):
            for path in self._manifest.files if self._manifest else ():
                keys = pq.read_table(io.BytesIO(self._files.read(path)), columns=["partition", "offset"])
                found |= keys_behind(keys, places)
        return found

    def expire(self, before: date) -> None:
        """Commit a manifest without the files of days before this one, and remove these."""
        if self._manifest is None:
            return
        old = [path for path in self._manifest.files if path < f"{DAY}={before}"]
        if not old:
            return
        keep = [path for path in self._manifest.files if path not in set(old)]
        with _translated(self._files):
            self._commit(msgspec.structs.replace(self._manifest, number=self._manifest.number + 1, files=keep), [])
            self._files.remove(old)

    def _newest(self) -> Manifest | None:
        numbers = [int(found[1]) for path in self._files.paths(MANIFESTS) if (found := _NUMBER.fullmatch(path))]
        if not numbers:
            return None
        return msgspec.json.decode(self._files.read(_manifest(max(numbers))), type=Manifest)

    def _remove_orphans(self) -> None:
        named = set(self._manifest.files) if self._manifest else set()
        orphans = [path for path in self._files.paths() if _DATA.fullmatch(path) and path not in named]
        if not orphans:
            return
        if self._manifest is None:
            # There is no manifest to repeat: commit one that says that there is nothing yet.
            empty = base64.b64encode(pa.schema([]).serialize()).decode()
            self._commit(Manifest(0, self._event_type, None, {}, empty, []), [])
        else:
            self._commit(msgspec.structs.replace(self._manifest, number=self._manifest.number + 1), [])
        assert self._manifest is not None
        # A newer file is that of a process that has begun after this one.
        self._files.remove([path for path in orphans if _number_of(path) <= self._manifest.number])

    def _commit(self, manifest: Manifest, written: list[str]) -> None:
        try:
            self._files.write(_manifest(manifest.number), msgspec.json.encode(manifest))
        except AlreadyExistsError:
            self._files.remove(written)
            raise
        self._manifest = manifest
        if manifest.number >= OLD_MANIFESTS_KEPT:
            self._files.remove([_manifest(manifest.number - OLD_MANIFESTS_KEPT)])


class _Files:
    """The files of one table: written once, durable on return."""

    def __init__(self, location: Location, url: str) -> None:
        self.url = url
        self.secrets = Secrets(location.s3)
        self._folder = None if location.folder is None else Path(url)
        self._s3: Any = {name.lower(): value for name, value in location.s3.items()}
        self._store: LocalStore | S3Store | None = None
        if self._folder is None or self._folder.is_dir():
            self._store = self._open()

    def _open(self) -> LocalStore | S3Store:
        if self._folder is not None:
            return LocalStore(self._folder, mkdir=True)
        allow_http = self._s3.get("aws_endpoint_url", "").startswith("http:")
        return S3Store.from_url(self.url, config=self._s3, client_options={"allow_http": allow_http})

    def write(self, path: str, data: bytes) -> None:
        """Write a new file; AlreadyExistsError if there is one."""
        self._store = self._store or self._open()
        obstore.put(self._store, path, data, mode="create")
        if self._folder is not None:
            for each in (self._folder / path, (self._folder / path).parent, self._folder, self._folder.parent):
                _sync(each)

    def read(self, path: str) -> bytes:
        assert self._store is not None
        return bytes(obstore.get(self._store, path).bytes())

    def paths(self, prefix: str | None = None) -> list[str]:
        if self._store is None:
            return []
        return [str(each["path"]) for page in obstore.list(self._store, prefix) for each in page]

    def remove(self, paths: list[str]) -> None:
        assert self._store is not None
        for path in paths:
            with contextlib.suppress(NotFoundError, FileNotFoundError):
                obstore.delete(self._store, path)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _manifest(number: int) -> str:
    return f"{MANIFESTS}/{number:012d}.json"


def _number_of(path: str) -> int:
    found = _DATA.fullmatch(path)
    assert found is not None
    return int(found[1])


def _parquet(rows: pa.Table) -> bytes:
    file = io.BytesIO()
    pq.write_table(rows, file, compression="zstd")
    return file.getvalue()


@contextmanager
def _translated(files: _Files) -> Iterator[None]:
    try:
        yield
    except AlreadyExistsError as ex:
        raise WriterConflict(f"Another process has written to {files.url}; nothing was written.") from ex
    except (BaseError, OSError, pa.ArrowException, msgspec.MsgspecError) as ex:
        raise Unavailable(f"The files in {files.url} can't be used: {files.secrets.removed_from(ex)}") from ex
