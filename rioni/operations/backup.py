"""Backs up the broker of a data directory while it runs, and tells that broker about jobs on its host."""

import contextlib
import errno
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import msgspec

from rioni import __version__
from rioni.commands.system.job_records import JobRecords
from rioni.config.settings import Config
from rioni.domain.access.authorization import Subject
from rioni.domain.errors import Unavailable
from rioni.domain.ports.host import direct
from rioni.domain.system.anchors import INSTALLATION
from rioni.domain.system.reports import JobReport
from rioni.domain.timestamps import utc_text
from rioni.files.plain import private_umask, write_durably
from rioni.installation.opened import opened
from rioni.operations.verification import check
from rioni.projections.generations.rebuilds import Progress
from rioni.storage.clock import SystemClock
from rioni.storage.embedded import backup_folder
from rioni.storage.embedded.backup_files import FORMAT_NAME, BackupError, Snapshot, snapshots
from rioni.storage.embedded.backup_folder import BackupManifest, FileEntry
from rioni.storage.embedded.data_directory import FORMAT, registry_missing
from rioni.storage.embedded.expendable import EmbeddedJobs


# --- Tells the broker of a data directory about jobs on its host; the broker need not run ---

HOST = Subject(name="", unrestricted=True)
"""The subject that reports jobs on the host: it needs no token, and is no client."""


def host_jobs(config: Config) -> Callable[[str, JobReport], None]:
    """Return a function that records a job's id and what it does; it blocks on the disk, and raises Unavailable."""
    path = config.data / "jobs.db"
    records = JobRecords(EmbeddedJobs(path), SystemClock(), direct)

    def tell(job_id: str, report: JobReport) -> None:
        # A wrong folder belongs to no broker; the job reports the error itself.
        if (config.data / "registry.db").exists():
            with private_umask():
                _share(path)
                records.report(job_id, report, HOST)

    return tell


def _share(path: Path) -> None:
    """Let a file that root makes belong to the user of the broker, as its other files do."""
    owner = path.with_name("registry.db").stat()
    if os.geteuid() != 0 or owner.st_uid == 0:
        return
    try:
        for each in (path, Path(f"{path}-lock")):
            each.touch()
            os.chown(each, owner.st_uid, owner.st_gid)
    except OSError as ex:
        raise Unavailable(f"{path} can't be used: {ex}") from ex


# --- Backs up the broker of a data directory while it runs: all stores as of one instant, only what has changed ---

SPARE_BYTES = 16 * 2**20
"""Free space that remains at least."""

FINDINGS_SHOWN_MAX = 5

CLUSTER = (
    "A cluster keeps nothing in a data directory. Back up its database with pg_dump, then ZooKeeper's and Kafka's data "
    "with their own tools; docs/operating/cluster.md explains it, and `rioni verify --restored` checks the result."
)


class BackupReport(NamedTuple):
    """Result of a backup."""

    manifest: BackupManifest
    incremental: bool
    written: int
    """Bytes written, those of unchanged blocks excepted."""
    seconds: float

    @property
    def size(self) -> int:
        """Length of all files in bytes."""
        return sum(each.size for each in self.manifest.files.values())


@private_umask()
def backup(config: Config, folder: Path, progress: Progress, *, checked: bool = True) -> BackupReport:
    """Copy log, read models, cursors and events as of one instant into a folder; blocks.

    A folder with an earlier backup of the same installation is updated. If this is interrupted or fails, the earlier
    backup is still complete; see `rioni.storage.embedded.backup_folder`.

    Args:
        config: of the broker, which may be running.
        folder: created if it does not exist.
        progress: called with the phase, what is done, and the total.
        checked: whether to check the copy as `rioni verify` does, before it replaces the earlier one.

    Raises:
        BackupError: the folder can't be used, or the copy is damaged; the text gives advice.
        Unavailable: there is no data, or a file can't be read.
    """
    began_s = time.monotonic()
    _check_config(config, folder)
    with _disk_errors(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not backup_folder.is_usable(folder):
            raise BackupError(f"{folder} is neither empty nor a backup. Name another folder.")
        backup_folder.recover(folder)
        before = backup_folder.read_manifest(folder)
        try:
            with _frozen(config.data) as sources:
                manifest = _described(sources[0], checked=checked)
                _check_same(folder, before, manifest)
                _check_space(folder, sources)
                named = {source.path.name: source for source in sources}
                written = backup_folder.update(folder, named, before, partial(progress, "copy"))
            write_durably(folder / FORMAT_NAME, FORMAT.encode())
            if checked:
                _check_copy(folder, progress)
            files: dict[str, FileEntry] = {}
            for name in (*named, FORMAT_NAME):
                files[name] = backup_folder.describe(folder / name)
                progress("checksums", len(files), len(named) + 1)
            manifest = msgspec.structs.replace(manifest, files=files)
            backup_folder.commit(folder, manifest)
        except Exception:
            backup_folder.recover(folder)
            raise
    return BackupReport(manifest, before is not None, written, time.monotonic() - began_s)


def _check_config(config: Config, folder: Path) -> None:
    if config.clustered or config.database is not None:
        raise BackupError(CLUSTER)
    if (missing := registry_missing(config.data)) is not None:
        raise Unavailable(f"{missing} Restore a backup: `rioni restore`.")
    if not (config.data / "registry.db").exists():
        raise Unavailable(f"There is no data in {config.data}. Name the data directory of a broker: --data.")
    backup_folder.check_apart(folder, config.data)


@contextlib.contextmanager
def _frozen(data: Path) -> Iterator[list[Snapshot]]:
    """Freeze all files that belong to an installation, the registry first."""
    names = ("registry.db", "coordination.db", "names.db")
    paths = [data / name for name in names if (data / name).exists()] + sorted(data.glob("events*.db"))
    with snapshots(paths) as frozen:
        yield frozen


def _described(registry: Snapshot, *, checked: bool) -> BackupManifest:
    try:
        rows = registry.connection.execute("SELECT value FROM marks WHERE name = ?", (INSTALLATION,)).fetchall()
        heads = registry.connection.execute("SELECT position, hash FROM head").fetchall()
    except sqlite3.Error as ex:
        raise Unavailable(f"{registry.path} can't be read: {ex}. Run `rioni verify`.") from ex
    if not rows:
        raise Unavailable(
            "registry.db names no installation. If this data directory has never been used by a broker, run "
            "`rioni serve` once; else run `rioni verify`."
        )
    ((position, last),) = heads
    return BackupManifest(
        id=str(uuid4()),
        installation=rows[0][0],
        position=position,
        hash=last.hex(),
        taken_at=utc_text(datetime.now(UTC), "seconds"),
        rioni=__version__,
        checked=checked,
        files={},
    )


def _check_same(folder: Path, before: BackupManifest | None, now: BackupManifest) -> None:
    if before is not None and before.installation != now.installation:
        raise BackupError(f"{folder} holds a backup of another installation. Name another folder.")


def _check_space(folder: Path, sources: list[Snapshot]) -> None:
    present = sum(path.stat().st_size for path in folder.glob("*.db"))
    wanted = sum(source.size for source in sources) - present + SPARE_BYTES
    if (free := shutil.disk_usage(folder).free) < wanted:
        raise BackupError(f"{folder} needs {wanted / 1e6:,.0f} MB more, and has {free / 1e6:,.0f} MB. Free space.")


def _check_copy(folder: Path, progress: Progress) -> None:
    # A client may have committed any offset.
    with opened(Config(data=folder), progress, local=True) as copy:
        problems = (each for each in check(copy) if each.store != "cursors")
        found = [str(each) for each in islice(problems, FINDINGS_SHOWN_MAX)]
    if found:
        lines = "".join(f"\n  - {each}" for each in found)
        raise BackupError(
            f"The data is damaged, so it does not replace an earlier backup:{lines}\nRun `rioni verify`. To copy it as "
            "it is, use another folder and --no-check."
        )


@contextlib.contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as ex:
        if ex.errno == errno.ENOSPC:
            raise BackupError(f"The disk of {folder} is full. Free space, then try again.") from ex
        raise BackupError(f"{ex.filename or folder} can't be used: {ex.strerror or ex}.") from ex
