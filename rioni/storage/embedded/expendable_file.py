"""SQLite files whose content may be lost: a damaged one is moved aside and made anew, at a start and while in use."""

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import structlog

from rioni.domain.errors import RioniError, Unavailable
from rioni.storage.embedded.data_directory import DataDirectoryError, set_aside
from rioni.storage.embedded.sqlite_file import SQLiteFile


_log = structlog.get_logger("rioni.storage")

_SIDES = ("-wal", "-shm")


class Damaged(Unavailable):
    """The file is damaged, and is made anew."""


class ExpendableFile(SQLiteFile):
    """One process's connections to a file that may be lost; locking: see `SQLiteFile`.

    A call that finds the file damaged raises Unavailable, and the next one finds an empty file. Processes that have the
    damaged file open notice that it was replaced before their next call.
    """

    def __init__(self, path: Path) -> None:
        """Open the file, making it anew if it is damaged; blocks on the disk.

        Raises:
            Unavailable: the file can't be made.
        """
        self._opened: tuple[int, int] | None = None
        """Device and number of the open file."""
        for each in (path, *(Path(f"{path}{side}") for side in ("-lock", *_SIDES))):
            if each.is_dir():
                set_aside(each)
        try:
            self._open_first(path)
        except (Damaged, DataDirectoryError) as ex:
            with self._lock.held():
                self._set_aside(str(ex))
            self._open_first(path)

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Open a transaction; see `SQLiteFile`."""
        self._follow()
        with self._renewing(), super().writing() as connection:
            yield connection

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Provide a connection for reading; see `SQLiteFile`."""
        self._follow()
        with self._renewing(), super().reading() as connection:
            yield connection

    def check(self) -> None:
        """Read the whole file, and make it anew if it is damaged; blocks on the disk."""
        with contextlib.suppress(Damaged), self.reading() as connection:
            found = [text for (text,) in connection.execute("PRAGMA quick_check(1)")]
            if found != ["ok"]:
                raise self._damaged(found[0])

    def _open_first(self, path: Path) -> None:
        super().__init__(path)
        try:
            with self.reading() as connection:
                found = _columns(connection)
        except BaseException:
            self.close()
            raise
        if found != self._wanted():
            self.close()
            raise self._damaged(f"it has the tables {sorted(found)}")
        self._opened = _identity(path)

    def _wanted(self) -> Mapping[str, Sequence[str]]:
        with contextlib.closing(sqlite3.connect(":memory:")) as connection:
            connection.executescript(self.schema)
            return _columns(connection)

    @contextlib.contextmanager
    def _renewing(self) -> Iterator[None]:
        try:
            yield
        except Damaged as ex:
            # While the file is opened for the first time, the caller renews it.
            if self._opened is not None:
                self._renew(str(ex))
            raise

    def _follow(self) -> None:
        """Use the file that has taken the place of a damaged one."""
        if self._opened is not None and not self._closed and _identity(self._path) != self._opened:
            self._renew("another process has replaced it")

    def _renew(self, reason: str) -> None:
        with self._translated(), self._lock.held():
            if _identity(self._path) == self._opened or self._path.is_dir():
                self._set_aside(reason)
            for each in (self._failed, self._writer):
                if each is not None:
                    each.close()
            self._failed = self._writer = None
            while self._readers:
                self._readers.pop().close()
            # Connections that others use now are returned to the old list, and are not used again.
            self._readers = []
            connection = self._open()
            try:
                self._migrate(connection)
            except BaseException:
                connection.close()
                raise
            self._writer = connection
            self._opened = _identity(self._path)

    def _set_aside(self, reason: str) -> None:
        kept = set_aside(self._path, quietly=True)
        for side in _SIDES:
            set_aside(Path(f"{self._path}{side}"), quietly=True)
        _log.warning("a file that may be lost was damaged; made anew", file=self._path.name, reason=reason, kept=kept)

    def _damaged(self, what: str) -> RioniError:
        return Damaged(f"The {self.contents} is damaged: {what}. It may be lost, and is made anew: try again.")

    def _translation(self, ex: sqlite3.Error) -> RioniError:
        # A statement of ours that fails for itself meets tables that are not ours.
        code = getattr(ex, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        return self._damaged(str(ex)) if code == sqlite3.SQLITE_ERROR else super()._translation(ex)


def _columns(connection: sqlite3.Connection) -> Mapping[str, Sequence[str]]:
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'index')")]
    return {name: [row[1] for row in connection.execute(f'PRAGMA table_xinfo("{name}")')] for name in names}


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - PERF: it is called for each use of the file, 1 us
    except OSError:
        return None
    return found.st_dev, found.st_ino
