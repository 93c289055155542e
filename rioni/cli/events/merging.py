"""Brings together what is read from several partitions: by time, or as it comes."""

import heapq
import queue
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from rioni.cli.events.reading import Piece
from rioni.domain.timelines.position import TimelinePosition
from rioni.domain.timestamps import time_of


PIECES_MAX = 16
"""Pieces that wait to be processed."""
POLL_S = 0.2
JOIN_S = 3.0
"""For all threads together; one that waits for a broker is not waited for."""

_LONG_AGO = datetime.min.replace(tzinfo=UTC)


class Entry(NamedTuple):
    """An event and its place."""

    event_type: str
    partition: str
    place: TimelinePosition
    event: msgspec.Raw


def entries(pieces: Iterable[Piece]) -> Iterator[Entry]:
    """The events of pieces, one by one."""
    for piece in pieces:
        for index, event in enumerate(piece.events):
            yield Entry(piece.event_type, piece.partition, piece.place(index), event)


def by_time(sources: Sequence[Iterable[Piece]]) -> Generator[Piece, None, None]:
    """Merge partitions by the times at which the broker has received their events; each keeps its own order.

    The sources are read alternately, and a piece of each is in memory. All are closed when one fails.
    """
    with ExitStack() as opened:
        for source in sources:
            if isinstance(source, Generator):
                opened.callback(source.close)
        for _, piece in heapq.merge(*map(_timed, sources), key=lambda timed: timed[0]):
            yield piece


def _timed(pieces: Iterable[Piece]) -> Iterator[tuple[datetime, Piece]]:
    """Pieces of one event each, with times that do not decrease."""
    last = _LONG_AGO
    for piece in pieces:
        for index, event in enumerate(piece.events):
            last = max(last, time_of(event) or last)
            at = piece.place(index)
            # Only with its last event a piece is read to its end.
            is_last = index == len(piece.events) - 1
            yield last, Piece(piece.event_type, piece.partition, at, [event], piece.read_to if is_last else at)
        if not piece.events:
            yield last, piece


def as_they_come(sources: Sequence[Generator[Piece, None, None]], *, threads: int) -> Generator[Piece, None, None]:
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
    found: queue.Queue[Piece | BaseException | None] = queue.Queue(PIECES_MAX)
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
    waiting: Iterator[Generator[Piece, None, None]],
    turn: threading.Lock,
    found: "queue.Queue[Piece | BaseException | None]",
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
    found: "queue.Queue[Piece | BaseException | None]", item: Piece | BaseException | None, stop: threading.Event
) -> bool:
    """Wait for a place in the queue; False where it is no longer read."""
    while not stop.is_set():
        try:
            found.put(item, timeout=POLL_S)
        except queue.Full:
            continue
        return True
    return False
