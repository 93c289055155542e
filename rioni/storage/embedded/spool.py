"""Keeps lines in files until they are processed; the files survive the process that wrote them.

Writes are not synced: lines that the kernel has not written when the power fails are lost.
"""

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID, uuid4

from rioni.files.locks import lock, try_lock


FILE_BYTES_MAX = 4_194_304
FILES_MAX = 16
"""Maximum number of unprocessed files of one process; further lines are rejected."""


class FileSpool:
    """Implements the port `Spool`: a sequence of files, each locked by the process that uses it.

    A forked process must make its own.
    """

    def __init__(self, directory: Path, kind: str, *, file_bytes_max: int = FILE_BYTES_MAX) -> None:
        """Start without a file; the first line creates one.

        Args:
            directory: the directory of all spools; created if missing.
            kind: the kind of the lines; spools of one kind take over each other's files.
            file_bytes_max: size at which the next file is started.
        """
        directory.mkdir(mode=0o700, exist_ok=True)
        self._directory, self._kind, self._file_bytes_max = directory, kind, file_bytes_max
        self._current: LockedFile | None = None
        self._finished: list[LockedFile] = []

    def append(self, line: bytes) -> bool:
        """Store a line; return False if there is no room. PERF: 1 us, most of it the system call."""
        if self._current is not None and self._current.size + len(line) > self._file_bytes_max:
            self._rotate()
        if len(self._finished) >= FILES_MAX:
            return False
        try:
            if self._current is None:
                self._current = LockedFile.create(self._directory, f"{self._kind}-{uuid4()}")
            self._current.append(line)
        except OSError:
            # The disk is full, or no file can be opened: measuring must not stop what is measured.
            return False
        return True

    def finished(self, *, current: bool) -> Sequence["LockedFile"]:
        """Return the files that receive no more lines, including those of dead processes.

        Args:
            current: whether to finish the file being written now.
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
        """Release the remaining files, so that other processes can take them over."""
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
        """Create a file that no process can take over before it is locked."""
        unnamed, path = directory / f".{name}", directory / name
        fd = os.open(unnamed, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        lock(fd)
        unnamed.rename(path)
        return cls(path, fd)

    @classmethod
    def take_over(cls, path: Path) -> "LockedFile | None":
        """Take over the file of a dead process; None if its process is alive, or another process was faster."""
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        if not (try_lock(fd) and os.fstat(fd).st_nlink):
            os.close(fd)
            return None
        return cls(path, fd)

    def append(self, line: bytes) -> None:
        """Write the whole line, or raise OSError."""
        if os.write(self._fd, line) < len(line):
            # A partial line would corrupt the next one.
            os.ftruncate(self._fd, self.size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.size += len(line)

    def lines(self) -> Sequence[bytes]:
        """All lines; blocks on the disk."""
        return os.pread(self._fd, self.size, 0).splitlines()

    def remove(self) -> None:
        """Delete the file with its lines."""
        self.path.unlink(missing_ok=True)
        self.close()
        self.removed = True

    def close(self) -> None:
        """Release the file; other processes may take it over."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
