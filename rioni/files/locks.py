"""Locks open files among processes, without waiting: the only use of `flock` except for the lock with a deadline.

The lock belongs to the open file: it ends when the last copy of its descriptor is closed, those of forked processes
included, or with the processes. Opening the file again gives another owner, also within one process.
"""

import errno
import fcntl
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_lock(path: Path) -> BinaryIO:
    """Open a file that exists to be locked; it is made for its owner alone if it is missing. Never blocks.

    Others may write to the folder: a link would lead elsewhere, and opening a pipe would wait for a reader.

    Raises:
        OSError: it can't be opened, or is no regular file; then its `strerror` has advice.
    """
    refused = OSError(errno.EINVAL, f"the lock {path} is no regular file; take it away")
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, 0o600)
    except OSError as ex:
        raise refused if ex.errno in {errno.ELOOP, errno.EISDIR, errno.ENXIO} else ex from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise refused
    return os.fdopen(fd, "r+b", buffering=0)


def lock(fd: int) -> None:
    """Lock an open file exclusively. Never blocks.

    Raises:
        BlockingIOError: another open file of the same path has the lock.
        OSError: the file system has no locks.
    """
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def try_lock(fd: int) -> bool:
    """Lock an open file exclusively; False if another open file of the same path has the lock. Never blocks.

    Raises:
        OSError: the file system has no locks.
    """
    try:
        lock(fd)
    except BlockingIOError:
        return False
    return True


def unlock(fd: int) -> None:
    """Unlock an open file, also for the processes that have a copy of its descriptor."""
    fcntl.flock(fd, fcntl.LOCK_UN)
