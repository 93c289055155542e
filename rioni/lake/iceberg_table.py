"""Tables in the Iceberg format: the offsets are a property of the table, set in the commit that adds the rows.

Properties of snapshots would be lost when maintenance removes these.
"""

import hashlib
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from pathlib import Path

import msgspec
import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table as Loaded
from pyiceberg.table import Transaction

from rioni.client.ranges import Place, place
from rioni.domain.errors import Conflict, Invalid, RioniError, Unavailable
from rioni.lake.location import Location, Secrets, without_credentials
from rioni.lake.table import DAY, EVENTS, TableProgress, WriterConflict, keys_behind, plain_schema
from rioni.patches.pyiceberg import keep_nulls


NAMESPACE = "rioni"
EVENT_TYPE = "rioni.event-type"
CREATED = "rioni.created-at-ms"
OFFSETS = "rioni.offsets"
WITHOUT_RETRIES = {"commit.retry.num-retries": "0"}
"""Retries are off: with them PyIceberg would append after what another process has appended."""

HASH_DIGITS = 12
"""The digits of the hash of an event type's name, in hexadecimal: no two names have the same one by accident."""

_S3 = {
    "AWS_ACCESS_KEY_ID": "s3.access-key-id",
    "AWS_SECRET_ACCESS_KEY": "s3.secret-access-key",
    "AWS_SESSION_TOKEN": "s3.session-token",
    "AWS_REGION": "s3.region",
    "AWS_ENDPOINT_URL": "s3.endpoint",
}


keep_nulls()


class IcebergLake:
    """Tables in a catalog."""

    def __init__(self, location: Location, catalog: str | None) -> None:
        """Open the catalog.

        Args:
            location: where the tables are; a named catalog may put them elsewhere.
            catalog: the name of a catalog in the configuration of PyIceberg, or the URL of a database for one; None
                for a file of SQLite in the folder of the tables.

        Raises:
            Invalid: tables in a bucket have no catalog.
            Unavailable: the catalog can't be used.
        """
        if catalog is None and (folder := location.folder) is not None:
            folder.mkdir(parents=True, exist_ok=True)
            catalog = f"sqlite:///{folder / 'catalog.db'}"
        if catalog is None:
            raise Invalid("Iceberg tables in a bucket need a catalog: --catalog NAME or --catalog URL-OF-A-DATABASE.")
        self._place = location.url if "://" in catalog else None
        shown = without_credentials(catalog)
        with _translated(f"The Iceberg catalog {shown}", Secrets({"uri": catalog, **location.s3})):
            self._catalog = _load(location, catalog)

    def open(self, kind: str, event_type: str) -> "IcebergEvents":
        """Open a table, which need not exist yet.

        Raises:
            Conflict: it has the events of another event type, or its files are elsewhere than the lake.
            Unavailable: it can't be read.
        """
        namespace = NAMESPACE if kind == EVENTS else f"{NAMESPACE}_{kind}"
        return IcebergEvents(self._catalog, namespace, event_type, self._place)


def _load(location: Location, catalog: str) -> Catalog:
    options = {_S3[name]: value for name, value in location.s3.items()}
    if "://" not in catalog:
        return load_catalog(catalog, **options)
    warehouse = location.url if location.folder is None else f"file://{location.url}"
    return load_catalog(NAMESPACE, type="sql", uri=catalog, warehouse=warehouse, **options)


class IcebergEvents:
    """An Iceberg table."""

    def __init__(self, catalog: Catalog, namespace: str, event_type: str, place: str | None) -> None:
        """Open it; its files have to be at `place`, None if the catalog alone decides that."""
        self._catalog, self._event_type = catalog, event_type
        self._secrets = Secrets(catalog.properties)
        plain, hashed = ((namespace, each) for each in _names(event_type))
        tables = {name: self._load(name) for name in (plain, hashed)}
        owned = [name for name, table in tables.items() if table and table.properties.get(EVENT_TYPE) == event_type]
        self._name = owned[0] if owned else hashed if tables[plain] else plain
        self._table = tables[self._name]
        if self._table is not None and not owned:
            raise Conflict(f"{self._text} has the events of another event type than {event_type}.")
        if self._table is not None and place is not None and not _is_below(self._table.location(), place):
            raise Conflict(
                f"{self._text} has its files in {self._table.location()}, and not below {place}: its folder was moved "
                "or copied, or its catalog is that of another place. Iceberg knows files by their whole paths: "
                "archive to the place where they are, or with another catalog to an empty one."
            )

    def _load(self, name: tuple[str, str]) -> Loaded | None:
        with _translated(_text(name), self._secrets):
            try:
                return self._catalog.load_table(name)
            except NoSuchTableError:
                return None

    @property
    def progress(self) -> TableProgress:
        """The places up to which the table is complete."""
        if self._table is None:
            return TableProgress(None, {})
        offsets = msgspec.json.decode(self._table.properties[OFFSETS], type=dict[str, str])
        created_at_ms = int(self._table.properties[CREATED])
        return TableProgress(created_at_ms, {partition: place(offset) for partition, offset in offsets.items()})

    @property
    def schema(self) -> pa.Schema | None:
        """The columns."""
        return None if self._table is None else plain_schema(schema_to_pyarrow(self._table.schema()))

    def append(self, rows: pa.Table, progress: TableProgress) -> None:
        """Append rows in one commit."""
        offsets = {partition: each.offset for partition, each in progress.places.items()}
        properties = {EVENT_TYPE: self._event_type, CREATED: str(progress.created_at_ms)}
        properties |= {OFFSETS: msgspec.json.encode(offsets).decode()} | WITHOUT_RETRIES
        with _translated(self._text, self._secrets):
            if self._table is None:
                self._create(rows, properties)
                return
            self._forbid_retries()
            with self._table.transaction() as transaction:
                with transaction.update_schema() as columns:
                    columns.union_by_name(rows.schema)
                self._add(transaction, rows, properties)

    def _create(self, rows: pa.Table, properties: dict[str, str]) -> None:
        self._catalog.create_namespace_if_not_exists(self._name[0])
        with self._catalog.create_table_transaction(self._name, rows.schema, properties=WITHOUT_RETRIES) as transaction:
            with transaction.update_spec() as partitions:
                partitions.add_identity(DAY)
            self._add(transaction, rows, properties)
        self._table = self._catalog.load_table(self._name)

    def _add(self, transaction: Transaction, rows: pa.Table, properties: dict[str, str]) -> None:
        transaction.set_properties(properties)
        # Also without rows, since only a snapshot makes sure that nobody else has committed.
        transaction.append(rows, snapshot_properties={OFFSETS: properties[OFFSETS]})

    def _forbid_retries(self) -> None:
        assert self._table is not None
        if not self._table.properties.items() >= WITHOUT_RETRIES.items():
            with self._table.transaction() as transaction:
                transaction.set_properties(WITHOUT_RETRIES)

    def keys_behind(self, places: Mapping[str, Place]) -> set[tuple[str, str]]:
        """The rows of a quarantine after some places."""
        if self._table is None:
            return set()
        with _translated(self._text, self._secrets):
            return keys_behind(self._table.scan(selected_fields=("partition", "offset")).to_arrow(), places)

    def expire(self, before: date) -> None:
        """Remove all rows of days before this one; their files remain as long as the snapshots that have them."""
        if self._table is None:
            return
        with _translated(self._text, self._secrets), warnings.catch_warnings():
            # The library warns if there are no such rows.
            warnings.simplefilter("ignore", UserWarning)
            self._forbid_retries()
            self._table.delete(f"{DAY} < '{before}'")

    @property
    def _text(self) -> str:
        return _text(self._name)


def _is_below(url: str, place: str) -> bool:
    if "://" in place:
        return url.startswith(f"{place}/")
    return Path(url.removeprefix("file://")).resolve().is_relative_to(Path(place).resolve())


def _text(name: tuple[str, str]) -> str:
    return f"The Iceberg table {'.'.join(name)}"


def _names(event_type: str) -> tuple[str, str]:
    """The name of a table, and another one for when an event type with a similar name has that table.

    Names with dots have other meanings to most engines, and catalogs may not tell names apart by their case.
    """
    plain = re.sub("[^a-zA-Z0-9]", "_", event_type).lower()
    return plain, f"{plain}__{hashlib.sha256(event_type.encode()).hexdigest()[:HASH_DIGITS]}"


@contextmanager
def _translated(what: str, secrets: Secrets) -> Iterator[None]:
    try:
        yield
    except (CommitFailedException, TableAlreadyExistsError) as ex:
        raise WriterConflict(f"{what} was changed by another process; nothing was written.") from ex
    except RioniError:
        raise
    except Exception as ex:
        # Catalogs and files raise the errors of many libraries.
        raise Unavailable(f"{what} can't be used: {secrets.removed_from(ex)}") from ex
