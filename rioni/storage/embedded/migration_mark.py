"""The mark in a data directory whose broker was migrated to a cluster: no broker starts there, so no event is lost."""

from pathlib import Path

import msgspec

from rioni.storage.embedded.backup_folder import write_durably
from rioni.storage.embedded.data_directory import MIGRATED, DataDirectoryError


class MigrationMark(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `migrated.json`."""

    cluster: str
    """The cluster that has everything now, for people."""
    complete: bool
    """Whether the cluster counts; else its last step may be missing, which `rioni migrate` does."""
    migrated_at: str
    position: int
    """The position of the last entry of the log that was moved."""
    hash: str
    """The hash of this entry, hexadecimal."""
    events: int
    subscriptions: int


def read_mark(data: Path) -> MigrationMark | None:
    """Return the mark of a data directory; None if it was not migrated.

    Raises:
        DataDirectoryError: it can't be read.
    """
    path = data / MIGRATED
    try:
        return msgspec.json.decode(path.read_bytes(), type=MigrationMark)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as ex:
        raise DataDirectoryError(
            f"This installation was migrated to a cluster, and {path}, which names it, can't be read: {ex}. Use "
            "the cluster; or remove that file to use the installation again as it was then."
        ) from ex


def write_mark(data: Path, mark: MigrationMark) -> None:
    """Mark a data directory as migrated; blocks on the disk, and raises OSError."""
    write_durably(data / MIGRATED, msgspec.json.encode(mark) + b"\n")


def check_not_migrated(data: Path) -> None:
    """Check that a data directory was not migrated to a cluster.

    Raises:
        DataDirectoryError: it was, at least in part; the message names the cluster.
    """
    if (mark := read_mark(data)) is None:
        return
    if not mark.complete:
        raise DataDirectoryError(
            f"{data} is being migrated to {mark.cluster}, and the last step was interrupted. Run `rioni migrate` again "
            "to complete it. Until then neither this broker nor the cluster serves."
        )
    raise DataDirectoryError(
        f"{data} was migrated to {mark.cluster} on {mark.migrated_at}: events that were accepted here would never "
        f"get there. Start the nodes of the cluster. To use this installation again as it was then, without what the "
        f"cluster has got since, remove {data / MIGRATED}."
    )
