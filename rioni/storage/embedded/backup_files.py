"""Opens the files of a backup folder: by plain names, below the folder, following no links.

Others may have filled or changed the folder, on a disk or a server for backups: what its manifest says is data.
"""

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from rioni.domain.errors import RioniError


DATABASE_NAME = re.compile(r"(registry|coordination|names|events|events-[A-Za-z0-9._-]{1,36})\.db")
"""Names of the databases that backups hold; the last ones end with the id of a storage."""

FORMAT_NAME = "format"


class BackupError(RioniError):
    """A backup can't be made or used; the text says why, and what to do."""


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
        folder: that the operator has named; it may be a link itself.
        name: of the file, without a path.
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
    """Create a file that only its owner may read, in place of any other of that name; raises as `open_file`."""
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
