"""Opens SQLite files with exclusive writers: schema and upgrades, transactions, and translation of errors.

NOTE: every write, checkpoints included, happens under a separate lock file. It lets native threads wait for the write
lock without polling, and it avoids the defect of SQLite before 3.51.3 by which a checkpoint may corrupt the file when
another connection writes at the same instant. For the same reason no other program may open the file for writing, and
no code in this process may open it by other means: closing it would drop SQLite's own locks.
"""

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import structlog

from rioni.domain.errors import CommitOutcomeUnknown, RioniError, Unavailable
from rioni.files.plain import fsync_directory
from rioni.sql.engines import discard_failed_commit, empty_log
from rioni.storage.embedded.data_directory import DataDirectoryError
from rioni.storage.embedded.file_lock import FileLock


PAGE_BYTES = 8192
"""PERF: appends are 10-25 % faster than with 4 KiB pages; larger pages waste space with small batches."""

CHECKPOINT_PAGES = 4 * 2**20 // PAGE_BYTES
"""The write-ahead log is checkpointed whenever it has grown by 4 MiB: rarely enough to cost little, often enough to
stall appends for some milliseconds only."""

WAL_BYTES_MAX = 64 * 2**20
"""Beyond this length of the write-ahead log, which readers can cause, a checkpoint waits for the readers."""

BUSY_TIMEOUT_S = 5.0
"""Covers another connection that recovers the file after a crash; in normal operation the file is never busy."""

_log = structlog.get_logger("rioni.storage")

_CORRUPT = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


class SQLiteFile:
    """One process's connections to a file: one for writing, and one for each concurrent reader thread."""

    schema: str
    schema_version: int
    upgrades: Mapping[int, str] = {}
    """SQL that upgrades each older schema version to the next one."""
    contents: str
    """A noun for the contents of the file in error texts, such as "The {contents} is closed"."""
    synchronous = "FULL"
    """SQLite's pragma of that name: with FULL a commit waits for the disk, with NORMAL it survives the process only."""
    full_disk = "Free space"
    """The advice if the disk is full."""

    def __init__(self, path: Path) -> None:
        """Open the file, creating it if it doesn't exist; blocks on the disk.

        Raises:
            DataDirectoryError: the file was written by a newer version.
            Unavailable: it can't be opened, or is damaged.
        """
        self._path = path
        self._wal = Path(f"{path}-wal")
        self._lock = FileLock(Path(f"{path}-lock"))
        self._pid = os.getpid()
        self._readers: list[sqlite3.Connection] = []
        self._writer: sqlite3.Connection | None = None
        self._failed: sqlite3.Connection | None = None
        self._wal_bytes_max = WAL_BYTES_MAX
        self._closed = False
        with self._translated(), self._turn():
            connection = self._open()
            try:
                self._migrate(connection)
            except BaseException:
                connection.close()
                raise
            self._writer = connection

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Open a transaction, durable at the end of the block; blocks natively for the write lock and the disk.

        Raises:
            CommitOutcomeUnknown: the disk failed in COMMIT, and still does; all writes fail until the outcome is
                determined.
            Unavailable: the disk is full or fails; nothing was written.
        """
        with self._translated(), self._turn():
            try:
                connection = self._writer = self._writer or self._reopen()
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                self._commit(connection)
                self._bound_wal(connection)
            except sqlite3.Error:
                self._fail()
                raise
            except BaseException:
                if self._writer and self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                raise

    def probe(self) -> None:
        """Write to the file durably, without changing its contents; blocks and raises as `writing` does."""
        with self.writing() as connection:
            # It rewrites the first page, whatever the number was before.
            connection.execute(f"PRAGMA user_version = {self.schema_version}")

    def fetch(self, statement: str, parameters: Sequence[object] | Mapping[str, object] = ()) -> list[Any]:
        """Return all rows of a query.

        PERF: about 5 us for a row by its key, which may run on the hub; larger results belong in a pool thread.
        """
        with self.reading() as connection:
            return connection.execute(statement, parameters).fetchall()

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Provide a connection that sees committed data; cursors must be closed before the block ends."""
        self._check_usable()
        # Readers of the file that is used now: another one may be opened meanwhile.
        readers = self._readers
        with self._translated():
            try:
                connection = readers.pop()
            except IndexError:
                connection = self._open()
            try:
                yield connection
            except sqlite3.Error:
                connection.close()
                raise
            except BaseException:
                readers.append(connection)
                raise
            else:
                readers.append(connection)

    def close(self) -> None:
        """Close all connections; none may be in use."""
        if self._closed:
            return
        with self._translated(), self._turn():
            self._closed = True
            while self._readers:
                self._readers.pop().close()
            for connection in (self._failed, self._writer):
                if connection:
                    connection.close()
            self._failed = self._writer = None

    def _check_usable(self) -> None:
        assert self._pid == os.getpid(), "a forked process must open the file itself"
        if self._closed:
            raise Unavailable(
                f"The {self.contents} is closed: the broker is stopping. Try again on another node, or later."
            )

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        self._check_usable()
        with self._lock.held():
            yield

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        connection.executescript(f"""
            PRAGMA synchronous = {self.synchronous};
            PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES};
            PRAGMA journal_size_limit = {WAL_BYTES_MAX};
            PRAGMA cell_size_check = ON;
            PRAGMA secure_delete = FAST;
        """)
        return connection

    def _migrate(self, connection: sqlite3.Connection) -> None:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > self.schema_version:
            raise DataDirectoryError(
                f"{self._path} was written by a newer version of Rioni (schema {version}, known here: "
                f"{self.schema_version}). Use that version."
            )
        if version == 0:
            connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(f"BEGIN; {self.schema} PRAGMA user_version = {self.schema_version}; COMMIT;")
            fsync_directory(self._path.parent)
        elif steps := [self.upgrades[older] for older in range(version, self.schema_version)]:
            connection.executescript(f"BEGIN; {''.join(steps)} PRAGMA user_version = {self.schema_version}; COMMIT;")

    def _commit(self, connection: sqlite3.Connection) -> None:
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as ex:
            self._fail()
            try:
                self._writer = self._reopen()
            except sqlite3.Error:
                _log.error("the outcome of a write is unknown", file=self._path.name, error=str(ex))
                raise CommitOutcomeUnknown from ex
            # The failed commit is discarded: nothing was written.
            raise self._translation(ex) from ex
        self._committed()

    def _committed(self) -> None:
        """Called after each commit; must not raise."""

    def _fail(self) -> None:
        """Discard the writing connection.

        It must not be closed before there is another one: see `rioni.sql.engines`.
        """
        if self._writer:
            self._failed, self._writer = self._writer, None
            with contextlib.suppress(sqlite3.Error):
                if self._failed.in_transaction:
                    self._failed.execute("ROLLBACK")

    def _reopen(self) -> sqlite3.Connection:
        """Open the file after a failure, so that no part of the failed transaction can reappear."""
        connection = self._open()
        try:
            discard_failed_commit(connection, int(BUSY_TIMEOUT_S * 1000))
        except sqlite3.Error:
            connection.close()
            raise
        if self._failed:
            self._failed.close()
            self._failed = None
        return connection

    def _bound_wal(self, connection: sqlite3.Connection) -> None:
        # Failures here do not affect the transaction, which is durable.
        with contextlib.suppress(sqlite3.Error, OSError):
            if self._wal.stat().st_size > self._wal_bytes_max:
                empty_log(connection, int(BUSY_TIMEOUT_S * 1000))
                # If a reader blocks the checkpoint, don't wait for that reader at every append.
                self._wal_bytes_max = self._wal.stat().st_size + WAL_BYTES_MAX

    def _damaged(self, what: str) -> RioniError:
        return Unavailable(f"The {self.contents} is damaged: {what}. Restore the data directory from a backup.")

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """Raise the broker's errors instead of SQLite's and the system's."""
        try:
            yield
        except sqlite3.Error as ex:
            raise self._translation(ex) from ex
        except UnicodeDecodeError as ex:
            # SQLite quotes the damaged schema in its message, which the driver can't decode.
            raise self._damaged("its schema is damaged") from ex
        except OSError as ex:
            raise Unavailable(
                f"The {self.contents} can't use its files: {ex}. Check disk space and the permissions of the data "
                "directory."
            ) from ex

    def _translation(self, ex: sqlite3.Error) -> RioniError:
        code = getattr(ex, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        if code in _CORRUPT or isinstance(ex, sqlite3.IntegrityError):
            return self._damaged(str(ex))
        if code == sqlite3.SQLITE_FULL:
            return Unavailable(f"The disk is full; nothing was written. {self.full_disk}, then retry.")
        return Unavailable(f"SQLite failed ({ex}); nothing was written. Check the disk and the broker's log.")
