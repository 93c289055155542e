"""Reads partitions of event types together: by time or as events come, the last ones, a search, a tail."""

import heapq
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from rioni.cli.events.selecting import Selection, Wanted, at_time, between, ends, follow, selected, starts
from rioni.client.ranges import Bounds, Place, Places, Range, RangePart, Reader
from rioni.domain.timestamps import time_of


# --- Merges events read from several partitions: by time, or in order of arrival ---

PIECES_MAX = 16
"""Pieces that wait to be processed."""
POLL_S = 0.2
JOIN_S = 3.0
"""Seconds to wait for all threads together; one that waits for a broker is not waited for."""

_LONG_AGO = datetime.min.replace(tzinfo=UTC)


class Entry(NamedTuple):
    """An event and its place."""

    event_type: str
    partition: str
    place: Place
    event: msgspec.Raw


def entries(pieces: Iterable[RangePart]) -> Iterator[Entry]:
    """The events of pieces, one by one."""
    for piece in pieces:
        for index, event in enumerate(piece.events):
            yield Entry(piece.event_type, piece.partition, piece.place(index), event)


def by_time(sources: Sequence[Iterable[RangePart]]) -> Generator[RangePart, None, None]:
    """Merge partitions by the times at which the broker has received their events; each keeps its own order.

    The sources are read alternately, and a piece of each is in memory. All are closed when one fails.
    """
    with ExitStack() as opened:
        for source in sources:
            if isinstance(source, Generator):
                opened.callback(source.close)
        for _, piece in heapq.merge(*map(_timed, sources), key=lambda timed: timed[0]):
            yield piece


def _timed(pieces: Iterable[RangePart]) -> Iterator[tuple[datetime, RangePart]]:
    """Pieces of one event each, with times that do not decrease."""
    last = _LONG_AGO
    for piece in pieces:
        for index, event in enumerate(piece.events):
            last = max(last, time_of(event) or last)
            at = piece.place(index)
            # A piece is completely read only with its last event.
            is_last = index == len(piece.events) - 1
            yield last, RangePart(piece.event_type, piece.partition, at, [event], piece.read_to if is_last else at)
        if not piece.events:
            yield last, piece


def as_they_come(
    sources: Sequence[Generator[RangePart, None, None]], *, threads: int
) -> Generator[RangePart, None, None]:
    """Read sources at the same time; pieces of one source keep their order.

    Args:
        sources: each is read by one thread.
        threads: how many are read at the same time at most.

    Raises:
        Exception: what a source has raised; the others end.
    """
    if len(sources) == 1:
        with closing(sources[0]) as only:
            yield from only
        return
    found: queue.Queue[RangePart | BaseException | None] = queue.Queue(PIECES_MAX)
    stop = threading.Event()
    waiting = iter(sources)
    turn = threading.Lock()
    workers = [
        threading.Thread(target=_work, args=(waiting, turn, found, stop), daemon=True)
        for _ in range(min(threads, len(sources)))
    ]
    for worker in workers:
        worker.start()
    try:
        running = len(workers)
        while running:
            # Without a time-out, Ctrl-C would wait for the next piece.
            try:
                piece = found.get(timeout=POLL_S)
            except queue.Empty:
                continue
            if isinstance(piece, BaseException):
                raise piece
            if piece is None:
                running -= 1
            else:
                yield piece
    finally:
        stop.set()
        until_s = time.monotonic() + JOIN_S
        for worker in workers:
            worker.join(max(0.0, until_s - time.monotonic()))


def _work(
    waiting: Iterator[Generator[RangePart, None, None]],
    turn: threading.Lock,
    found: "queue.Queue[RangePart | BaseException | None]",
    stop: threading.Event,
) -> None:
    try:
        while not stop.is_set():
            with turn:
                source = next(waiting, None)
            if source is None:
                break
            with closing(source):
                for piece in source:
                    if not _put(found, piece, stop):
                        return
        _put(found, None, stop)
    except Exception as ex:  # noqa: BLE001 - raised again by the thread that reads the queue
        _put(found, ex, stop)


def _put(
    found: "queue.Queue[RangePart | BaseException | None]",
    item: RangePart | BaseException | None,
    stop: threading.Event,
) -> bool:
    """Wait for a place in the queue; False if it is no longer read."""
    while not stop.is_set():
        try:
            found.put(item, timeout=POLL_S)
        except queue.Full:
            continue
        return True
    return False


# --- The last events of an event type, over all partitions ---


def last_events(
    reader: Reader, bounds: Mapping[str, Bounds], count: int, wanted: Callable[[msgspec.Raw], bool]
) -> list[RangePart]:
    """The last events that are wanted, each a piece, in the order of the times at which they were received.

    Args:
        reader: of the event type.
        bounds: of the partitions; later events are not read.
        count: how many at most; two times as many are in memory.
        wanted: returns whether an event is wanted.
    """
    found: deque[RangePart] = deque(maxlen=count)
    for partition, each in bounds.items():
        own = _last_of(reader, partition, each, count, wanted)
        found = deque(by_time([found, own]), maxlen=count)
    return list(found)


def _last_of(
    reader: Reader, partition: str, bounds: Bounds, count: int, wanted: Callable[[msgspec.Raw], bool]
) -> deque[RangePart]:
    """Look into growing windows, from the end."""
    locator, to = reader.locator, bounds.newest
    left = locator.distance(partition, bounds.before_oldest, to)
    size = count
    found: deque[RangePart] = deque()
    while left > 0 and len(found) < count:
        size = min(size, left)
        after = locator.shifted(partition, to, [-size])[0] if size < left else bounds.before_oldest
        window: deque[RangePart] = deque(maxlen=count - len(found))
        for piece in reader.read(Range(partition, after, to, size)):
            for index, event in enumerate(piece.events):
                if wanted(event):
                    at = piece.place(index)
                    window.append(RangePart(piece.event_type, partition, at, [event], at))
        found.extendleft(reversed(window))
        to, left, size = after, left - size, size * 2
    return found


# --- Searches all partitions for events, and counts the positions examined ---


@dataclass
class Search:
    """A search.

    Args:
        readers: of the event types.
        selection: where to begin and to end.
        wanted: of which events.
        by_time: whether to find them in the order of the times at which the broker received them.
        threads: partitions that are read at the same time, if the order does not matter.
    """

    readers: Sequence[Reader]
    selection: Selection
    wanted: Wanted
    by_time: bool = False
    threads: int = 4

    total: int = 0
    """The number of positions to examine."""
    _scanned: list[int] = field(default_factory=list)
    """The positions examined so far, for each range, as several threads count."""

    @property
    def scanned(self) -> int:
        """The number of positions that were examined."""
        return sum(self._scanned)

    def run(self) -> Generator[RangePart, None, None]:
        """Yield the events found, and pieces without events for progress; blocks until they come.

        Raises:
            ClientError: a broker refuses, or does not answer for about a minute.
            Invalid: the selection does not fit the event types.
        """
        sources: list[Generator[RangePart, None, None]] = []
        for reader in self.readers:
            bounds = reader.locator.bounds(self.selection.partitions)
            places = starts(reader.locator, bounds, self.selection, from_end=False)
            for part in between(reader.locator, places, ends(reader.locator, bounds, self.selection)):
                self.total += part.positions
                sources.append(self._searched(reader, part, len(sources)))
        self._scanned = [0] * len(sources)
        if self.by_time:
            yield from by_time(sources)
        elif sources:
            with closing(as_they_come(sources, threads=self.threads)) as pieces:
                yield from pieces

    def _searched(self, reader: Reader, part: Range, number: int) -> Generator[RangePart, None, None]:
        """A range; the filter runs in the thread that reads."""
        after = part.after
        with closing(reader.read(part)) as pieces:
            for piece in pieces:
                yield from selected([piece], self.wanted)
                self._scanned[number] += _positions(after, piece)
                after = piece.read_to
        self._scanned[number] = part.positions


def _positions(after: Place, piece: RangePart) -> int:
    if piece.read_to.order == after.order:
        return piece.read_to.position - after.position
    return len(piece.events)


# --- Reads event types from a given place on: stored events, then newly published ones ---


def tailed(
    readers: Sequence[Reader], selection: Selection, wanted: Wanted, *, last: int | None, follows: bool
) -> Generator[RangePart, None, None]:
    """The events of several event types; blocks until they come.

    Args:
        readers: of the event types.
        selection: where to begin and to end.
        wanted: of which events.
        last: begin with this number of existing events, the newest.
        follows: whether to go on with events that are published from now on.

    Raises:
        ClientError: a broker refuses, or does not answer for about a minute.
        Invalid: the selection does not fit the event types.
    """
    bounds = {reader: reader.locator.bounds(selection.partitions) for reader in readers}
    to = {reader: ends(reader.locator, bounds[reader], selection) for reader in readers}
    if last is not None:
        yield from _last(bounds, to, last, wanted)
    else:
        sources = []
        for reader in readers:
            places = starts(reader.locator, bounds[reader], selection, from_end=follows)
            sources += [reader.read(each) for each in between(reader.locator, places, to[reader])]
            to[reader] = {name: max(at, places[name]) for name, at in to[reader].items()}
        with closing(by_time(sources)) as pieces:
            yield from selected(pieces, wanted)
    if follows and selection.is_open:
        with closing(_followed(to, selection.until)) as pieces:
            yield from selected(pieces, wanted)


def _last(
    bounds: Mapping[Reader, Mapping[str, Bounds]], to: Mapping[Reader, Places], count: int, wanted: Wanted
) -> deque[RangePart]:
    found: deque[RangePart] = deque(maxlen=count)
    for reader, partitions in bounds.items():
        up_to = {name: Bounds(each.before_oldest, to[reader][name]) for name, each in partitions.items()}
        found = deque(by_time([found, last_events(reader, up_to, count, wanted)]), maxlen=count)
    return found


def _followed(places: Mapping[Reader, Places], until: datetime | None) -> Generator[RangePart, None, None]:
    """Yield the events after the places, until a time."""
    read_to = {reader.event_type: dict(each) for reader, each in places.items()}
    sources = [follow(reader, each) for reader, each in places.items()]
    with closing(as_they_come(sources, threads=len(sources))) as pieces:
        for piece in pieces:
            if until is not None and datetime.now(UTC) >= until:
                break
            read_to[piece.event_type][piece.partition] = piece.read_to
            yield piece
    if until is None:
        return
    # Read the events that were stored before the end, but have not arrived yet.
    for reader in places:
        at = read_to[reader.event_type]
        to = at_time(reader.locator, reader.locator.bounds(tuple(at)), until)
        yield from by_time([reader.read(each) for each in between(reader.locator, at, to)])
