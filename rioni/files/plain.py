"""Plain files: they are read without waiting, changed in one step, and kept from other users of the machine."""

import contextlib
import errno
import hashlib
import os
import select
import stat
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from rioni.domain.errors import RioniError, Unavailable
from rioni.files.locks import lock, open_lock


# Reads files without waiting for ever: pipes that no program writes to, sockets and devices are errors at once.

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


def parse_toml(content: bytes) -> dict[str, Any]:
    """Parse TOML, which may begin with a byte order mark.

    Raises:
        UnicodeDecodeError: it is not UTF-8.
        TOMLDecodeError: it is not TOML.
    """
    return tomllib.loads(content.decode("utf-8-sig"))


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


def digest_of(path: Path) -> str:
    """The SHA-256 of a file, hexadecimal. Blocks on the disk."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def file_errors(text: str, error: type[RioniError] = Unavailable) -> Iterator[None]:
    """Turn errors of files into one line: the text and the reason.

    Raises:
        error: the file can't be used.
    """
    try:
        yield
    except OSError as ex:
        raise error(f"{text}: {ex.strerror or ex}.") from ex


def read_toml_of(setting: str, path: Path) -> dict[str, Any]:
    """The content of the TOML file that a setting names, as `read_toml` reads it.

    Raises:
        Unavailable: it can't be read, or is not TOML.
    """
    with file_errors(f"{setting}: {path} can't be read"):
        try:
            return read_toml(path)
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as ex:
            raise Unavailable(f"{setting}: {path} is not valid TOML: {ex}.") from ex


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


# --- Changes small text files: by one process at a time, in one step, with the owner and mode that they had ---


class EditedFile:
    """A file that is changed.

    Args:
        text: its present text; assign to it to replace it.
    """

    def __init__(self, text: str) -> None:
        self.text = text


@contextmanager
def edited(path: Path) -> Iterator[EditedFile]:
    """The text of a file, to be changed: the file is replaced when the block ends, and is as before if it raises.

    Args:
        path: the path of the file, or of a link to it; a file that does not exist is made, for its owner alone.

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
        _replace(path, file.text, status)


def _replace(path: Path, text: str, status: os.stat_result | None) -> None:
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}.", delete=False) as beside:
        try:
            beside.write(text)
            beside.flush()
            os.fchmod(beside.fileno(), 0o600 if status is None else status.st_mode & 0o7777)
            if status is not None and (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()):
                os.fchown(beside.fileno(), status.st_uid, status.st_gid)
            os.fsync(beside.fileno())
            Path(beside.name).replace(path)
            fsync_directory(path.parent)
        except BaseException:
            Path(beside.name).unlink(missing_ok=True)
            raise


def write_durably(path: Path, content: bytes) -> None:
    """Write a file for its owner alone, which exists completely or not at all, even after a crash."""
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(content)
        flush(file)
    new.replace(path)
    fsync_directory(path.parent)


def flush(file: IO[bytes]) -> None:
    """Make writes to a file durable; blocks on the disk."""
    file.flush()
    os.fsync(file.fileno())


def fsync_directory(path: Path) -> None:
    """Make a directory's entries durable: otherwise a former file may be back after a power cut. Blocks on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# Keeps stored data from other users of the machine, whatever the process's umask and the modes of folders are.


@contextlib.contextmanager
def private_umask() -> Iterator[None]:
    """Let this process create files and folders that only its owner may use, until the block ends."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def tighten(path: Path) -> None:
    """Take the rights of others on a file, or on a folder and all in it; links are left alone.

    Raises:
        OSError: a mode can't be changed.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:  # of a process that has just ended
        return
    if stat.S_ISLNK(mode):
        return
    wanted = 0o700 if stat.S_ISDIR(mode) else 0o600
    if stat.S_IMODE(mode) != wanted:
        path.chmod(wanted)
    if stat.S_ISDIR(mode):
        for each in path.iterdir():
            tighten(each)
