"""Stores jobs in an SQLite file of its own."""

from collections.abc import Collection, Sequence
from functools import cached_property
from pathlib import Path

import msgspec

from rioni.domain.system.jobs import Job
from rioni.storage.embedded.expendable_file import ExpendableFile


class JobsDatabase(ExpendableFile):
    """One process's connections; see `ExpendableFile`."""

    schema_version = 1
    contents = "list of jobs"
    synchronous = "NORMAL"
    schema = "CREATE TABLE jobs (id TEXT NOT NULL PRIMARY KEY, job BLOB NOT NULL) WITHOUT ROWID;"


class EmbeddedJobs:
    """The port `JobStore` on SQLite. A forked process must have its own.

    Args:
        path: of the file, which is opened when it is first needed, and created where it doesn't exist.
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
