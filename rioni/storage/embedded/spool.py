"""Spool: durable lines in files, kept until they are processed; they survive the process that wrote them.

Nothing waits for the disk: what the machine has not written when its power fails is lost.
"""

import errno
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID, uuid4


FILE_BYTES_MAX = 4_194_304
FILES_MAX = 16
"""How many files of one process may wait; further lines are refused."""


class FileSpool:
    """Implements the port `Spool`: one file after the other, each of them locked by the process that uses it.

    A forked process must make its own.
    """

    def __init__(self, directory: Path, kind: str, *, file_bytes_max: int = FILE_BYTES_MAX) -> None:
        """Begin; there is no file until there is a line.

        Args:
            directory: of all spools; made if missing.
            kind: what the lines are; spools of one kind take over from each other.
            file_bytes_max: how long a file may get before the next one is begun.
        """
        directory.mkdir(mode=0o700, exist_ok=True)
        self._directory, self._kind, self._file_bytes_max = directory, kind, file_bytes_max
        self._current: LockedFile | None = None
        self._finished: list[LockedFile] = []

    def append(self, line: bytes) -> bool:
        """Keep a line, or say that there is no room for it. PERF: 1 us, most of it the system call."""
        if self._current is not None and self._current.size + len(line) > self._file_bytes_max:
            self._rotate()
        if len(self._finished) >= FILES_MAX:
            return False
        try:
            if self._current is None:
                self._current = LockedFile.create(self._directory, f"{self._kind}-{uuid4()}")
            self._current.append(line)
        except OSError:
            # The disk is full, or there is no file to be had: counting must not stop what is counted.
            return False
        return True

    def finished(self, *, current: bool) -> Sequence["LockedFile"]:
        """The files that get no more lines, those of dead processes included.

        Args:
            current: whether the file that is being written ends now.
        """
        self._finished = [file for file in self._finished if not file.removed]
        if current:
            self._rotate()
        own = {file.path for file in (*self._finished, self._current) if file is not None}
        for path in sorted(self._directory.glob(f"{self._kind}-*")):
            if path not in own and (file := LockedFile.take_over(path)) is not None:
                self._finished.append(file)
        return list(self._finished)

    def close(self) -> None:
        """Let others take over what is left."""
        self._rotate()
        for file in self._finished:
            file.close()
        self._finished = []

    def _rotate(self) -> None:
        if self._current is not None:
            self._finished.append(self._current)
            self._current = None


class LockedFile:
    """One file, locked by this process; implements the port `SpoolFile`."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path, self._fd = path, fd
        self.id = UUID(path.name[-36:])
        self.size = os.fstat(fd).st_size
        self.removed = False

    @classmethod
    def create(cls, directory: Path, name: str) -> "LockedFile":
        """A new file, which nobody can take over before it is locked."""
        unnamed, path = directory / f".{name}", directory / name
        fd = os.open(unnamed, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        unnamed.rename(path)
        return cls(path, fd)

    @classmethod
    def take_over(cls, path: Path) -> "LockedFile | None":
        """The file of a process that has died; None if the process is alive, or another process has taken it over."""
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        if not os.fstat(fd).st_nlink:
            os.close(fd)
            return None
        return cls(path, fd)

    def append(self, line: bytes) -> None:
        """Write a line as a whole, or raise OSError."""
        if os.write(self._fd, line) < len(line):
            # Half a line would spoil the next one.
            os.ftruncate(self._fd, self.size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.size += len(line)

    def lines(self) -> Sequence[bytes]:
        """All lines; blocks on the disk."""
        return os.pread(self._fd, self.size, 0).splitlines()

    def remove(self) -> None:
        """Forget the lines for ever."""
        self.path.unlink(missing_ok=True)
        self.close()
        self.removed = True

    def close(self) -> None:
        """Let go of the file; others may take it over."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
