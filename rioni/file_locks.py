"""Locks open files among processes, without waiting: the only use of `flock` but for the lock with a deadline.

The lock belongs to the open file: it ends when the last copy of its descriptor is closed, those of forked processes
included, or with the processes. Opening the file again gives another owner, also within one process.
"""

import fcntl


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
