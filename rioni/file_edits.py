"""Changes small text files: by one process at a time, in one step, with the owner and mode that they had."""

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from rioni import file_locks
from rioni.plain_files import read_file


class EditedFile:
    """A file that is changed.

    Args:
        text: its present text; what is assigned to it replaces it.
    """

    def __init__(self, text: str) -> None:
        self.text = text


@contextmanager
def edited(path: Path, *, mode: int = 0o600) -> Iterator[EditedFile]:
    """The text of a file, to be changed: the file is replaced when the block ends, and is as before if it raises.

    Args:
        path: of the file, or of a link to it; a file that does not exist is made.
        mode: of a new file.

    Raises:
        BlockingIOError: another process is changing it.
        OSError: it can't be read or written, or a new file can't get its owner, or the lock is no regular file.
        UnicodeDecodeError: it is not UTF-8.
    """
    path = path.resolve()
    with _lock_file(path.with_name(f".{path.name}.lock")) as held:
        file_locks.lock(held.fileno())
        try:
            status = path.stat()
            file = EditedFile(read_file(path).decode())
        except FileNotFoundError:
            status = None
            file = EditedFile("")
        yield file
        _replace(path, file.text, status, mode)


def _lock_file(path: Path) -> BinaryIO:
    # Others may write to the folder: a link would lead elsewhere, and opening a pipe would wait for a reader.
    refused = OSError(errno.EINVAL, f"the lock {path} is no regular file; take it away")
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, 0o600)
    except OSError as ex:
        raise refused if ex.errno in {errno.ELOOP, errno.EISDIR, errno.ENXIO} else ex from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise refused
    return os.fdopen(fd, "rb")


def _replace(path: Path, text: str, status: os.stat_result | None, mode: int) -> None:
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}.", delete=False) as beside:
        try:
            beside.write(text)
            beside.flush()
            os.fchmod(beside.fileno(), mode if status is None else status.st_mode & 0o7777)
            if status is not None and (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()):
                os.fchown(beside.fileno(), status.st_uid, status.st_gid)
            os.fsync(beside.fileno())
            Path(beside.name).replace(path)
            _fsync_directory(path.parent)
        except BaseException:
            Path(beside.name).unlink(missing_ok=True)
            raise


def _fsync_directory(path: Path) -> None:
    """Otherwise the former file may be back after a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
