"""Detects by file locks, which end with the process, which worker processes are alive and which one leads."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from rioni.files.locks import lock, try_lock


# Detects which worker processes are alive: each locks a separate file; the kernel releases it when it dies.

_ABOUT, _UNFINISHED = ".about", ".unfinished"
"""The suffixes of further files of a process: the value that it shows the others, and that value while it is
written."""


class WorkerRegistry:
    """The worker processes that share a data directory, including this one."""

    def __init__(self, directory: Path) -> None:
        """Register this process; the caller prevents concurrent checks.

        Args:
            directory: the directory of the lock files; created if it doesn't exist.
        """
        directory.mkdir(mode=0o700, exist_ok=True)
        self._directory = directory
        self.own = f"{os.getpid()}-{os.urandom(6).hex()}"
        """The id of this process, never used by another one."""
        self._fd = os.open(directory / self.own, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        lock(self._fd)

    @property
    def ended(self) -> bool:
        """Whether this process has unregistered."""
        return self._fd < 0

    def known(self) -> set[str]:
        """Return the ids of all processes whose files exist."""
        return {entry.name for entry in self._directory.iterdir() if not entry.suffix}

    def show(self, about: bytes) -> None:
        """Replace the value that this process shows the others; blocks on the disk."""
        if not self.ended:
            file = self._directory / self.own
            file.with_suffix(_UNFINISHED).write_bytes(about)
            file.with_suffix(_UNFINISHED).replace(file.with_suffix(_ABOUT))

    def shown(self) -> Mapping[str, bytes]:
        """The value that each living process showed last, by process id; blocks on the disk."""
        shown = {}
        for worker in self.known():
            # A process may end meanwhile.
            with suppress(FileNotFoundError):
                if self.alive(worker):
                    shown[worker] = (self._directory / worker).with_suffix(_ABOUT).read_bytes()
        return shown

    def alive(self, worker: str) -> bool:
        """Whether a process is alive. PERF: about 5 us."""
        if worker == self.own:
            return True
        try:
            fd = os.open(self._directory / worker, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            return not try_lock(fd)
        finally:
            os.close(fd)

    def reap(self, worker: str) -> None:
        """Remove the files of a dead process."""
        for suffix in (_ABOUT, _UNFINISHED, ""):
            (self._directory / worker).with_suffix(suffix).unlink(missing_ok=True)

    def leave(self) -> None:
        """Unregister this process."""
        if not self.ended:
            self.reap(self.own)
            os.close(self._fd)
            self._fd = -1


# --- Elects a leader among the processes of a data directory, by a file lock ---


class FileLeadership:
    """Implements the port `Leadership`: the kernel releases the lock when the process dies.

    A forked process must make its own.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1
        self._held = False

    def held(self) -> bool:
        """Whether this process is the leader. PERF: a system call of about 1 us while it is not."""
        if not self._held:
            if self._fd < 0:
                self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._held = try_lock(self._fd)
        return self._held

    def close(self) -> None:
        """Release the leadership, so that another process can take it."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._held = -1, False
