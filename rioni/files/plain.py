"""Reads files without waiting for nobody: pipes that no program writes to, sockets and devices are errors at once."""

import errno
import os
import select
import stat
import tomllib
from pathlib import Path
from typing import Any

from rioni.domain.errors import Unavailable


_KINDS = {
    stat.S_IFIFO: "is a pipe",
    stat.S_IFSOCK: "is a socket",
    stat.S_IFCHR: "is a device",
    stat.S_IFBLK: "is a device",
}


def read_file(path: Path) -> bytes:
    """The content of a file, of a terminal, or of a pipe that a program writes to; blocks until these have ended.

    Raises:
        FileNotFoundError: there is nothing at the path.
        OSError: it can't be read, also if it is a directory, a socket, a device, a pipe that no program writes to, or a
            link to nothing.
    """
    return read_with_mode(path)[0]


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file, which may begin with a byte order mark; reads it as `read_file`.

    Raises:
        OSError: it can't be read.
        UnicodeDecodeError: it is not UTF-8.
        TOMLDecodeError: it is not TOML.
    """
    return parse_toml(read_file(path))


def parse_toml(content: bytes, *, errors: str = "strict") -> dict[str, Any]:
    """What TOML says, which may begin with a byte order mark.

    Args:
        content: the bytes of a file.
        errors: what to do with bytes that are not UTF-8, as `bytes.decode` has it.

    Raises:
        UnicodeDecodeError: it is not UTF-8.
        TOMLDecodeError: it is not TOML.
    """
    return tomllib.loads(content.decode("utf-8-sig", errors))


def read_with_mode(path: Path) -> tuple[bytes, int]:
    """The content of a file as `read_file` reads it, and the mode that the file had then."""
    try:
        # Without O_NONBLOCK, opening a pipe waits for a program that writes to it.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except FileNotFoundError:
        if Path(path).is_symlink():
            raise OSError(errno.EINVAL, f"it is a link to {Path(path).readlink()}, which does not exist") from None
        raise
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        first = b"" if stat.S_ISREG(mode) else _first_byte(fd, mode)
        os.set_blocking(fd, True)
        with open(fd, "rb", closefd=False) as file:
            return first + file.read(), mode
    finally:
        os.close(fd)


def _first_byte(fd: int, mode: int) -> bytes:
    try:
        found = os.read(fd, 1)
    except BlockingIOError:  # something that writes is there, and has not written yet
        return b""
    if stat.S_ISFIFO(mode):
        poll = select.poll()
        poll.register(fd)
        if not found and not poll.poll(0):  # a writer that has ended is an event
            raise OSError(errno.EINVAL, "it is a pipe that no program writes to")
    elif found and not os.isatty(fd):
        raise OSError(errno.EINVAL, "it is a device")
    return found


def check_folder(folder: Path, *, with_links: bool = True) -> None:
    """Check that nothing in a folder would block or mislead a program that opens it as a file.

    Args:
        folder: one that can't be read has nothing.
        with_links: whether a link that leads nowhere is refused, too.

    Raises:
        Unavailable: an entry is a pipe, a socket, a device, or such a link; or this user may not read it or a database.
    """
    try:
        entries = sorted(folder.iterdir())
    except PermissionError as ex:
        raise _not_permitted(folder) from ex
    except OSError:  # the command that needs the folder reports it
        return
    for each in entries:
        if (reason := _unusable(each)) is not None and (with_links or each.exists()):
            raise Unavailable(f"{each} {reason}, so it can't be opened as a file. Take it away, or restore a backup.")
        if each.suffix == ".db" and each.exists() and not os.access(each, os.R_OK, effective_ids=True):
            raise _not_permitted(each)


def _not_permitted(path: Path) -> Unavailable:
    return Unavailable(
        f"{path} can't be read: Permission denied. Use it as the user of the broker, whose files these are."
    )


def _unusable(path: Path) -> str | None:
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        # Another process may have removed it since it was listed.
        return f"is a link to {path.readlink()}, which does not exist" if path.is_symlink() else None
    except OSError as ex:
        return f"can't be reached ({ex.strerror})"
    return _KINDS.get(stat.S_IFMT(mode))
