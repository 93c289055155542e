"""Counts the slots that clients hold, across all worker processes of one machine, in SQLite."""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rioni.domain.ports.health import Health
from rioni.domain.ports.thread_pool import ThreadPool, direct
from rioni.storage.embedded.expendable_file import ExpendableFile


class SlotsDatabase(ExpendableFile):
    """One process's connections to the file. All slots are free after a reboot, so durability is not needed."""

    schema_version = 1
    contents = "connection quota"
    # PERF: no commit waits for the disk; the write-ahead log still protects the file from corruption.
    synchronous = "NORMAL"
    schema = """
    CREATE TABLE taken (
        slot TEXT NOT NULL,
        holder TEXT NOT NULL,
        worker TEXT NOT NULL,                   -- the process that it lives and dies with
        PRIMARY KEY (slot, holder)
    ) WITHOUT ROWID;
    CREATE INDEX taken_by_holders ON taken (holder);
    CREATE INDEX taken_by_workers ON taken (worker);
    """


class EmbeddedConnectionQuota:
    """The port `ConnectionQuota` on SQLite. A forked process must open its own."""

    def __init__(self, path: Path, *, worker: str, is_alive: Callable[[str], bool], pool: ThreadPool = direct) -> None:
        """Open the file, creating it if it doesn't exist; blocks.

        Args:
            path: of the database; further files are created beside it.
            worker: the id of this process.
            is_alive: whether the process with an id is alive.
            pool: the pool that waits for the disk.

        Raises:
            RioniError: the file can't be used; the text says why.
        """
        self._worker, self._is_alive, self._pool = worker, is_alive, pool
        self._database = SlotsDatabase(path)
        with self._database.writing() as connection:
            self._remove_dead(connection)

    def health(self) -> Health:
        """Check whether slots can be written; see the port `Examined`."""
        self._pool(self._database.probe)
        return Health()

    def acquire(self, holder: str, slots: Mapping[str, int]) -> Sequence[str]:
        """Take all slots or none; see the port."""

        def run() -> Sequence[str]:
            with self._database.writing() as connection:
                full = _full(connection, slots)
                if full and self._remove_dead(connection):
                    full = _full(connection, slots)
                if not full:
                    connection.executemany(
                        "INSERT INTO taken VALUES (?, ?, ?)", ((slot, holder, self._worker) for slot in slots)
                    )
                return full

        return self._pool(run)

    def release(self, holder: str) -> None:
        """Release all slots of a holder; see the port."""

        def run() -> None:
            with self._database.writing() as connection:
                connection.execute("DELETE FROM taken WHERE holder = ?", (holder,))

        self._pool(run)

    def close(self) -> None:
        """Close all files; see the port."""
        self._pool(self._database.close)

    def _remove_dead(self, connection: sqlite3.Connection) -> bool:
        """Release the slots of dead processes; return whether there were any."""
        workers = [worker for (worker,) in connection.execute("SELECT DISTINCT worker FROM taken").fetchall()]
        dead = [(worker,) for worker in workers if not self._is_alive(worker)]
        connection.executemany("DELETE FROM taken WHERE worker = ?", dead)
        return bool(dead)


def _full(connection: sqlite3.Connection, slots: Mapping[str, int]) -> list[str]:
    def taken(slot: str) -> int:
        (count,) = connection.execute("SELECT count(*) FROM taken WHERE slot = ?", (slot,)).fetchone()
        return int(count)

    return [slot for slot, most in slots.items() if taken(slot) >= most]
