"""Samples of the last hour in a table of fixed size: one worker of a node writes it, all of them read it.

A row has the values of all series at one time; the rows are a ring. A series has a column while it is not zero, and for
an hour after that.
"""

import functools
import itertools
import math
import struct
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rioni.http.metrics.metrics_files import mapped


if TYPE_CHECKING:
    import mmap


EVERY_S = 10
SAMPLES = 360
"""An hour."""
SERIES_MAX = 4_000
"""The maximum number of series, each of which takes 3.2 kB, 13 MB in all."""
NAMES_MAX = 5_000
"""Known without decoding them again; each takes 700 bytes, 4 MB in all. PERF: saves 3 of 5 ms of each read."""
READS_MAX = 3
"""The writer needs some milliseconds, every ten seconds."""

_HEAD = struct.Struct("<QQ")
_NAME_BYTES = 352
_TIME = struct.Struct("<q")
_VALUE_BYTES = 8
_SEPARATOR = "\n"
_FREE = bytes(_NAME_BYTES)
_ABSENT = math.nan


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
    """The table."""

    def __init__(self, folder: Path | None, series_max: int = SERIES_MAX) -> None:
        """Open the table; continues the one that a dead process has left.

        Args:
            folder: the folder in which all processes share it; None for a process without others.
            series_max: how many series have a column at the same time; further ones are left out.
        """
        self._columns = series_max
        self._names = _HEAD.size + SAMPLES * _TIME.size
        self._values = self._names + series_max * _NAME_BYTES
        size = self._values + SAMPLES * series_max * _VALUE_BYTES
        self._table: mmap.mmap | bytearray = (
            bytearray(size) if folder is None else mapped(folder / "history.table", size)
        )

    # --- Writing ---

    def write(self, now_ms: int, values: Mapping[Series, float]) -> None:
        """Add a row; for one process at a time. PERF: 1 us for each value, and 30 us for each new series.

        Args:
            now_ms: the time of the values.
            values: by series. Those that are zero have no column of their own unless they had other values. It is not a
                number if there is no value now; series that are left out are removed.
        """
        # Odd while it is written.
        version, rows = _HEAD.unpack_from(self._table)
        version += 1 + version % 2
        _HEAD.pack_into(self._table, 0, version, rows)
        columns = self._known()
        for series in self._outdated(columns, values, rows):
            self._set_name(columns.pop(series), _FREE)
        free = iter([each for each in range(self._columns) if each not in {*columns.values()}])
        row = array("d", [_ABSENT]) * self._columns
        for series, value in values.items():
            if series not in columns and value > 0:
                column = next(free, None)
                if column is None:
                    continue
                columns[series] = column
                self._begin(series, column)
            if series in columns:
                row[columns[series]] = value
        at = rows % SAMPLES
        _TIME.pack_into(self._table, _HEAD.size + at * _TIME.size, now_ms)
        begin = self._values + at * self._columns * _VALUE_BYTES
        self._table[begin : begin + self._columns * _VALUE_BYTES] = row.tobytes()
        _HEAD.pack_into(self._table, 0, version + 1, rows + 1)

    def _outdated(self, columns: Mapping[Series, int], values: Mapping[Series, float], rows: int) -> list[Series]:
        """Series that are gone, and of those whose turn it is, once an hour, the ones that were zero all the time."""
        return [
            series
            for series, column in columns.items()
            if (series.label and series not in values)
            or (column % SAMPLES == rows % SAMPLES and not values.get(series, 0) > 0 and self._is_zero(column))
        ]

    def _is_zero(self, column: int) -> bool:
        return not any(value > 0 for value in self._column(column))

    def _begin(self, series: Series, column: int) -> None:
        """Give a column to a series, without the values of the series that had it before."""
        for row in range(SAMPLES):
            struct.pack_into("<d", self._table, self._values + (row * self._columns + column) * _VALUE_BYTES, _ABSENT)
        self._set_name(column, _SEPARATOR.join(series).encode().ljust(_NAME_BYTES, b"\0"))

    def _set_name(self, column: int, name: bytes) -> None:
        at = self._names + column * _NAME_BYTES
        self._table[at : at + _NAME_BYTES] = name

    # --- Reading ---

    def read(self, wanted: Callable[[Series], bool], series_max: int, *, largest: bool = False) -> tuple[History, int]:
        """The values of some series, and how many there are.

        PERF: 1.5 ms if all columns are used, and 15 us for each series.

        Args:
            wanted: chooses the series.
            series_max: how many are returned at most, those that come first.
            largest: order them by their last value, largest first, instead of by name.
        """
        for _ in range(READS_MAX):
            version, rows = _HEAD.unpack_from(self._table)
            found = self._read(rows, wanted, series_max, largest=largest)
            if _HEAD.unpack_from(self._table) == (version, rows) and not version % 2:
                break
        return found

    def _read(
        self, rows: int, wanted: Callable[[Series], bool], series_max: int, *, largest: bool
    ) -> tuple[History, int]:
        written = [row % SAMPLES for row in range(max(0, rows - SAMPLES), rows)]
        # They are not in the order of writing: the clock may have been set back.
        timed = sorted((_TIME.unpack_from(self._table, _HEAD.size + row * _TIME.size)[0], row) for row in written)
        times_ms, order = [at_ms for at_ms, _ in timed], [row for _, row in timed]
        chosen = sorted((series, column) for series, column in self._known().items() if wanted(series))
        if largest and written:
            last = self._row(written[-1])
            chosen.sort(key=lambda each: -1.0 if math.isnan(last[each[1]]) else last[each[1]], reverse=True)
        values = {}
        for series, column in chosen[:series_max]:
            by_row = self._column(column)
            values[series] = [by_row[row] for row in order]
        return History(times_ms, values), len(chosen)

    def _row(self, row: int) -> Sequence[float]:
        begin = self._values + row * self._columns * _VALUE_BYTES
        return array("d", self._table[begin : begin + self._columns * _VALUE_BYTES])

    def _column(self, column: int) -> Sequence[float]:
        with (
            memoryview(self._table) as whole,
            whole[self._values :] as rest,
            rest.cast("d") as values,
            values[column :: self._columns] as found,
        ):
            return found.tolist()

    def _known(self) -> dict[Series, int]:
        return dict(self._named())

    def _named(self) -> Iterator[tuple[Series, int]]:
        names = bytes(self._table[self._names : self._values])
        for column in itertools.compress(range(self._columns), names[::_NAME_BYTES]):
            yield _series(names[column * _NAME_BYTES : (column + 1) * _NAME_BYTES]), column


@functools.lru_cache(NAMES_MAX)
def _series(name: bytes) -> Series:
    return Series(*name.rstrip(b"\0").decode(errors="replace").split(_SEPARATOR))
