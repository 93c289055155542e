"""Changes small text files: by one process at a time, in one step, with the owner and mode that they had."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rioni.files.locks import lock, open_lock
from rioni.files.plain import read_file


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
    with open_lock(path.with_name(f".{path.name}.lock")) as held:
        lock(held.fileno())
        try:
            status = path.stat()
            file = EditedFile(read_file(path).decode())
        except FileNotFoundError:
            status = None
            file = EditedFile("")
        yield file
        _replace(path, file.text, status, mode)


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
