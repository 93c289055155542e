"""Tables in the Delta format: the offsets are transactions of applications, in the commit that adds the rows.

The version of such a transaction is a number of 64 bits, into which a place is packed. It survives checkpoints and the
clean-up of the log, and a commit that was made from an older state of the table fails.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from obstore.store import LocalStore, S3Store

from rioni.client.ranges import Place
from rioni.domain.errors import Conflict, Unavailable
from rioni.files.delta import MANIFESTS, DeltaFile, create_table
from rioni.lake.location import Location, Secrets
from rioni.lake.table import DAY, EVENTS, TableProgress, WriterConflict, keys_behind, plain_schema


POSITION_BITS = 47
CREATED = "rioni/created-at-ms"
PARTITIONS = "rioni/partitions"
"""The property with the number of partitions, which are called 0 to number - 1."""


class DeltaLake:
    """A folder or prefix with a Delta table for each event type."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._options = dict(location.s3)
        if location.s3.get("AWS_ENDPOINT_URL", "").startswith("http:"):
            self._options["AWS_ALLOW_HTTP"] = "true"

    def open(self, kind: str, event_type: str) -> "DeltaEvents":
        """Open a table, which need not exist yet."""
        self._check_converted(kind, event_type)
        return DeltaEvents(self._url(kind, event_type), self._options or None)

    def make(
        self, kind: str, event_type: str, schema: pa.Schema, files: Sequence[DeltaFile], progress: TableProgress
    ) -> None:
        """Make a table of files that are there, in one commit; nothing if an earlier call has made it.

        Args:
            kind: of the table.
            event_type: whose table.
            schema: the columns of all files.
            files: in the folder of the table.
            progress: the places up to which the table is complete.

        Raises:
            Conflict: there is another table.
            Unavailable: the table can't be written.
        """
        url, options = self._url(kind, event_type), self._options or None
        made = DeltaEvents(url, options)
        if made.schema is not None:
            if made.progress != progress:
                raise Conflict(f"{url} has a Delta table that has gone on. Move one of the two tables away.")
            return
        with _translated(url, Secrets(self._options)):
            create_table(url, schema, DAY, files, _commit(_transactions(progress)), options=options)

    def _check_converted(self, kind: str, event_type: str) -> None:
        """Check that this is not a table of an earlier release: Parquet, with manifests."""
        folder, url = self._location.folder, self._url(kind, event_type)
        if folder is not None and not Path(url, MANIFESTS).is_dir():
            return
        prefix = url.removeprefix(self._location.url).lstrip("/")
        with _translated(url, Secrets(self._options)):
            manifests = [
                each for page in obstore.list(opened_store(self._location), f"{prefix}/{MANIFESTS}") for each in page
            ]
        if manifests:
            raise Conflict(
                f"{url} is a table in Parquet of an earlier release. Convert the archive to Delta first: "
                f"rioni convert-archive {self._location.url}"
            )

    def _url(self, kind: str, event_type: str) -> str:
        names = (event_type,) if kind == EVENTS else (f"_{kind}", event_type)
        return self._location.below(*names)


class DeltaEvents:
    """A Delta table."""

    def __init__(self, url: str, options: dict[str, str] | None) -> None:
        self._url, self._options = url, options
        self._secrets = Secrets(options or {})
        self._table: DeltaTable | None = None
        with _translated(url, self._secrets):
            try:
                self._table = DeltaTable(url, storage_options=options)
            except TableNotFoundError:
                return

    @property
    def progress(self) -> TableProgress:
        """The places up to which the table is complete."""
        if self._table is None or (created := self._table.transaction_version(CREATED)) is None:
            return TableProgress(None, {})
        names = map(str, range(self._table.transaction_version(PARTITIONS) or 0))
        versions = ((name, self._table.transaction_version(_application(name))) for name in names)
        return TableProgress(created, {name: _unpacked(version) for name, version in versions if version is not None})

    @property
    def schema(self) -> pa.Schema | None:
        """The columns."""
        return None if self._table is None else plain_schema(pa.schema(self._table.schema().to_arrow()))

    def append(self, rows: pa.Table, progress: TableProgress) -> None:
        """Append rows in one commit."""
        transactions = _transactions(progress)
        with _translated(self._url, self._secrets):
            if self._table is None:
                self._table = DeltaTable.create(
                    self._url, rows.schema, mode="error", partition_by=[DAY], storage_options=self._options
                )
            write_deltalake(
                self._table, rows, mode="append", schema_mode="merge", commit_properties=_commit(transactions)
            )

    def keys_behind(self, places: Mapping[str, Place]) -> set[tuple[str, str]]:
        """The rows of a quarantine after some places."""
        if self._table is None:
            return set()
        with _translated(self._url, self._secrets):
            data = self._table.to_pyarrow_dataset()
            return keys_behind(data.to_table(columns=["partition", "offset"]), places)

    def expire(self, before: date) -> None:
        """Remove all rows of days before this one, and the files of those that were removed a week ago."""
        if self._table is None:
            return
        with _translated(self._url, self._secrets):
            self._table.delete(f"{DAY} < '{before}'", commit_properties=_commit([]))
            self._table.vacuum(dry_run=False)


def opened_store(location: Location) -> LocalStore | S3Store:
    """The files of a lake, which exists."""
    if location.folder is not None:
        return LocalStore(location.folder)
    options: Any = {name.lower(): value for name, value in location.s3.items()}
    allow_http = options.get("aws_endpoint_url", "").startswith("http:")
    return S3Store.from_url(location.url, config=options, client_options={"allow_http": allow_http})


def _application(partition: str) -> str:
    return f"rioni/partition/{partition}"


def _transactions(progress: TableProgress) -> list[Transaction]:
    assert progress.created_at_ms is not None
    return [
        *(Transaction(_application(name), _packed(place)) for name, place in progress.places.items()),
        Transaction(CREATED, progress.created_at_ms),
        Transaction(PARTITIONS, max(map(int, progress.places), default=-1) + 1),
    ]


def _commit(transactions: list[Transaction]) -> CommitProperties:
    # Without retries, by which delta-rs would append after the rows of another process.
    return CommitProperties(app_transactions=transactions, max_commit_retries=0)


def _packed(place: Place) -> int:
    assert place.position + 1 < 1 << POSITION_BITS
    return place.order << POSITION_BITS | place.position + 1


def _unpacked(version: int) -> Place:
    return Place(version >> POSITION_BITS, (version & (1 << POSITION_BITS) - 1) - 1)


@contextmanager
def _translated(url: str, secrets: Secrets) -> Iterator[None]:
    try:
        yield
    except CommitFailedError as ex:
        raise WriterConflict(f"Another process has written to {url}; nothing was written.") from ex
    except Exception as ex:
        # Some errors of the library are plain exceptions.
        if "already exists at that location" in str(ex):
            raise WriterConflict(f"Another process has made {url}; nothing was written.") from ex
        raise Unavailable(f"The Delta table {url} can't be used: {secrets.removed_from(ex)}") from ex
