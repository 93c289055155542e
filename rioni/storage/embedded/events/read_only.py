"""Reads the SQLite file of an event store without changing anything, not even an older schema."""

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from rioni.domain.errors import Unavailable
from rioni.storage.embedded.data_directory import DataDirectoryError
from rioni.storage.embedded.events.database import EventsDatabase
from rioni.storage.embedded.sqlite_file import BUSY_TIMEOUT_S
from rioni.storage.sql.read_only import read_only_uri


class OtherVersion(DataDirectoryError):
    """A file was written by a newer or an older version of Rioni."""


class ReadOnlyDatabase(EventsDatabase):
    """Read-only `EventsDatabase`; writing raises an error."""

    def __init__(self, path: Path) -> None:
        """Open an existing file; blocks on the disk.

        Raises:
            OtherVersion: the file was written by a newer or an older version.
            DamagedEvents: the file is damaged.
            Unavailable: it can't be opened.
        """
        self._path, self._pid, self._closed = path, os.getpid(), False
        self._readers: list[sqlite3.Connection] = []
        self._opened = contextlib.ExitStack()
        try:
            with self._translated():
                self._uri = self._opened.enter_context(read_only_uri(path))
                self._check_version()
        except BaseException:
            self.close()
            raise

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Raise Unavailable: the file is read-only."""
        raise Unavailable(f"{self._path.name} was opened for reading only.")
        yield

    def close(self) -> None:
        """Close all connections; none may be in use."""
        self._closed = True
        while self._readers:
            self._readers.pop().close()
        self._opened.close()

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._uri, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA query_only = ON")
        return connection

    def _check_version(self) -> None:
        ((version,),) = self.fetch("PRAGMA user_version")
        if version > self.schema_version:
            raise OtherVersion(
                f"{self._path} was written by a newer version of Rioni (schema {version}, known here: "
                f"{self.schema_version}). Use that version."
            )
        if version < self.schema_version:
            raise OtherVersion(
                f"{self._path} was written by an older version of Rioni (schema {version}, needed here: "
                f"{self.schema_version}). Use that version, or let `rioni serve` of this one bring it up to date."
            )
