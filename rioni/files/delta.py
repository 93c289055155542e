"""Commits of Delta tables for files that are in their folders already, and the commits of an audit table."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema
from deltalake.transaction import AddAction, create_table_with_add_actions

from rioni.files.plain import fsync_directory


LOG = "_delta_log"
MANIFESTS = "_manifest"
"""The folder in a table of an earlier release that names its files."""
MANIFEST = "rioni.manifest"
"""The member of `commitInfo` with the signed manifest of an export to an audit table."""
AUDIT_DAY = "day"
"""The column by which audit tables are partitioned."""
AUDIT_PROPERTIES = {"delta.enableExpiredLogCleanup": "false"}
"""The properties of an audit table: its commits are evidence, which no clean-up removes."""
NO_DAY = "0001-01-01"


class DeltaFile(NamedTuple):
    """A file in Parquet that is already in the folder of a table."""

    path: str
    size: int
    day: str
    rows: int

    def added(self, column: str) -> AddAction:
        """The action that adds the file to a table that is partitioned by a column.

        It has no limits of columns: if those of one column are known, datasets of deltalake take those of the others
        for null, and filters find no rows.
        """
        return AddAction(self.path, self.size, {column: self.day}, 0, True, json.dumps({"numRecords": self.rows}))


def create_table(
    url: str,
    columns: pa.Schema,
    day: str,
    files: Sequence[DeltaFile],
    commit: CommitProperties,
    *,
    options: dict[str, str] | None = None,
    properties: Mapping[str, str | None] | None = None,
) -> None:
    """Make a table of files in one commit.

    Args:
        url: of the folder or prefix.
        columns: the columns of all files, and the one by which they are partitioned.
        day: the name of this one.
        files: in the folder of the table.
        commit: its properties.
        options: for the storage.
        properties: of the table.

    Raises:
        DeltaError: there is a table, or it can't be written.
    """
    create_table_with_add_actions(
        url,
        Schema.from_arrow(columns),
        [each.added(day) for each in files],
        partition_by=[day],
        configuration=properties,
        storage_options=options,
        commit_properties=commit,
    )


def add_export(folder: Path, table: DeltaTable | None, columns: pa.Schema, manifest: str) -> None:
    """Add the files of an export to an audit table, in one commit, which has the manifest.

    Args:
        folder: of the table.
        table: as it was when the export began; None makes it.
        columns: of the files.
        manifest: the signed text, in which the files are.

    Raises:
        CommitFailedError: another export has ended meanwhile.
        DeltaError: the table can't be written, or another export has made it.
    """
    commit = CommitProperties(custom_metadata={MANIFEST: manifest}, max_commit_retries=0)
    columns = columns.append(pa.field(AUDIT_DAY, pa.date32()))
    files = [
        DeltaFile(each["path"], each["bytes"], _day_of(each["path"]), each["rows"])
        for each in json.loads(manifest)["files"]
    ]
    if table is None:
        create_table(str(folder), columns, AUDIT_DAY, files, commit, properties=AUDIT_PROPERTIES)
        return
    known = pa.schema(table.schema().to_arrow())
    further = [each for each in columns if each.name not in known.names]
    table.create_write_transaction(
        [each.added(AUDIT_DAY) for each in files],
        # An append declares no columns, in contrast to an overwrite, here of a day that no entry has.
        "overwrite" if further else "append",
        Schema.from_arrow(pa.schema([*known, *further])),
        [AUDIT_DAY],
        [(AUDIT_DAY, "=", NO_DAY)] if further else None,
        commit_properties=commit,
        # The verification reads all commits, and takes nothing for them.
        post_commithook_properties=PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False),
    )


def make_durable(table: Path) -> None:
    """Write the log of a Delta table to the disk. Blocks."""
    log = table / LOG
    for path in log.glob("*.json"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
    for folder in (log, table, table.parent):
        if folder.is_dir():
            fsync_directory(folder)


def _day_of(path: str) -> str:
    return path.partition("/")[0].removeprefix(f"{AUDIT_DAY}=")
