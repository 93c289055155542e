"""SQLite files that may be lost: activity of clients, jobs, slots; and how a start makes them usable."""

import contextlib
import json
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import msgspec
import structlog

from rioni.domain.ports.host import Health, ThreadPool, direct
from rioni.domain.system.client_activity import ActivityKey, LastActivity
from rioni.domain.system.reports import Job
from rioni.storage.embedded.data_directory import DataDirectory, set_aside
from rioni.storage.embedded.expendable_file import ExpendableFile


# --- Stores client activity in an SQLite file of its own ---


class ActivityDatabase(ExpendableFile):
    """One process's connections; see `ExpendableFile`."""

    schema_version = 1
    contents = "client activity"
    # PERF: a sync every second would delay those of the events; surviving the process is enough here.
    synchronous = "NORMAL"
    schema = """
    CREATE TABLE sightings (
        deed TEXT NOT NULL,
        resource TEXT NOT NULL,
        client TEXT NOT NULL,
        first_ms INTEGER NOT NULL,
        last_ms INTEGER NOT NULL,
        amount INTEGER NOT NULL,
        PRIMARY KEY (deed, resource, client)
    ) WITHOUT ROWID;
    CREATE INDEX sightings_by_time ON sightings (last_ms);
    """


class EmbeddedActivity:
    """The port `Activity` on SQLite. A forked process must open its own."""

    def __init__(self, path: Path) -> None:
        """Open the file, creating it if it doesn't exist; blocks.

        Raises:
            RioniError: the file can't be used; the message says why.
        """
        self._database = ActivityDatabase(path)

    def add(self, records: Mapping[ActivityKey, LastActivity]) -> None:
        """Add to the stored activity; see the port."""
        with self._database.writing() as connection:
            connection.executemany(
                "INSERT INTO sightings VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
                "first_ms = min(first_ms, excluded.first_ms), last_ms = max(last_ms, excluded.last_ms), "
                "amount = amount + excluded.amount",
                ((*key, seen.first_ms, seen.last_ms, seen.amount) for key, seen in records.items()),
            )

    def of_any(self, actions: Collection[str], resource: str) -> Mapping[ActivityKey, LastActivity]:
        """Return the activity of all clients on a resource by these actions; see the port."""
        rows = self._database.fetch(
            "SELECT deed, resource, client, first_ms, last_ms, amount FROM sightings "
            "WHERE deed IN (SELECT value FROM json_each(?)) AND resource = ? ORDER BY client",
            (json.dumps([*actions]), resource),
        )
        return {ActivityKey(*row[:3]): LastActivity(*row[3:]) for row in rows}

    def active_since(self, since_ms: int) -> Collection[str]:
        """Return the resources with activity since this time; see the port. PERF: 20 ms for 30,000 clients."""
        rows = self._database.fetch("SELECT resource FROM sightings WHERE last_ms >= ?", (since_ms,))
        return {resource for (resource,) in rows}

    def delete_before(self, before_ms: int) -> None:
        """Delete clients not seen since this time; see the port."""
        with self._database.writing() as connection:
            connection.execute("DELETE FROM sightings WHERE last_ms < ?", (before_ms,))

    def close(self) -> None:
        """Close the file."""
        self._database.close()


# --- Stores jobs in an SQLite file of its own ---


class JobsDatabase(ExpendableFile):
    """One process's connections; see `ExpendableFile`."""

    schema_version = 1
    contents = "list of jobs"
    synchronous = "NORMAL"
    schema = "CREATE TABLE jobs (id TEXT NOT NULL PRIMARY KEY, job BLOB NOT NULL) WITHOUT ROWID;"


class EmbeddedJobs:
    """The port `JobStore` on SQLite. A forked process must have its own.

    Args:
        path: the path of the file, which is opened when it is first needed, and created if it doesn't exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @cached_property
    def _database(self) -> JobsDatabase:
        return JobsDatabase(self._path)

    def all(self) -> Sequence[Job]:
        """All that are remembered; see the port."""
        return [msgspec.json.decode(job, type=Job) for (job,) in self._database.fetch("SELECT job FROM jobs")]

    def put(self, job: Job) -> None:
        """Keep a job; see the port."""
        with self._database.writing() as connection:
            connection.execute("INSERT OR REPLACE INTO jobs VALUES (?, ?)", (job.id, msgspec.json.encode(job)))

    def remove(self, ids: Collection[str]) -> None:
        """Forget jobs; see the port."""
        with self._database.writing() as connection:
            connection.executemany("DELETE FROM jobs WHERE id = ?", ((each,) for each in ids))

    def close(self) -> None:
        """Close the file, if it is open."""
        if "_database" in vars(self):
            self._database.close()


# --- Counts the slots that clients hold, across all worker processes of one machine, in SQLite ---


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
            path: the path of the database; further files are created next to it.
            worker: the id of this process.
            is_alive: whether the process with an id is alive.
            pool: the pool that waits for the disk.

        Raises:
            RioniError: the file can't be used; the message says why.
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


# --- Makes the files of a data directory that may be lost usable before the worker processes start ---

_log = structlog.get_logger("rioni.storage")

HEADER_BYTES = 100
"""The size of the header of an SQLite file."""


def renew_damaged(directory: DataDirectory) -> None:
    """Read the files that may be lost, and make damaged ones anew; the damaged files are moved aside.

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
    """Renew the idempotency index of Kafka if it is damaged; its tables are made when it is opened."""
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
