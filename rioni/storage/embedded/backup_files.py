"""The files of a backup: opened by plain names, and SQLite files frozen at one instant to be copied."""

import contextlib
import errno
import os
import re
import sqlite3
import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO
from urllib.parse import quote

from rioni.domain.errors import RioniError, Unavailable
from rioni.sql.engines import empty_log
from rioni.storage.embedded.file_lock import FileLock


# --- Opens the files of a backup folder: by plain names, below the folder, following no links ---
#
# Others may have filled or changed the folder, on a disk or a server for backups: what its manifest says is data.

DATABASE_NAME = re.compile(r"(registry|coordination|names|events|events-[A-Za-z0-9._-]{1,36})\.db")
"""Names of the databases that backups hold; the last ones end with the id of a storage."""

FORMAT_NAME = "format"


class BackupError(RioniError):
    """A backup can't be made or used; the message says why, and what to do."""


def check_name(name: str, where: Path) -> None:
    """Check the name of a file that a manifest lists.

    Raises:
        BackupError: no backup holds a file of that name.
    """
    if name != FORMAT_NAME and DATABASE_NAME.fullmatch(name) is None:
        raise BackupError(
            f"{where} lists a file {name[:80]!a}, which no backup holds: it is damaged or forged. Nothing was "
            "changed. Use another backup."
        )


def open_file(folder: Path, name: str, flags: int = os.O_RDONLY) -> int:
    """Open a file of a folder; return its descriptor.

    Args:
        folder: the folder that the operator has named; it may be a link itself.
        name: the name of the file, without a path.
        flags: as those of `os.open`. A file to be written must not have other names: they would change with it.

    Raises:
        BackupError: it is a link, a directory or a device.
        OSError: it does not exist, or can't be opened.
    """
    assert os.sep not in name, "a plain name"
    folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fd = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600, dir_fd=folder_fd)
    except OSError as ex:
        if ex.errno in {errno.ELOOP, errno.EISDIR, errno.ENXIO}:
            kind = {errno.ELOOP: "a symbolic link", errno.EISDIR: "a directory"}.get(ex.errno, "a pipe or a device")
            raise _refused(folder / name, kind) from ex
        raise
    finally:
        os.close(folder_fd)
    found = os.fstat(fd)
    kind = "" if stat.S_ISREG(found.st_mode) else "a directory, a pipe or a device"
    if not kind and found.st_nlink > 1 and flags & (os.O_WRONLY | os.O_RDWR):
        kind = "a hard link: what is written to it would change another file, too"
    if kind:
        os.close(fd)
        raise _refused(folder / name, kind)
    return fd


@contextlib.contextmanager
def opened(folder: Path, name: str) -> Iterator[IO[bytes]]:
    """Open a file of a folder for reading; raises as `open_file`."""
    with open(open_file(folder, name), "rb") as file:
        yield file


@contextlib.contextmanager
def created(folder: Path, name: str) -> Iterator[IO[bytes]]:
    """Create a file that only its owner may read, replacing any other of that name; raises as `open_file`."""
    (folder / name).unlink(missing_ok=True)
    with open(open_file(folder, name, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
        yield file


def read_small(folder: Path, name: str, bytes_max: int) -> bytes:
    """Read a whole file; raises as `open_file`, and BackupError if it has more bytes."""
    with opened(folder, name) as file:
        content = file.read(bytes_max + 1)
    if len(content) > bytes_max:
        raise BackupError(f"{folder / name} is longer than {bytes_max >> 20} MiB: it is damaged. Use another backup.")
    return content


def _refused(path: Path, kind: str) -> BackupError:
    return BackupError(
        f"{path} is not a file of its own, but {kind}. Nothing was changed. Use another folder, or a copy of this one "
        "that holds plain files (cp -rL)."
    )


# Freezes several SQLite files at one instant, so that they can be copied while other processes go on writing.
#
# Every writer, checkpoints included, holds the lock next to its file. With all locks held no transaction is under way:
# the write-ahead logs are emptied into the files, and a read transaction is opened on each. From then on writers fill
# new write-ahead logs, which SQLite does not copy into a file before the read transaction on it has ended. So the files
# themselves do not change, and are copied as they are.

ATTEMPTS_MAX = 100
PAUSE_S = 0.02
"""Seconds between attempts: readers, who keep a log from being emptied, finish in some milliseconds."""

BUSY_TIMEOUT_MS = 5_000

WAL_BYTES_MAX = 8 * 2**30
"""The length to which a write-ahead log may grow during a copy."""


class Snapshot:
    """An SQLite file that does not change until it is closed."""

    def __init__(self, path: Path) -> None:
        """Open the file; its lock must be held."""
        self.path = path
        self._fd = -1
        uri = f"file:{quote(str(path.absolute()))}?mode=rw"
        self.connection = sqlite3.connect(uri, uri=True, isolation_level=None)

    def freeze(self) -> bool:
        """Empty the write-ahead log and begin the read transaction; False if readers prevent it now."""
        if not empty_log(self.connection, BUSY_TIMEOUT_MS):
            return False
        self.connection.execute("PRAGMA query_only = ON")
        self.connection.execute("BEGIN")
        self.connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
        # NOTE: closing any descriptor of the file drops SQLite's locks in this process, so this one is closed last.
        self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        return True

    @property
    def size(self) -> int:
        """The length of the file in bytes."""
        return os.fstat(self._fd).st_size

    def read(self, offset: int, length: int) -> bytes:
        """Read from the file.

        Raises:
            Unavailable: too much was written since; the copy should be repeated at another time.
        """
        log = Path(f"{self.path}-wal")
        if log.exists() and log.stat().st_size > WAL_BYTES_MAX:
            raise Unavailable(
                f"{WAL_BYTES_MAX >> 30} GiB were written to {self.path.name} while it was copied. Nothing was changed; "
                "try again when less is published, or use a snapshot of the file system."
            )
        return os.pread(self._fd, length, offset)

    def close(self) -> None:
        """End the read transaction; the lock must be held, as the last connection checkpoints."""
        self.connection.close()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


@contextlib.contextmanager
def snapshots(paths: Sequence[Path]) -> Iterator[list[Snapshot]]:
    """Freeze files at one instant; writers wait for some milliseconds.

    Args:
        paths: the paths of files in WAL mode, whose writers hold the lock `<path>-lock`.

    Raises:
        Unavailable: a lock is not released, readers keep a write-ahead log from being emptied, or a file can't be
            used; the text names it.
    """
    frozen = _freeze(paths)
    try:
        yield frozen
    finally:
        _close(frozen)


def _freeze(paths: Sequence[Path]) -> list[Snapshot]:
    for _ in range(ATTEMPTS_MAX):
        # Empty each log by itself first: slow work is done before all writers have to wait.
        for path in paths:
            with _named(path), _lock_of(path), contextlib.closing(Snapshot(path)) as snapshot:
                empty_log(snapshot.connection, BUSY_TIMEOUT_MS)
        opened: list[Snapshot] = []
        with contextlib.ExitStack() as locks:
            for path in paths:
                locks.enter_context(_lock_of(path))
            try:
                for path in paths:
                    with _named(path):
                        opened.append(Snapshot(path))
                        is_frozen = opened[-1].freeze()
                    if not is_frozen:
                        break
                else:
                    return opened
            except BaseException:
                for each in opened:
                    each.close()
                raise
            for each in opened:
                each.close()
        time.sleep(PAUSE_S)
    raise Unavailable("The files are read all the time, so that they can't be copied as of one instant. Try again.")


def _close(frozen: Sequence[Snapshot]) -> None:
    for each in frozen:
        with _lock_of(each.path):
            each.close()


@contextlib.contextmanager
def _lock_of(path: Path) -> Iterator[None]:
    """Hold the lock of a file."""
    lock = Path(f"{path}-lock")
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(FileLock(lock).held())
        except OSError as ex:
            raise Unavailable(f"{lock} can't be used: {ex.strerror}. Take away what is there, and try again.") from ex
        yield


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as ex:
        raise Unavailable(
            f"{path} can't be read: {ex}. Check disk space and permissions, and run `rioni verify`."
        ) from ex
