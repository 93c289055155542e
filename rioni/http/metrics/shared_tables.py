"""Tables of fixed size that the workers of a node share: publishing by event type, and lags of subscriptions."""

import contextlib
import heapq
import mmap
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.multiprocess import mark_process_dead
from prometheus_client.registry import Collector

from rioni.domain.errors import EventTypeNotFound, SubscriptionNotFound
from rioni.domain.ports.host import Clock
from rioni.domain.subscriptions.lag import Lag
from rioni.domain.subscriptions.subscription import Subscription
from rioni.files.locks import try_lock
from rioni.patches.prometheus_client import allocated


# --- The files in which worker processes share their counts: their disk blocks, and the numbers of the processes ---


def mapped(path: Path, size: int) -> mmap.mmap:
    """Map a file of a fixed size, made if it doesn't exist; memory of this process if the disk has no room."""
    with path.open("a+b") as file:
        if allocated(file, size):
            return mmap.mmap(file.fileno(), size)
    path.unlink()
    return mmap.mmap(-1, size)


# --- Numbers the worker processes of a node for their metrics files; a new worker continues those of a dead one ---
#
# The files of `prometheus_client` are called after process ids by default; those of dead processes would stay until the
# server ends, and be read for every answer.

MULTIPROCESS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable that names the folder in which worker processes share their counts."""
WORKERS_MAX = 1_024

_held: list[Any] = []
"""The locked files of this process; the kernel releases them when it ends."""


def claim_slot(folder: Path) -> int:
    """The lowest number that no living process has; this process keeps it until it ends. Never blocks.

    Raises:
        RuntimeError: `WORKERS_MAX` processes live.
    """
    for slot in range(WORKERS_MAX):
        file = (folder / f"slot_{slot}").open("ab", buffering=0)
        if not try_lock(file.fileno()):
            file.close()
            continue
        file.truncate(0)
        # On a full disk the gauges of this process stay until another one has the number.
        with contextlib.suppress(OSError):
            file.write(str(os.getpid()).encode())
        _held.append(file)
        _drop_gauges(folder, slot)
        return slot
    raise RuntimeError(f"{WORKERS_MAX} processes already write metrics to {folder}")


def release_slot(folder: Path, pid: int) -> None:
    """Drop the gauges of a process that has died; its counts stay."""
    for file in folder.glob("slot_*"):
        if file.read_text() == str(pid):
            _drop_gauges(folder, int(file.name.removeprefix("slot_")))


def _drop_gauges(folder: Path, slot: int) -> None:
    mark_process_dead(slot, str(folder))  # type: ignore[no-untyped-call]  # prometheus_client leaves it out


# --- Counts of publishing by event type, in a table of fixed size that the worker processes of a node share ---
#
# The counters of `prometheus_client` can't forget a label when several processes write them, so creating and deleting
# event types would make them grow without end.

EVENT_TYPES_MAX = 1_000
OTHERS = "(others)"
"""The label of all event types without a row; not a valid name of an event type."""

_METRICS = (
    ("rioni_published_events", "Events stored"),
    ("rioni_published_bytes", "Bytes of publish requests whose events were stored"),
    ("rioni_deleted_events", "Deletions stored"),
    ("rioni_duplicate_events", "Duplicate events that were not stored again"),
    ("rioni_rejected_batches", "Batches of which no event was stored"),
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
            slot: the number of this process, see `rioni.http.metrics.shared_tables`.
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
        """Count for an event type; for `OTHERS` if the table is full. PERF: 1 µs."""
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
        """Yield the sums as counters for `prometheus_client`."""
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


# --- The lags of subscriptions in a table of fixed size: one worker of a node writes it, all of them show it ---
#
# With more subscriptions than rows, those with the largest lags have a row each, and the others one together.

SUBSCRIPTIONS_MAX = 1_000
CHOSEN_EVERY_S = 10.0
"""How long a subscription keeps its row at least."""
READS_MAX = 3
"""The writer needs less than a millisecond, once in 0.7 s."""

_LABELS = ("subscription", "owning_application", "consumer_group")
_VERSION = struct.Struct("<Q")
_HEAD = struct.Struct("<qqqq")
_LAG_ROW = struct.Struct("<36sqq")
_UNKNOWN = -1


class ShownRow(NamedTuple):
    """The contents of the table."""

    as_of_ms: int = 0
    """All changes before this time are included; 0 before the first look."""
    lags: Mapping[str, Lag] = {}
    others: Lag | None = None
    """The sum of events, and the oldest of them, of all further subscriptions; None without any."""


class LagTable(Collector):
    """The table: two halves, one of which is shown while the other one is written."""

    def __init__(self, folder: Path | None, rows: int) -> None:
        """Open the table.

        Args:
            folder: the folder in which all processes share it; None for a process without others.
            rows: the rows of subscriptions that are shown each by itself.
        """
        self._rows = rows
        self._half = _HEAD.size + rows * _LAG_ROW.size
        size = _VERSION.size + 2 * self._half
        self._table: mmap.mmap | bytearray = bytearray(size) if folder is None else mapped(folder / "lags.table", size)
        self._find: Callable[[str], Subscription] | None = None
        self._clock: Clock | None = None
        self._chosen: list[str] = []
        self._others_since_ms: int | None = None
        self._choose_at_s = float("-inf")

    def label_by(self, find: Callable[[str], Subscription], clock: Clock) -> None:
        """Show lags from now on.

        Args:
            find: returns a subscription, or raises SubscriptionNotFound, so that it is not shown.
            clock: gives the time for the age of events.
        """
        self._find, self._clock = find, clock

    def write(self, lags: Mapping[str, Lag], events: int, as_of_ms: int, now_s: float) -> None:
        """Replace the content; for one process at a time. PERF: 1 us for each row, and 2 ms to choose of 10,000.

        Args:
            lags: the lags of all subscriptions.
            events: the sum of their events.
            as_of_ms: see `ShownRow`.
            now_s: on the monotonic clock.
        """
        if now_s >= self._choose_at_s or len(lags) <= self._rows:
            self._choose_at_s = now_s + CHOSEN_EVERY_S
            self._choose(lags)
        shown = [(each, lags[each]) for each in self._chosen if each in lags]
        others = len(lags) - len(shown)
        version = self._version() + 1
        at = _VERSION.size + version % 2 * self._half
        rest = events - sum(lag.events for _, lag in shown)
        _HEAD.pack_into(
            self._table, at, as_of_ms, len(shown), rest if others else _UNKNOWN, _stored(self._others_since_ms)
        )
        at += _HEAD.size
        for subscription_id, lag in shown:
            _LAG_ROW.pack_into(self._table, at, subscription_id.encode(), lag.events, _stored(lag.since_ms))
            at += _LAG_ROW.size
        _VERSION.pack_into(self._table, 0, version)

    def read(self) -> ShownRow:
        """The content. PERF: 1 ms for 1,000 rows."""
        half = b""
        for _ in range(READS_MAX):
            version = self._version()
            at = _VERSION.size + version % 2 * self._half
            half = bytes(self._table[at : at + self._half])
            # The writer begins to overwrite this half when it has finished the next one.
            if self._version() == version:
                break
        as_of_ms, count, others_events, others_since_ms = _HEAD.unpack_from(half)
        rows = _LAG_ROW.iter_unpack(half[_HEAD.size : _HEAD.size + count * _LAG_ROW.size])
        lags = {name.rstrip(b"\0").decode(): Lag(events, _read(since_ms)) for name, events, since_ms in rows}
        others = None if others_events == _UNKNOWN else Lag(others_events, _read(others_since_ms))
        return ShownRow(as_of_ms, lags, others)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The lags, as `prometheus_client` asks for them."""
        shown = self.read()
        if not shown.as_of_ms or self._find is None or self._clock is None:
            return
        now_ms = self._clock.now_ms()
        events = GaugeMetricFamily("rioni_subscription_lag_events", "Unconsumed events", labels=_LABELS)
        seconds = GaugeMetricFamily(
            "rioni_subscription_lag_seconds", "Age of the first unconsumed event, 0 if there is none", labels=_LABELS
        )
        for labels, lag in self._labelled(shown):
            events.add_metric(labels, lag.events)
            if (age_s := lag.seconds(now_ms)) is not None:
                seconds.add_metric(labels, age_s)
        yield events
        yield seconds
        yield GaugeMetricFamily(
            "rioni_subscription_lags_age_seconds",
            "Time since the lags of all subscriptions were up to date",
            max(0.0, (now_ms - shown.as_of_ms) / 1_000),
        )

    def _labelled(self, shown: ShownRow) -> Iterator[tuple[tuple[str, str, str], Lag]]:
        assert self._find is not None
        for subscription_id, lag in shown.lags.items():
            try:
                found = self._find(subscription_id)
            except SubscriptionNotFound:
                continue
            yield (subscription_id, found.owning_application, found.consumer_group), lag
        if shown.others is not None:
            yield (OTHERS, "", ""), shown.others

    def _choose(self, lags: Mapping[str, Lag]) -> None:
        if len(lags) <= self._rows:
            self._chosen, self._others_since_ms = [*lags], None
            return
        self._chosen = heapq.nlargest(self._rows, lags, key=lambda each: lags[each].events)
        chosen = {*self._chosen}
        others = [lag.since_ms for each, lag in lags.items() if lag.since_ms is not None and each not in chosen]
        self._others_since_ms = min(others, default=None)

    def _version(self) -> int:
        (version,) = _VERSION.unpack_from(self._table)
        return int(version)


def _stored(since_ms: int | None) -> int:
    return _UNKNOWN if since_ms is None else since_ms


def _read(since_ms: int) -> int | None:
    return None if since_ms == _UNKNOWN else since_ms
