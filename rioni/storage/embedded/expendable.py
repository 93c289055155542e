"""Makes the files of a data directory that may be lost usable before the worker processes start."""

import contextlib
import sqlite3
from pathlib import Path

import structlog

from rioni.storage.embedded.activity import ActivityDatabase
from rioni.storage.embedded.coordination.quota import SlotsDatabase
from rioni.storage.embedded.data_directory import DataDirectory
from rioni.storage.embedded.jobs import JobsDatabase
from rioni.storage.embedded.set_aside import set_aside


_log = structlog.get_logger("rioni.storage")

HEADER_BYTES = 100
"""Of a file of SQLite."""


def renew_damaged(directory: DataDirectory) -> None:
    """Read the files that may be lost, and make those anew that are damaged; what is in their place is moved aside.

    Blocks on the disk. Call it while no worker process runs.

    Raises:
        Unavailable: a file can't be read or made.
    """
    for kind, path in (
        (SlotsDatabase, directory.slots),
        (ActivityDatabase, directory.activity),
        (JobsDatabase, directory.jobs),
    ):
        if path.exists():
            # SQLite begins anew in a file that has no header. Later it may be one that another process is just making.
            emptied = path.is_file() and path.stat().st_size < HEADER_BYTES
            with contextlib.closing(kind(path)) as database:
                database.check()
            if emptied:
                _log.warning("a file that may be lost was empty; made anew", file=path.name)
    _renew_names(directory.names)


def _renew_names(path: Path) -> None:
    """Of Kafka's idempotency index, which has no class of its own here; its tables are made when it is opened."""
    if not path.exists():
        return
    try:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            reason = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    except (sqlite3.Error, UnicodeDecodeError) as ex:
        reason = str(ex)
    if reason == "ok":
        return
    kept = set_aside(path, quietly=True)
    for side in ("-wal", "-shm"):
        set_aside(Path(f"{path}{side}"), quietly=True)
    _log.warning(
        "the idempotency index of Kafka was damaged; made anew: what was published under a key or an eid before may be "
        "stored once more if it is published again",
        file=path.name,
        reason=reason,
        kept=kept,
    )
