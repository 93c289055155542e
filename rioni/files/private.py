"""Keeps what the broker stores from other users of the machine, whatever their umask and the modes of folders are."""

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path


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
