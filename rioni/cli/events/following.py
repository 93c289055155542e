"""Follows the events that are published to an event type from now on."""

import time
from collections.abc import Callable, Generator
from contextlib import closing

from rioni.client import ClientError, PreconditionFailed
from rioni.client.ranges import Piece, Places, Reader


# --- Decides how new events are streamed: each at once, or, if there are many, together ---

BUSY_PER_S = 200
"""PERF: a broker takes three times as much work for events that are sent one by one."""
CALM_PER_S = 50
EVERY_S = 1.0
TOGETHER = 500


class Pace:
    """The size of batches, by the number of events in the last second.

    Args:
        clock: returns seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.batch_limit = 1
        self._clock = clock
        self._since_s = clock()
        self._count = 0

    def changes(self, events: int) -> bool:
        """Count further events; return whether `batch_limit` has changed."""
        self._count += events
        seconds = self._clock() - self._since_s
        if seconds < EVERY_S:
            return False
        rate = self._count / seconds
        self._since_s, self._count = self._clock(), 0
        before = self.batch_limit
        if rate > BUSY_PER_S:
            self.batch_limit = TOGETHER
        elif rate < CALM_PER_S:
            self.batch_limit = 1
        return self.batch_limit != before


# --- Reads new events, in streams that are opened again when they end or break ---

NEW_PARTITIONS_S = 30
"""Seconds between two polls for partitions that were added."""


def follow(reader: Reader, places: Places) -> Generator[Piece, None, None]:
    """Yield the events after some places, for ever; blocks until they come.

    At least every second there is a piece of each partition, perhaps without events. Partitions that are added are
    read from their beginning.

    Args:
        reader: of the event type.
        places: where to begin, by partition.

    Raises:
        ClientError: as `Reader.read`.
    """
    places = dict(places)
    patience, pace = reader.patience(), Pace()
    while True:
        try:
            reader.check_identity()
            with closing(_stream(reader, places, pace)) as pieces:
                for piece in pieces:
                    if piece.is_progress(places[piece.partition]):
                        patience.succeeded()
                    places[piece.partition] = piece.read_to
                    yield piece
            places |= _added(reader, places)
            patience.failed()
        except PreconditionFailed as ex:
            places, _ = reader.skip_expired(places, ex)
        except ClientError as ex:
            patience.failed(ex)


def _stream(reader: Reader, places: Places, pace: Pace) -> Generator[Piece, None, None]:
    """Yield pieces of one stream, which ends when partitions were added, or another pace is better."""
    keep_alives = 0
    places = dict(places)
    with closing(reader.stream(places, pace.batch_limit)) as batches:
        for batch in batches:
            for piece in reader.pieces(places[batch.cursor.partition], batch):
                places[piece.partition] = piece.read_to
                yield piece
            if pace.changes(len(batch.events)):
                return
            keep_alives += not batch.events
            if keep_alives > NEW_PARTITIONS_S * len(places):
                keep_alives = 0
                if _added(reader, places):
                    return


def _added(reader: Reader, places: Places) -> Places:
    bounds = reader.locator.bounds()
    return {name: each.before_oldest for name, each in bounds.items() if name not in places}
