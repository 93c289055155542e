"""Locates the files of an embedded broker, locks their directory for it, and moves aside what is in the way."""

import itertools
import os
import re
import time
from collections.abc import Collection
from itertools import chain
from pathlib import Path
from typing import Self
from uuid import uuid4

import msgspec
import structlog

from rioni.domain.errors import RioniError
from rioni.domain.system.storages import DEFAULT_STORAGE
from rioni.files.locks import try_lock
from rioni.files.plain import check_folder, tighten, write_durably
from rioni.storage.embedded.signals import SharedChangeFlags


# --- Moves whatever has the path of a file or folder of a data directory aside; nothing is deleted ---

_log = structlog.get_logger("rioni.storage")


def set_aside(path: Path, *, quietly: bool = False) -> str:
    """Rename a file or folder; return its new name, empty if there was none.

    Args:
        path: the path of the file or folder in the way.
        quietly: whether the caller logs it.

    Raises:
        OSError: it can't be renamed.
    """
    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    names = (f"{path.name}.damaged-{now}" + (f"-{number}" if number else "") for number in itertools.count())
    kept = next(name for name in names if not path.with_name(name).exists())
    try:
        path.rename(path.with_name(kept))
    except FileNotFoundError:
        return ""
    if not quietly:
        _log.warning("moved aside what was in the place of a file or folder of the broker", path=path.name, kept=kept)
    return kept


# --- Locates the files of an embedded broker in its data directory, and locks the directory for one broker ---

FORMAT = "rioni data directory, format 1\n"
"""The content of the marker file; a broker refuses a directory with any other format."""

_FORMAT = re.compile(r"rioni data directory, format [0-9]+\n")

RESTORING = "restore.json"
"""Name of the file that exists while a new data directory is filled from a backup, and while the files of an old one
are replaced."""

MIGRATED = "migrated.json"
"""Name of the file that exists when a cluster counts, and the directory no longer does."""

STAGING = "restore"
"""Name of the folder with the files that are being restored."""

# Allowed in an empty directory: leftovers of a process that died while creating it, and the contents of a new file
# system.
_IGNORED = {"lock", "format.new", "format.unfinished", "lost+found"}
_OF_RESTORING = {f"{RESTORING}.new"}


_OWN = re.compile(
    r".*\.db(-.*)?|lock|leadership|format.*|restore.*|before-restore-.*|migrated\.json.*|scratch|signals"
    r"|spools|workers|.*\.damaged-.*"
)
"""Names of the files and folders that brokers make in a data directory; not the signing key, for which too wide a mode
is an error."""


class DataDirectoryError(RioniError):
    """The data directory can't be used; the message says why, and what to do."""


class _Files:
    """The paths of the files and folders of a data directory."""

    def __init__(self, data: Path) -> None:
        self.events = events_path(data, DEFAULT_STORAGE)
        """The database of events published to the default storage."""
        self.registry = data / "registry.db"
        """The database of the internal log and its projections."""
        self.coordination = data / "coordination.db"
        """The database of sessions and committed cursors."""
        self.activity = data / "activity.db"
        """The database of client activity."""
        self.jobs = data / "jobs.db"
        """The database of archives and backups with their progress."""
        self.names = data / "names.db"
        """The database of the idempotency index for Kafka: keys and event ids already stored."""
        self.slots = data / "slots.db"
        """The database of the stream slots that clients hold, which limits their number."""
        self.leadership = data / "leadership"
        """The lock file that elects one leader among the worker processes."""
        self.spools = data / "spools"
        """The directory of measurements not published yet."""
        self.signals = data / "signals"
        """The directory of the sockets by which processes notify each other."""
        self.workers = data / "coordination.db-workers"
        """The directory of the files that show which worker processes are alive."""
        self.scratch = data / "scratch"
        """The directory of files that need not survive the process."""


class DataDirectory(_Files):
    """A data directory, created or checked, and locked.

    The lock belongs to an open file: processes forked from this one share it without locking again, and it lasts until
    the last of them has closed the file or died.
    """

    def __init__(self, path: Path, *, restoring: bool = False) -> None:
        """Create or check the directory and lock it; doesn't block.

        Args:
            path: the path of the directory; missing parents are created.
            restoring: whether it is locked to restore a backup, or to finish that.

        Raises:
            DataDirectoryError: the directory can't be used.
        """
        self.path = path.absolute()
        super().__init__(self.path)
        self.broker = str(uuid4())
        """Unique id of the run that holds the lock, shared by forked processes; never reused, here or elsewhere."""
        self.secret = os.urandom(32)
        """Known to the run that holds the lock alone, forked processes included."""
        self.changes = SharedChangeFlags()
        """The changes made by processes forked from this one."""
        self._marker = self.path / "format"
        self._lock_fd = -1
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            check_folder(self.path, with_links=not restoring)
            if not restoring:
                check_not_restoring(self.path)
            self._check(restoring=restoring)
            self._clear_places()
            self._lock()
            self._tighten()
            # A restore brings the marker along, as the last of its files but the mark that it was not finished.
            if not restoring:
                if self.is_new:
                    write_durably(self._marker, FORMAT.encode())
                self.signals.mkdir(mode=0o700, exist_ok=True)
                self.scratch.mkdir(mode=0o700, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as ex:
            self.close()
            raise DataDirectoryError(
                f"{self.path} is not a directory, or holds a file where a directory belongs ({ex}). Name another "
                "data directory."
            ) from ex
        except OSError as ex:
            self.close()
            raise DataDirectoryError(
                f"The data directory {self.path} can't be written: {ex.strerror}. Make it writable for the user "
                "that runs the broker, or name another one."
            ) from ex
        except DataDirectoryError:
            self.close()
            raise

    def events_in(self, storage_id: str) -> Path:
        """Path of the database of events published to a storage."""
        return events_path(self.path, storage_id)

    def close(self) -> None:
        """Release the lock; processes forked in the meantime keep it."""
        # NOTE: closes instead of unlocking, because unlocking would take the lock from the forked processes too.
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_new(self) -> bool:
        """Whether no broker has used the directory yet."""
        return not self._marker.exists()

    def _check(self, *, restoring: bool) -> None:
        if not (restoring and (self.path / RESTORING).exists()):
            check_marker(self.path, _IGNORED | _OF_RESTORING if restoring else _IGNORED)

    def _lock(self) -> None:
        self._lock_fd = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if not try_lock(self._lock_fd):
            owner = os.pread(self._lock_fd, 20, 0).decode(errors="replace").strip() or "unknown"
            raise DataDirectoryError(
                f"{self.path} is in use by the process {owner}, or by its workers. Stop that broker, or name another "
                "data directory."
            )
        os.ftruncate(self._lock_fd, 0)
        os.pwrite(self._lock_fd, f"{os.getpid()}\n".encode(), 0)

    def _clear_places(self) -> None:
        """Move aside anything that is in the place of a lock or of a folder that may be lost."""
        for path in (self.signals, self.scratch, self.spools, self.workers, self.scratch / "metrics"):
            if path.exists() and not path.is_dir():
                set_aside(path)
        locks = (self.path.glob(f"*.db{end}") for end in ("-lock", "-changes", "-rebuild", "-unknown"))
        for path in (self.path / "lock", self.leadership, self.scratch / "elected", *chain.from_iterable(locks)):
            if path.is_dir():
                set_aside(path)

    def _tighten(self) -> None:
        """Take the rights of others on files that earlier versions have made; those of operators are left alone."""
        try:
            for entry in self.path.iterdir():
                if _OWN.fullmatch(entry.name):
                    tighten(entry)
        except PermissionError as ex:
            _log.warning("others may read a file of the data directory, and its mode can't be changed", reason=str(ex))


def check_marker(data: Path, ignored: Collection[str] = frozenset(_IGNORED)) -> None:
    """Check that a directory is marked as a data directory of this format, or is empty; blocks on the disk.

    Args:
        data: the directory, which exists.
        ignored: names of entries that an empty one may have.

    Raises:
        DataDirectoryError: it is neither.
        OSError: it can't be read.
    """
    marker = data / "format"
    try:
        found = marker.read_text(errors="replace")
    except FileNotFoundError:
        others = sorted(entry.name for entry in data.iterdir() if entry.name not in ignored)
        if others == [*_OF_RESTORING]:
            raise _interrupted(data) from None
        if (data / "registry.db").exists():
            raise DataDirectoryError(
                f"{marker} is missing. Copy the file from a backup, or write the line {FORMAT.strip()!r} to it, and "
                "run `rioni verify`: other files may be missing, too."
            ) from None
        if others:
            raise DataDirectoryError(
                f"{data} is not a data directory of Rioni, and it is not empty: it holds {others[0]!r}. Name "
                "an empty directory, or one that does not exist yet."
            ) from None
        return
    except IsADirectoryError as ex:
        raise DataDirectoryError(
            f"{marker} is a directory; it has to be a file that contains {FORMAT.strip()!r}. Take it away, and "
            "copy the file from a backup."
        ) from ex
    if found == FORMAT:
        return
    if _FORMAT.fullmatch(found) is None:
        raise DataDirectoryError(
            f"{marker} is damaged: it contains {found.strip()[:80]!a} instead of {FORMAT.strip()!r}. Copy the "
            "file from a backup, or write that line to it, and run `rioni verify`: other files may be damaged, too."
        )
    raise DataDirectoryError(
        f"{data} has the format {found.strip()[:80]!a}, this version reads {FORMAT.strip()!r}. Use the "
        "version of Rioni that wrote it, or another data directory."
    )


def check_not_restoring(data: Path) -> None:
    """Check that a data directory is not between two states.

    Raises:
        DataDirectoryError: a restore was interrupted.
    """
    if (data / RESTORING).exists():
        raise _interrupted(data)


def _interrupted(data: Path) -> DataDirectoryError:
    return DataDirectoryError(
        f"Restoring a backup into {data} was interrupted, so it is no complete installation. Run `rioni restore` with "
        "the same backup again: it finishes what was begun."
    )


def events_path(data: Path, storage_id: str) -> Path:
    """Return the path of the event database of an embedded storage in a data directory."""
    return data / ("events.db" if storage_id == DEFAULT_STORAGE else f"events-{storage_id}.db")


def registry_missing(data: Path) -> str | None:
    """Return an error if a data directory has lost its registry, else None."""
    others = sorted(path.name for path in (*data.glob("events*.db"), *data.glob("coordination.db")))
    if others and not (data / "registry.db").exists():
        return f"registry.db is missing, which describes the content of {others[0]}."
    return None


# --- The mark of a directory that was migrated to a cluster: no broker starts there, so no event is lost ---


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
