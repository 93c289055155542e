"""The log of a Delta table, which follows the manifests of an audit table."""

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from rioni.domain.errors import Unavailable
from rioni.files.extras import requirement
from rioni.operations.audit_table.manifests import Manifest, TableFile


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
