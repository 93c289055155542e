"""Samples of the last hour in an SQLite table: one worker of a node writes it, all of them read it.

The samples are a ring of rows, and a point is the value of a series in one of them. A series is kept while it is not
zero, and for an hour after that.
"""

import contextlib
import math
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import structlog

from rioni.domain.errors import Unavailable
from rioni.sql.engines import use_write_ahead_log


EVERY_S = 10
SAMPLES = 360
"""An hour."""
SERIES_MAX = 4_000
"""The maximum number of series, each of which takes 13 kB, 52 MB in all."""
WAIT_S = 1.0
"""Maximum wait for another writer: two of them are at work only while one takes over from the other."""
OPEN_S = 10.0
"""Maximum time for opening: workers that start together make the file together."""

_FILE = "history.sqlite"
"""Not `.db`, as the files of prometheus_client are called."""
_SCHEMA = """
PRAGMA journal_size_limit = 4194304;
CREATE TABLE IF NOT EXISTS samples (slot INTEGER PRIMARY KEY, number INTEGER NOT NULL, at_ms INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS series (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, label TEXT NOT NULL, value TEXT NOT NULL,
    positive INTEGER NOT NULL,
    UNIQUE (name, label, value)
);
CREATE TABLE IF NOT EXISTS points (
    series INTEGER NOT NULL REFERENCES series ON DELETE CASCADE, slot INTEGER NOT NULL, value REAL,
    PRIMARY KEY (slot, series)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS points_of_series ON points (series);
"""
"""`number` counts the samples, `positive` is the last one in which the series was above zero."""
_log = structlog.get_logger("rioni.server")


class Series(NamedTuple):
    """The name of a series, and its label if it has one."""

    name: str
    label: str = ""
    value: str = ""


class History(NamedTuple):
    """Values of series, oldest first."""

    times_ms: Sequence[int]
    values: Mapping[Series, Sequence[float]]
    """The values of each series; NaN if there was no value at a time."""


class HistoryTable:
    """The table. Its calls block on SQLite, and may come from any thread."""

    def __init__(self, folder: Path | None, series_max: int = SERIES_MAX) -> None:
        """Open the table; continues the one that a dead process has left.

        Args:
            folder: the folder in which all processes share it; None for a process without others.
            series_max: how many series are kept at the same time; further ones are left out.
        """
        self._series_max = series_max
        own = f"file:/rioni-history-{id(self)}?vfs=memdb"
        self._url = own if folder is None else (folder / _FILE).as_uri()
        try:
            self._kept = self._opened()
        except sqlite3.Error as ex:
            _log.warning("other workers do not show the history of metrics that this one writes", error=str(ex))
            self._url = own
            self._kept = self._opened()

    def _opened(self) -> sqlite3.Connection:
        """Make the tables; a connection stays open, so that SQLite keeps the memory and the write-ahead log."""
        connection = self._connect()
        use_write_ahead_log(connection, OPEN_S)
        connection.executescript(_SCHEMA)
        return connection

    def write(self, now_ms: int, values: Mapping[Series, float]) -> None:
        """Add a sample; for one process at a time. Without room on the disk the sample is lost.

        Args:
            now_ms: the time of the values.
            values: by series. Those that are zero are not kept unless they had other values. It is not a number if
                there is no value now; series that are left out are removed.
        """
        try:
            with contextlib.closing(self._connect()) as connection, connection:
                connection.execute("BEGIN IMMEDIATE")
                self._add(connection, now_ms, values)
        except sqlite3.Error as ex:
            _log.warning("a sample of the metrics is missing in their history", error=str(ex))

    def _add(self, connection: sqlite3.Connection, now_ms: int, values: Mapping[Series, float]) -> None:
        (number,) = connection.execute("SELECT coalesce(max(number), 0) + 1 FROM samples").fetchone()
        slot = number % SAMPLES
        found = _known(connection)
        known = {series: each for series, each in found.items() if not series.label or series in values}
        gone = [(each,) for series, each in found.items() if series not in known]
        connection.executemany("DELETE FROM series WHERE id = ?", gone)
        new = [(*series, number) for series, value in values.items() if value > 0 and series not in known]
        room = max(0, self._series_max - len(known))
        connection.executemany("INSERT INTO series (name, label, value, positive) VALUES (?, ?, ?, ?)", new[:room])
        known = _known(connection) if new else known
        connection.execute("INSERT OR REPLACE INTO samples VALUES (?, ?, ?)", (slot, number, now_ms))
        # SQLite writes NULL for NaN.
        points = [(each, slot, values.get(series)) for series, each in known.items()]
        connection.executemany("INSERT OR REPLACE INTO points VALUES (?, ?, ?)", points)
        positive = [(number, each) for each, _, value in points if value is not None and value > 0]
        connection.executemany("UPDATE series SET positive = ? WHERE id = ?", positive)
        connection.execute("DELETE FROM series WHERE positive <= ?", (number - SAMPLES,))

    def read(self, wanted: Callable[[Series], bool], series_max: int, *, largest: bool = False) -> tuple[History, int]:
        """The values of some series, and how many there are.

        Args:
            wanted: chooses the series.
            series_max: how many are returned at most, those that come first.
            largest: order them by their last value, largest first, instead of by name.

        Raises:
            Unavailable: the file can't be read.
        """
        try:
            return self._read(wanted, series_max, largest=largest)
        except sqlite3.Error as ex:
            raise Unavailable(f"The history of metrics can't be read: {ex}. Try again later.") from ex

    def _read(self, wanted: Callable[[Series], bool], series_max: int, *, largest: bool) -> tuple[History, int]:
        with contextlib.closing(self._connect()) as connection, connection:
            connection.execute("BEGIN")
            # They are not in the order of writing: the clock may have been set back.
            samples = connection.execute("SELECT slot, at_ms, number FROM samples ORDER BY at_ms, number").fetchall()
            chosen = sorted((series, each) for series, each in _known(connection).items() if wanted(series))
            matched = len(chosen)
            if largest and samples:
                newest = max(samples, key=lambda sample: sample[2])[0]
                last = dict(connection.execute("SELECT series, value FROM points WHERE slot = ?", (newest,)))
                chosen.sort(key=lambda each: -1.0 if last.get(each[1]) is None else last[each[1]], reverse=True)
            values = {}
            for series, each in chosen[:series_max]:
                points = dict(connection.execute("SELECT slot, value FROM points WHERE series = ?", (each,)))
                found = [points.get(slot) for slot, _, _ in samples]
                values[series] = [math.nan if value is None else value for value in found]
        return History([at_ms for _, at_ms, _ in samples], values), matched

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._url, uri=True, timeout=WAIT_S, isolation_level=None, check_same_thread=False)
        # The table ends with the broker: nothing is lost with the machine that is still needed.
        connection.executescript("PRAGMA synchronous = off; PRAGMA foreign_keys = on")
        return connection


def _known(connection: sqlite3.Connection) -> dict[Series, int]:
    rows = connection.execute("SELECT name, label, value, id FROM series")
    return {Series(*names): number for *names, number in rows}
