"""Restores a backup into a data directory: the old files, or the restored ones, never some of both.

The files are first copied into a folder of the data directory. From the instant when the file `restore.json` exists
there, no broker starts, and the next restore finishes the exchange of the files. In a new directory that file is the
first one, so that nobody takes an incomplete directory for a new installation.
"""

import contextlib
import errno
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgspec

from rioni.config.settings import Config
from rioni.domain.errors import RioniError
from rioni.domain.system.anchors import INSTALLATION
from rioni.files.plain import flush, fsync_directory, private_umask, write_durably
from rioni.installation.acceptance import accept_loss
from rioni.installation.stores import counted
from rioni.projections.generations.rebuilds import Progress
from rioni.storage.embedded import backup_folder
from rioni.storage.embedded.anchors import COORDINATION, committed_offsets, inspect
from rioni.storage.embedded.backup_files import FORMAT_NAME, BackupError, created, open_file, opened
from rioni.storage.embedded.backup_folder import BackupManifest
from rioni.storage.embedded.data_directory import RESTORING, STAGING, DataDirectory, check_not_migrated
from rioni.storage.sql.engines import create_engine, reading
from rioni.storage.sql.read_only import read_only_engine
from rioni.storage.sql.store_marks import ends_of, ends_text, entry_hash, read_head, read_marks, topic_mark, write_marks


SPARE_BYTES = 16 * 2**20
"""Free space that remains at least."""

_SIDES = ("", "-wal", "-shm")


class RestoreSteps(msgspec.Struct, frozen=True):
    """The content of `restore.json`: the steps that are left."""

    manifest_id: str
    old: list[str]
    """Names of the files to be moved away."""
    new: list[str]
    """Names of the restored files."""
    kept_in: str
    """Name of the folder for the old ones."""
    copied: bool = True
    """Whether all restored files are there; else the directory is a new one that is being filled."""


class Newer(NamedTuple):
    """The data in a data directory that a backup does not have."""

    entries: int = 0
    events: int = 0
    commits: int = 0
    unknown: str = ""
    """Why it can't be determined; empty if it can."""
    ends: dict[str, list[int]] = {}  # noqa: RUF012 - never changed
    sequence: int = 0
    """A number that grows with changes of the committed cursors."""

    def __str__(self) -> str:
        if self.unknown:
            return f"an unknown number of changes, events and commits, as {self.unknown}"
        return (
            f"{self.entries:,} entries of the internal log, {self.events:,} events, and the commits of "
            f"{counted(self.commits, 'cursor')}"
        )

    def __bool__(self) -> bool:
        return bool(self.entries or self.events or self.commits or self.unknown)


class RestoreReport(NamedTuple):
    """Result of a restore."""

    manifest: BackupManifest
    lost: Newer
    kept_in: Path | None
    """The folder with the old files; None if there were none, or they were deleted."""


@private_umask()
def restore(
    folder: Path, data: Path, progress: Progress, *, accept_lost_events: bool = False, delete_old: bool = False
) -> RestoreReport:
    """Replace the files of a data directory by those of a backup; blocks.

    Args:
        folder: with the backup.
        data: of a stopped broker of the same installation, or an empty or new directory.
        progress: called with the phase, what is done, and the total.
        accept_lost_events: whether the backup may be older than the data. The loss is recorded in the restored log, and
            partitions continue after the last position given to anybody.
        delete_old: whether to delete the old files, instead of keeping them in a folder of the data directory.

    Raises:
        BackupError: the backup is damaged or does not fit, it is in the data directory or holds it, or newer data would
            be lost.
        DataDirectoryError: the broker is running, this is no data directory, or it was migrated to a cluster.
        Unavailable: a file can't be used.
    """
    with _disk_errors(data):
        backup_folder.check_apart(folder, data)
        manifest = _checked_manifest(folder)
        existed, begun = data.exists(), (data / RESTORING).exists()
        with DataDirectory(data, restoring=True) as directory:
            check_not_migrated(directory.path)
            kept = _finish(directory.path)
            if kept is not None and kept.manifest_id == manifest.id:
                return _report(manifest, Newer(), directory.path, kept, delete_old=delete_old)
            lost = _compare(folder, manifest, directory.path)
            if lost and not accept_lost_events:
                raise _refusal(manifest, lost)
            try:
                exchange = _stage(folder, directory, manifest, lost, partial(progress, "restore"))
            except Exception:
                if not begun:
                    _take_back(directory, existed=existed)
                raise
            _exchange(directory.path, exchange)
            return _report(manifest, lost, directory.path, exchange, delete_old=delete_old)


def _checked_manifest(folder: Path) -> BackupManifest:
    if folder.exists() and backup_folder.is_interrupted(folder):
        backup_folder.recover(folder)
    manifest = backup_folder.read_manifest(folder) if folder.exists() else None
    if manifest is None:
        raise BackupError(f"There is no complete backup in {folder}: it has no {backup_folder.MANIFEST}.")
    if missing := {FORMAT_NAME, "registry.db"} - manifest.files.keys():
        raise BackupError(f"The backup in {folder} is damaged: it has no {min(missing)}. Use another one.")
    for name, entry in manifest.files.items():
        try:
            fd = open_file(folder, name)
        except FileNotFoundError:
            size = -1
        else:
            size = os.fstat(fd).st_size
            os.close(fd)
        if size != entry.size:
            raise BackupError(
                f"The backup in {folder} is damaged: {name} is missing or has another length. Use another one."
            )
    return manifest


def _stage(
    folder: Path, directory: DataDirectory, manifest: BackupManifest, lost: Newer, progress: Callable[[int, int], None]
) -> RestoreSteps:
    """Bring all restored files into a folder of the data directory, and note that they replace the others."""
    data, staging = directory.path, directory.path / STAGING
    exchange = _plan(data, manifest)
    shutil.rmtree(staging, ignore_errors=True)
    _check_space(data, manifest)
    if directory.is_new:
        _note(data, msgspec.structs.replace(exchange, copied=False))
    staging.mkdir(mode=0o700)
    _copy(folder, staging, manifest, progress)
    if lost:
        _record(staging, manifest, lost)
    logs = {path.name for path in staging.glob("*.db-wal")}
    exchange = msgspec.structs.replace(exchange, new=sorted(manifest.files.keys() | logs))
    _note(data, exchange)
    return exchange


def _note(data: Path, exchange: RestoreSteps) -> None:
    write_durably(data / RESTORING, msgspec.json.encode(exchange))


def _take_back(directory: DataDirectory, *, existed: bool) -> None:
    """Remove the files that a failed restore leaves; a new directory is as it was before."""
    shutil.rmtree(directory.path / STAGING, ignore_errors=True)
    if not directory.is_new:
        return
    with contextlib.suppress(OSError):
        (directory.path / "lock").unlink()
        (directory.path / RESTORING).unlink(missing_ok=True)
        if not existed:
            directory.path.rmdir()


def _check_space(data: Path, manifest: BackupManifest) -> None:
    wanted = sum(each.size for each in manifest.files.values()) + SPARE_BYTES
    if (free := shutil.disk_usage(data).free) < wanted:
        raise BackupError(
            f"{data} needs {wanted / 1e6:,.0f} MB, and has {free / 1e6:,.0f} MB. Nothing was changed. Free space."
        )


def _copy(folder: Path, staging: Path, manifest: BackupManifest, progress: Callable[[int, int], None]) -> None:
    done, total = 0, sum(each.size for each in manifest.files.values())
    for name, entry in manifest.files.items():
        digest, left = sha256(), entry.size
        with opened(folder, name) as source, created(staging, name) as target:
            # One block more than there should be would be another file than the one of the manifest.
            while left >= 0 and (block := source.read(min(backup_folder.BLOCK_BYTES, left + 1))):
                digest.update(block)
                target.write(block)
                done, left = done + len(block), left - len(block)
                progress(done, total)
            flush(target)
        if digest.hexdigest() != entry.sha256:
            raise BackupError(f"The backup in {folder} is damaged: {name} is not what was written. Use another one.")
    fsync_directory(staging)


def _compare(folder: Path, manifest: BackupManifest, data: Path) -> Newer:
    """Return the data that the data directory holds and the backup does not.

    Raises:
        BackupError: it belongs to another installation.
    """
    if not (data / "registry.db").exists():
        found = sorted(path.name for path in data.glob("*.db") if path.name != "registry.db")
        return Newer(unknown=f"registry.db is missing next to {found[0]}") if found else Newer()
    try:
        with read_only_engine(f"sqlite:///{data / 'registry.db'}") as engine, reading(engine) as connection:
            installation = read_marks(connection).get(INSTALLATION, manifest.installation)
            head, known = read_head(connection), entry_hash(connection, manifest.position)
    except RioniError as ex:
        return Newer(unknown=f"registry.db can't be read ({ex})")
    if installation != manifest.installation:
        raise BackupError(f"{data} belongs to another installation than the backup. Name an empty directory.")
    if manifest.position and known != bytes.fromhex(manifest.hash) and head.position >= manifest.position:
        return Newer(unknown="its internal log has another history than the backup")
    try:
        return _newer_stores(folder, data)._replace(entries=max(0, head.position - manifest.position))
    except _Unreadable as ex:
        return Newer(unknown=str(ex))


class _Unreadable(Exception):
    """A file can't be compared; the text names it."""


@contextlib.contextmanager
def _comparing(name: str) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError, UnicodeDecodeError) as ex:
        raise _Unreadable(f"{name} can't be read ({ex})") from ex


def _newer_stores(folder: Path, data: Path) -> Newer:
    ends: dict[str, list[int]] = {}
    events = 0
    for path in data.glob("events*.db"):
        with _comparing(path.name):
            here = inspect(path).ends
            there = inspect(folder / path.name).ends if (folder / path.name).exists() else {}
        for topic, numbers in here.items():
            before = there.get(topic, [])
            events += sum(max(0, end - (before[n] if n < len(before) else 0)) for n, end in enumerate(numbers))
        ends |= here
    if not (data / "coordination.db").exists():
        return Newer(events=events, ends=ends)
    with _comparing("coordination.db"):
        commits = set(committed_offsets(data / "coordination.db"))
        if (folder / "coordination.db").exists():
            commits -= set(committed_offsets(folder / "coordination.db"))
        sequence = inspect(data / "coordination.db").sequence
    return Newer(events=events, commits=len(commits), ends=ends, sequence=sequence)


def _refusal(manifest: BackupManifest, lost: Newer) -> BackupError:
    return BackupError(
        f"The backup of {manifest.taken_at} is older than the data, which would lose {lost}. Nothing was changed. Use "
        "a newer backup; or restore with --accept-lost-events, which is recorded in the internal log."
    )


def _record(staging: Path, manifest: BackupManifest, lost: Newer) -> None:
    """Record the accepted loss in the restored log, and let no offset stand for another event than before."""
    engine = create_engine(f"sqlite:///{staging / 'registry.db'}")
    try:
        with reading(engine) as connection:
            known = read_marks(connection)
        marks = {}
        for topic, ends in lost.ends.items():
            if (before := known.get(topic_mark(topic))) is not None:
                least = ends_of(before)
                wanted = [max(end, least[n] if n < len(least) else 0) for n, end in enumerate(ends)]
                marks[topic_mark(topic)] = ends_text(wanted)
        if lost.sequence > int(known.get(COORDINATION, 0)):
            marks[COORDINATION] = str(lost.sequence)
        write_marks(engine, marks)
    finally:
        engine.dispose()
    what = f"A backup of {manifest.taken_at} was restored, at position {manifest.position} of the log. Lost: {lost}."
    accept_loss(Config(data=staging), "rioni restore --accept-lost-events", [what])


def _plan(data: Path, manifest: BackupManifest) -> RestoreSteps:
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    old = sorted(path.name for side in _SIDES for path in data.glob(f"*.db{side}"))
    return RestoreSteps(manifest.id, old, [], f"before-restore-{now}")


def _finish(data: Path) -> RestoreSteps | None:
    """Finish an interrupted exchange of files; return its content, None if there is nothing to be finished."""
    try:
        exchange = msgspec.json.decode((data / RESTORING).read_bytes(), type=RestoreSteps)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as ex:
        raise BackupError(f"{data / RESTORING} is damaged: {ex}. Restore into a new directory.") from ex
    if not exchange.copied:
        return None
    if missing := [name for name in exchange.new if not _is_there(data, exchange, name)]:
        raise BackupError(
            f"{data} is between two states, and {missing[0]}, which was to be restored, is gone. Restore into a new "
            f"directory. The old files are in {data / exchange.kept_in} and {data}."
        )
    _exchange(data, exchange)
    return exchange


def _is_there(data: Path, exchange: RestoreSteps, name: str) -> bool:
    """Whether a restored file is still to be moved in, or has been."""
    moved = name not in exchange.old or (data / exchange.kept_in / name).exists()
    return (data / STAGING / name).exists() or (moved and (data / name).exists())


def _exchange(data: Path, exchange: RestoreSteps) -> None:
    """Move the old files away and the restored ones in; done again after an interruption, it goes on."""
    staging, kept = data / STAGING, data / exchange.kept_in
    if exchange.old:
        kept.mkdir(mode=0o700, exist_ok=True)
    for name in exchange.old:
        # A file that has already left the folder of restored files is itself a restored one.
        if (data / name).exists() and (name not in exchange.new or (staging / name).exists()):
            (data / name).rename(kept / name)
    if exchange.old:
        fsync_directory(kept)
    fsync_directory(data)
    for name in exchange.new:
        if (staging / name).exists():
            (staging / name).replace(data / name)
    fsync_directory(data)
    shutil.rmtree(staging, ignore_errors=True)
    (data / RESTORING).unlink()
    fsync_directory(data)


def _report(
    manifest: BackupManifest, lost: Newer, data: Path, exchange: RestoreSteps, *, delete_old: bool
) -> RestoreReport:
    kept = data / exchange.kept_in
    if delete_old or not exchange.old:
        shutil.rmtree(kept, ignore_errors=True)
        return RestoreReport(manifest, lost, None)
    return RestoreReport(manifest, lost, kept)


@contextlib.contextmanager
def _disk_errors(data: Path) -> Iterator[None]:
    try:
        yield
    except OSError as ex:
        advice = "The disk is full: free space" if ex.errno == errno.ENOSPC else "Check disk and permissions"
        raise BackupError(f"{data} can't be restored: {ex}. {advice}, then run `rioni restore` again.") from ex
