"""Counts of publishing by event type, in a table of fixed size that the worker processes of a node share.

The counters of `prometheus_client` can't forget a label when several processes write them, so creating and deleting
event types would make them grow without end.
"""

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from rioni.domain.errors import EventTypeNotFound
from rioni.http.metrics.metrics_files import mapped


if TYPE_CHECKING:
    import mmap


EVENT_TYPES_MAX = 1_000
OTHERS = "(others)"
"""The label of all event types without a row; not a valid name of an event type."""

_METRICS = (
    ("rioni_published_events", "Events stored"),
    ("rioni_published_bytes", "Bytes of publish requests whose events were stored"),
    ("rioni_deleted_events", "Deletions stored"),
    ("rioni_duplicate_events", "Duplicate events that were not stored again"),
    ("rioni_rejected_batches", "Batches of which nothing was stored"),
)
_NAME_BYTES = 256
_ROW = struct.Struct(f"<{_NAME_BYTES}p{len(_METRICS)}q")
_COUNTS = struct.Struct(f"<{len(_METRICS)}q")
_FREE = bytes(_ROW.size)
_FILES = "event_types_*.table"


class EventTypeCounts(Collector):
    """Counts of one process, and sums over all processes of the node."""

    def __init__(self, folder: Path | None, slot: int, event_types_max: int) -> None:
        """Open the table of this process; continues the one that a dead process has left.

        Args:
            folder: where all processes have their tables; None for a process without others.
            slot: the number of this process, see `rioni.http.metrics.metrics_slots`.
            event_types_max: rows of the table, with one more for all other event types.
        """
        self._folder = folder
        self._rows = event_types_max + 1
        self._table = self._opened(folder, slot)
        self._row_of = {name: row for row, (name, _) in enumerate(_rows(self._table)) if name}
        self._free = [row for row in range(self._rows - 1, -1, -1) if not self._table[row * _ROW.size]]
        self._counts = {name: self._read(row) for name, row in self._row_of.items()}
        if OTHERS not in self._row_of:
            self._add_row(OTHERS)

    def add(
        self, name: str, *, events: int = 0, bytes_: int = 0, deleted: int = 0, duplicates: int = 0, refused: int = 0
    ) -> None:
        """Count for an event type; for `OTHERS` where the table is full. PERF: 1 µs."""
        if name not in self._row_of:
            if self._free:
                self._add_row(name)
            else:
                name = OTHERS
        counts = self._counts[name]
        for index, more in enumerate((events, bytes_, deleted, duplicates, refused)):
            counts[index] += more
        start = self._row_of[name] * _ROW.size + _NAME_BYTES
        self._table[start : start + _COUNTS.size] = _COUNTS.pack(*counts)

    def forget_deleted(self, find: Callable[[str], object]) -> None:
        """Free the rows of event types that no longer exist: those for which `find` raises EventTypeNotFound."""
        for name in [name for name in self._row_of if name != OTHERS and not _exists(name, find)]:
            row = self._row_of.pop(name)
            del self._counts[name]
            self._table[row * _ROW.size : (row + 1) * _ROW.size] = _FREE
            self._free.append(row)

    def totals(self) -> dict[str, list[int]]:
        """The sums over all processes: for each event type the counts that `add` takes, in that order."""
        totals: dict[str, list[int]] = {}
        for table in self._tables():
            for name, counts in _rows(table):
                if name:
                    before = totals.get(name, [0] * len(_METRICS))
                    totals[name] = [one + other for one, other in zip(before, counts, strict=True)]
        return totals

    def collect(self) -> Iterator[CounterMetricFamily]:
        """The same as `prometheus_client` asks for them."""
        totals = self.totals()
        for index, (metric, description) in enumerate(_METRICS):
            family = CounterMetricFamily(metric, description, labels=["event_type"])
            for name in sorted(totals):
                if totals[name][index]:
                    family.add_metric([name], totals[name][index])
            yield family

    def _opened(self, folder: Path | None, slot: int) -> "mmap.mmap | bytearray":
        if folder is None:
            return bytearray(self._rows * _ROW.size)
        return mapped(folder / f"event_types_{slot}.table", self._rows * _ROW.size)

    def _tables(self) -> Iterator["bytes | bytearray"]:
        if self._folder is None:
            assert isinstance(self._table, bytearray)
            yield self._table
        else:
            for path in self._folder.glob(_FILES):
                yield path.read_bytes()

    def _add_row(self, name: str) -> None:
        row = self._row_of[name] = self._free.pop()
        self._counts[name] = [0] * len(_METRICS)
        self._table[row * _ROW.size : (row + 1) * _ROW.size] = _ROW.pack(name.encode(), *self._counts[name])

    def _read(self, row: int) -> list[int]:
        return list(_ROW.unpack_from(self._table, row * _ROW.size)[1:])


def _exists(name: str, find: Callable[[str], object]) -> bool:
    try:
        find(name)
    except EventTypeNotFound:
        return False
    return True


def _rows(table: "mmap.mmap | bytes | bytearray") -> Iterator[tuple[str, tuple[int, ...]]]:
    """All rows, free ones with an empty name. A row that another process is just writing is read as it is."""
    for name, *counts in _ROW.iter_unpack(bytes(table[:])):
        yield name.decode(errors="replace"), tuple(counts)
