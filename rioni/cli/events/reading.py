"""Reads ranges of partitions, and follows new events, by low-level streams: nothing is committed.

Streams that end or break are opened again after the last event read. Events that retention removed before they could
be read are counted.
"""

import re
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple, cast

import msgspec

from rioni.cli.events.places import Locator, Places, place
from rioni.client import Batch, Client, ClientError, Cursor, PreconditionFailed, Unprocessable
from rioni.client.retries import RETRY_AFTER_MAX_S, RETRY_S, backoff_s, may_help
from rioni.domain.errors import Invalid
from rioni.domain.timelines.position import TimelinePosition


if TYPE_CHECKING:
    from datetime import datetime


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


# --- Retries when a stream breaks: with growing pauses, and not for ever ---

PATIENCE_S = RETRY_S
"""Seconds without progress for which it is tried again, as by clients: an outage of a minute is no error."""
FAILURES_SILENT = 3
"""The number of failures in a row after which people are informed, once."""


class Patience:
    """Counts failures in a row.

    Args:
        note: informs people of the reason for the delay.
        sleep: waits a number of seconds.
        now_s: the time, from any moment on.
    """

    def __init__(
        self,
        note: Callable[[str], object],
        sleep: Callable[[float], object] = time.sleep,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._note, self._sleep, self._now_s = note, sleep, now_s
        self._failures, self._since_s = 0, 0.0

    def succeeded(self) -> None:
        """There was progress."""
        self._failures = 0

    def failed(self, ex: ClientError | None = None) -> None:
        """Wait before the next attempt.

        Args:
            ex: why it failed; None if the broker ended a stream without a reason.

        Raises:
            ClientError: this error, if no further attempt would help, or there was no progress for `PATIENCE_S`.
        """
        now_s = self._now_s()
        if not self._failures:
            self._since_s = now_s
        self._failures += 1
        if ex is not None and (not may_help(ex, again=True) or now_s >= self._since_s + PATIENCE_S):
            raise ex
        if ex is not None and self._failures == FAILURES_SILENT:
            self._note(f"{ex}. Trying again ...")
        asked_s = getattr(ex, "retry_after_s", None) or 0.0
        self._sleep(max(backoff_s(self._failures, 1.0), min(asked_s, RETRY_AFTER_MAX_S)))


BATCH_EVENTS = 500
EVENTS_MAX = 1_000_000
"""Events of a stream; the next one goes on."""
PIECE_BYTES = 8_000_000
"""The bytes that the events of a piece may have together; if they have more, the following pieces have fewer events."""
FLUSH_TIMEOUT_S = 1
QUIET_MAX = 5
"""Keep-alives in a row, that do not move, after which a range counts as read: other servers do not show it."""
NEW_PARTITIONS_S = 30
"""Seconds between two polls for partitions that were added."""

_EXPIRED = re.compile(r"skipped events due to retention time passed, count: ([0-9]+)")


class Range(NamedTuple):
    """A range of a partition to read."""

    partition: str
    after: TimelinePosition
    to: TimelinePosition
    """The place of the last event wanted."""
    positions: int
    """The number of positions between the two."""


class Piece(NamedTuple):
    """Events at consecutive positions of a partition; without events, only progress."""

    event_type: str
    partition: str
    first: TimelinePosition
    """The place of the first event."""
    events: Sequence[msgspec.Raw]
    read_to: TimelinePosition
    """The place up to which everything was read."""

    def place(self, index: int) -> TimelinePosition:
        """The place of an event."""
        return TimelinePosition(self.first.order, self.first.position + index)


class Reader:
    """Reads one event type.

    Args:
        client: of the broker.
        event_type: the name.
        note: shows people a message.
        exact: whether the place of each event matters. The broker names only that of the last event of a batch; if
            there are gaps between its events, they are read again one by one.
        batch_events: of a piece at most.
        sleep: waits a number of seconds before the next attempt.
    """

    def __init__(
        self,
        client: Client,
        event_type: str,
        *,
        note: Callable[[str], None] = lambda _: None,
        exact: bool = True,
        batch_events: int = BATCH_EVENTS,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.locator = Locator(client, event_type)
        self.event_type = event_type
        self.lost = 0
        """Events that retention has removed before they were read."""
        self._client, self._note, self._exact, self._batch_events = client, note, exact, batch_events
        self._sleep = sleep
        self._created_at: datetime | None = None

    def read(self, part: Range) -> Generator[Piece, None, None]:
        """The events of a range, in their order; blocks until they come.

        Raises:
            ClientError: the broker refuses, or does not answer for two minutes.
            Invalid: the event type was deleted and created again since the reader began.
        """
        after, count = part.after, part.positions
        patience = Patience(self._note, self._sleep)
        while count > 0:
            try:
                self._check_identity()
                with closing(self._range(part, after, count)) as pieces:
                    for piece, is_last in pieces:
                        after = piece.read_to
                        patience.succeeded()
                        yield piece
                        if is_last:
                            return
                patience.failed()
            except PreconditionFailed as ex:
                after = self._behind_expired({part.partition: after}, ex)[part.partition]
            except ClientError as ex:
                patience.failed(ex)
            count = self.locator.distance(part.partition, after, part.to)

    def follow(self, places: Places) -> Generator[Piece, None, None]:
        """Yield the events after some places, for ever; blocks until they come.

        At least every second there is a piece of each partition, perhaps without events. Partitions that are added are
        read from their beginning.

        Args:
            places: where to begin, by partition.

        Raises:
            ClientError: as `read`.
            Invalid: as `read`.
        """
        places = dict(places)
        patience, pace = Patience(self._note, self._sleep), Pace()
        while True:
            try:
                self._check_identity()
                with closing(self._follow(places, pace)) as pieces:
                    for piece in pieces:
                        places[piece.partition] = piece.read_to
                        patience.succeeded()
                        yield piece
                places |= self._added(places)
                patience.failed()
            except PreconditionFailed as ex:
                places |= self._behind_expired(places, ex)
            except ClientError as ex:
                patience.failed(ex)

    def _check_identity(self) -> None:
        """Check before each stream that offsets are those of this event type, not of one that had its name."""
        created_at = self._client.event_types.get(self.event_type).created_at
        self._created_at = self._created_at or created_at
        if created_at != self._created_at:
            raise Invalid(f"{self.event_type} was deleted and created again while it was read; read it anew.")

    def _range(self, part: Range, after: TimelinePosition, count: int) -> Generator[tuple[Piece, bool], None, None]:
        """Pieces of one stream, each with whether it is the last one of the range."""
        limit = min(count, EVENTS_MAX)
        quiet = delivered = 0
        with closing(self._stream({part.partition: after}, min(limit, self._batch_events), limit)) as batches:
            for batch in batches:
                pieces = self._pieces(after, batch)
                moved = pieces[-1].read_to > after
                after = pieces[-1].read_to
                delivered += len(batch.events)
                quiet = 0 if moved else quiet + 1
                # The end of a timeline and the beginning of the next one are the same place.
                is_last = after >= part.to or delivered == count or quiet == QUIET_MAX
                is_last = is_last or (after.order != part.to.order and self._is_end(part, after))
                for piece in pieces:
                    yield _cut(piece, part.to), is_last and piece is pieces[-1]
                if quiet == QUIET_MAX:
                    self._note(f"Partition {part.partition} of {self.event_type} has no events behind {after.offset}.")
                if is_last or self._reads_smaller(batch):
                    return

    def _reads_smaller(self, batch: Batch) -> bool:
        """Whether a batch was so large that the next stream should have smaller ones."""
        size, count = sum(map(len, batch.events)), len(batch.events)
        if size <= PIECE_BYTES or count == 1:
            return False
        self._batch_events = max(1, count * PIECE_BYTES // size)
        return True

    def _is_end(self, part: Range, after: TimelinePosition) -> bool:
        return self.locator.distance(part.partition, after, part.to) <= 0

    def _follow(self, places: Places, pace: Pace) -> Generator[Piece, None, None]:
        """Yield pieces of one stream, which ends when partitions were added, or another pace is better."""
        keep_alives = 0
        places = dict(places)
        with closing(self._stream(places, pace.batch_limit)) as batches:
            for batch in batches:
                for piece in self._pieces(places[batch.cursor.partition], batch):
                    places[piece.partition] = piece.read_to
                    yield piece
                if pace.changes(len(batch.events)):
                    return
                keep_alives += not batch.events
                if keep_alives > NEW_PARTITIONS_S * len(places):
                    keep_alives = 0
                    if self._added(places):
                        return

    def _stream(self, places: Places, batch_limit: int, stream_limit: int = 0) -> Generator[Batch, None, None]:
        batches = self._client.events(
            self.event_type,
            cursors=[Cursor(partition=name, offset=at.offset) for name, at in places.items()],
            batch_limit=batch_limit,
            stream_limit=stream_limit,
            batch_flush_timeout=FLUSH_TIMEOUT_S,
        )
        return cast("Generator[Batch, None, None]", batches)

    def _pieces(self, before: TimelinePosition, batch: Batch) -> Sequence[Piece]:
        """The events of a batch with their places; at least one piece."""
        partition, last, count = batch.cursor.partition, place(batch.cursor.offset), len(batch.events)
        self.lost += sum(map(int, _EXPIRED.findall(str((batch.info or {}).get("debug", "")))))
        first = TimelinePosition(last.order, last.position - count + 1)
        consecutive = last.order == before.order and last.position - before.position == count
        if count > 1 and self._exact and not consecutive:
            return self._one_by_one(partition, before, last, count)
        return [Piece(self.event_type, partition, first, batch.events, max(before, last))]

    def _one_by_one(
        self, partition: str, before: TimelinePosition, last: TimelinePosition, count: int
    ) -> Sequence[Piece]:
        found = []
        with closing(self._stream({partition: before}, 1, count)) as batches:
            for batch in batches:
                at = place(batch.cursor.offset)
                if at > last:
                    break
                if batch.events:
                    found.append(Piece(self.event_type, partition, at, batch.events, at))
        # Events removed meanwhile, by compaction or retention, are missing.
        return [*found, Piece(self.event_type, partition, last, (), last)]

    def _added(self, places: Places) -> Places:
        bounds = self.locator.bounds()
        return {name: each.before_oldest for name, each in bounds.items() if name not in places}

    def _behind_expired(self, places: Places, refusal: PreconditionFailed) -> Places:
        """Places that can be read, if some do not exist any more; raises the refusal if that is not the reason."""
        bounds = self.locator.bounds()
        moved = {
            name: bounds[name].before_oldest
            for name, after in places.items()
            if name in bounds and after < bounds[name].before_oldest
        }
        if not moved:
            raise refusal
        for name, to in moved.items():
            try:
                self.lost += self.locator.distance(name, places[name], to)
            except Unprocessable:
                self.lost += 1  # the timeline is gone: at least one
        return places | moved


def _cut(piece: Piece, to: TimelinePosition) -> Piece:
    """The piece without the events after a place."""
    if piece.read_to <= to:
        return piece
    wanted = sum(piece.place(index) <= to for index in range(len(piece.events)))
    return piece._replace(events=piece.events[:wanted], read_to=to)
