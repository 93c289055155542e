"""Reads ranges of partitions: places in an event type, and the events between two of them.

Reading commits nothing. A stream that ends or breaks is opened again after the last event that was read.
"""

import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from typing import NamedTuple, cast

import msgspec

from rioni.client._sync.client import Client
from rioni.client.errors import ClientError, ConnectionFailed, PreconditionFailed, Unprocessable
from rioni.client.retries import Patience
from rioni.wire.events import Batch, Cursor, CursorSpecification


SHIFTS_MAX = 1_000
"""Items of a request for shifted cursors."""
BATCH_EVENTS = 500
EVENTS_MAX = 1_000_000
"""Events of a stream; the next one goes on."""
PIECE_BYTES = 8_000_000
"""The bytes that the events of a piece may have together; if they have more, the following pieces have fewer events."""
FLUSH_TIMEOUT_S = 1
QUIET_MAX = 5
"""Keep-alives in a row, that do not move, after which a range counts as read: other servers do not show it."""

_OFFSET = re.compile(r"(?:00[01]-([0-9a-fA-F]{4})-)?(-1|[0-9]{1,18})")
_PARTITION = re.compile(r"[0-9]{1,9}")
_EXPIRED = re.compile(r"skipped events due to retention time passed, count: ([0-9]+)")


# --- Places in the partitions of an event type ---


class RangeError(ClientError):
    """A range can't be read: it has no such partition or offset, or its event type is another one now."""


class Place(NamedTuple):
    """A place in a partition: a timeline, and the last position that was read in it, -1 before the first one."""

    order: int
    position: int

    @property
    def offset(self) -> str:
        """The offset as the broker writes it; offsets compare as their places do."""
        if self.position < 0:
            return f"001-{self.order:04x}--1"
        return f"001-{self.order:04x}-{self.position:018d}"


Places = dict[str, Place]
"""The last place read, by partition."""


class Bounds(NamedTuple):
    """The places of the first and the last event in a partition."""

    before_oldest: Place
    """The place before the oldest event that can be read."""
    newest: Place


def place(offset: str) -> Place:
    """The place that an offset of a broker names: a plain number is a position in the first timeline.

    Raises:
        RangeError: it is not an offset.
    """
    if (found := _OFFSET.fullmatch(offset)) is None:
        raise RangeError(f"{offset!r:.100} is no offset: write one that the broker shows, or begin or end")
    return Place(int(found[1] or "1", 16), int(found[2]))


class Locator:
    """Finds places in an event type. Methods block until the broker answers, and raise `ClientError`."""

    def __init__(self, client: Client, event_type: str) -> None:
        self.client, self.event_type = client, event_type

    def bounds(self, partitions: Sequence[str] = ()) -> dict[str, Bounds]:
        """Return the bounds of the partitions as they are now.

        Args:
            partitions: only these; by default all.

        Raises:
            RangeError: there is no such partition, or the broker names one that is not a number.
        """
        found = {each.partition: each for each in self.client.partitions.list(self.event_type)}
        for name in found:
            # Names of partitions become parts of requests, and of the state in tables and checkpoints.
            if not _PARTITION.fullmatch(name):
                raise RangeError(
                    f"{self.client.url} names a partition of {self.event_type} {name!r:.100}, which is no number"
                )
        if missing := [name for name in partitions if name not in found]:
            raise RangeError(f"{self.event_type} has no partition {missing[0]}; it has {', '.join(found)}")
        return {
            name: Bounds(_before(place(each.oldest_available_offset)), place(each.newest_available_offset))
            for name, each in found.items()
            if not partitions or name in partitions
        }

    def at(self, partitions: Iterable[str], timestamp: str) -> Places:
        """The place before the first event that was stored at a time, in RFC 3339, or later, in each partition."""
        items = [CursorSpecification(partition=name, timestamp=timestamp) for name in partitions]
        found = self.client.partitions.shift(self.event_type, items)
        return {cursor.partition: place(cursor.offset) for cursor in found}

    def shifted(self, partition: str, at: Place, counts: Sequence[int]) -> list[Place]:
        """The places that are a number of events further than another one; for negative numbers, earlier."""
        found: list[Place] = []
        for first in range(0, len(counts), SHIFTS_MAX):
            items = [
                CursorSpecification(partition=partition, offset=at.offset, shift=count)
                for count in counts[first : first + SHIFTS_MAX]
            ]
            found += [place(each.offset) for each in self.client.partitions.shift(self.event_type, items)]
        return found

    def distance(self, partition: str, after: Place, to: Place) -> int:
        """The number of positions after one place, up to and including another one."""
        if after.order == to.order:
            return to.position - after.position
        pair = (
            CursorSpecification(partition=partition, offset=after.offset),
            CursorSpecification(partition=partition, offset=to.offset),
        )
        return self.client.partitions.distances(self.event_type, [pair])[0].distance


def _before(oldest: Place) -> Place:
    return Place(oldest.order, oldest.position - 1)


# --- Reads the events between two places ---


class Range(NamedTuple):
    """A range of a partition to read."""

    partition: str
    after: Place
    to: Place
    """The place of the last event wanted."""
    positions: int
    """The number of positions between the two."""


class RangePart(NamedTuple):
    """Events at consecutive positions of a partition; without events, only progress."""

    event_type: str
    partition: str
    first: Place
    """The place of the first event."""
    events: Sequence[msgspec.Raw]
    read_to: Place
    """The place up to which everything was read."""
    expired: int = 0
    """Events before these that retention had removed before they were read."""
    removed: int = 0
    """Events before `read_to` that were removed while they were read."""

    def place(self, index: int) -> Place:
        """The place of an event."""
        return Place(self.first.order, self.first.position + index)

    def is_progress(self, after: Place) -> bool:
        """Whether it has events, or more was read than up to a place: the end of a broken stream is no progress."""
        return bool(self.events or self.expired or self.read_to > after)


class Reader:
    """Reads one event type.

    Args:
        client: of the broker.
        event_type: the name.
        created_at: when the event type was created; by default the reader asks for it before each first stream.
        note: shows people a message.
        exact: whether the place of each event matters. The broker names only that of the last event of a batch; if
            there are gaps between its events, they are read again one by one.
        batch_events: of a piece at most; by default 500.
        quiet_max: keep-alives in a row after which a range counts as read.
        patience: makes the object that waits after failures; by default it waits as the client does.
    """

    def __init__(
        self,
        client: Client,
        event_type: str,
        *,
        created_at: datetime | None = None,
        note: Callable[[str], None] = lambda _: None,
        exact: bool = True,
        batch_events: int | None = None,
        quiet_max: int = QUIET_MAX,
        patience: Callable[[], Patience] | None = None,
    ) -> None:
        self.locator = Locator(client, event_type)
        self.event_type = event_type
        self.lost = 0
        """Events that retention has removed before they were read."""
        self.patience = patience or (lambda: Patience(client.pause, note, client.retry_s))
        self._client, self._note, self._exact, self._quiet_max = client, note, exact, quiet_max
        self._batch_events = batch_events or BATCH_EVENTS
        self._created_at, self._is_known = created_at, created_at is not None

    def read(self, part: Range) -> Generator[RangePart, None, None]:
        """The events of a range, in their order; blocks until they come.

        Raises:
            ClientError: the broker refuses, or there is no progress for `retry_s` of the client.
            RangeError: the event type was deleted and created again since the reader began.
        """
        after, count, is_checked = part.after, part.positions, self._is_known
        patience = self.patience()
        while count > 0:
            try:
                if not is_checked:
                    self.check_identity()
                is_checked = False
                with closing(self._range(part, after, count)) as pieces:
                    for piece, is_last in pieces:
                        if piece.is_progress(after):
                            patience.succeeded()
                        after = piece.read_to
                        yield piece
                        if is_last:
                            return
            except PreconditionFailed as ex:
                moved, lost = self.skip_expired({part.partition: after}, ex)
                after = moved[part.partition]
                yield RangePart(self.event_type, part.partition, after, (), min(after, part.to), lost)
            except ClientError as ex:
                patience.failed(ex)
            count = self.locator.distance(part.partition, after, part.to)

    def check_identity(self) -> None:
        """Check that the event type is the one that the reader began with, not one that got its name.

        Raises:
            RangeError: it is another one.
        """
        self._created_at = check_identity(self._client, self.event_type, self._created_at)

    def stream(
        self, places: Mapping[str, Place], batch_limit: int, stream_limit: int = 0, keep_alives: int = 0
    ) -> Generator[Batch, None, None]:
        """Open one stream after some places; the broker ends it after a number of events, or of keep-alives in a row.

        0 means no limit.
        """
        batches = self._client.events(
            self.event_type,
            cursors=[Cursor(partition=name, offset=at.offset) for name, at in places.items()],
            batch_limit=batch_limit,
            stream_limit=stream_limit,
            batch_flush_timeout=FLUSH_TIMEOUT_S,
            stream_keep_alive_limit=keep_alives,
        )
        return cast("Generator[Batch, None, None]", batches)

    def pieces(self, before: Place, batch: Batch) -> Sequence[RangePart]:
        """The events of a batch, which follow a place, with their own places; at least one piece."""
        partition, last, count = batch.cursor.partition, place(batch.cursor.offset), len(batch.events)
        expired = sum(map(int, _EXPIRED.findall(_said(batch))))
        self.lost += expired
        if not count and not expired and _said(batch):
            # The end of a stream: only keep-alives and events report how far it has read.
            return [RangePart(self.event_type, partition, before, (), before)]
        first = Place(last.order, last.position - count + 1)
        consecutive = last.order == before.order and last.position - before.position == count
        if count <= 1 or not self._exact or consecutive:
            return [RangePart(self.event_type, partition, first, batch.events, max(before, last), expired)]
        found = self._one_by_one(partition, before, last, count)
        removed = count - sum(len(piece.events) for piece in found)
        return [*found, RangePart(self.event_type, partition, last, (), last, expired, removed)]

    def skip_expired(self, places: Places, refusal: PreconditionFailed) -> tuple[Places, int]:
        """Places that can be read, if some do not exist any more, and how many events are lost up to there.

        Raises:
            PreconditionFailed: the refusal, if that is not the reason for it.
        """
        bounds = self.locator.bounds()
        moved = {
            name: bounds[name].before_oldest
            for name, after in places.items()
            if name in bounds and after < bounds[name].before_oldest
        }
        if not moved:
            raise refusal
        lost = 0
        for name, to in moved.items():
            try:
                lost += self.locator.distance(name, places[name], to)
            except Unprocessable:
                lost += 1  # the timeline is gone: at least one
        self.lost += lost
        return places | moved, lost

    def _range(self, part: Range, after: Place, count: int) -> Generator[tuple[RangePart, bool], None, None]:
        """Pieces of one stream, each with whether it is the last one of the range."""
        limit = min(count, EVENTS_MAX)
        quiet, delivered, said = 0, 0, ""
        with closing(
            self.stream({part.partition: after}, min(limit, self._batch_events), limit, self._quiet_max)
        ) as batches:
            for batch in batches:
                found = self.pieces(after, batch)
                said = _said(batch)
                quiet = 0 if found[-1].read_to > after or batch.events or said else quiet + 1
                after = found[-1].read_to
                delivered += len(batch.events)
                # The end of a timeline and the beginning of the next one are the same place.
                is_last = after >= part.to or delivered == count or quiet == self._quiet_max
                is_last = is_last or (
                    after.order != part.to.order and self.locator.distance(part.partition, after, part.to) <= 0
                )
                for piece in found:
                    yield _cut(piece, part.to), is_last and piece is found[-1]
                if quiet == self._quiet_max:
                    self._note(f"Partition {part.partition} of {self.event_type} has no events behind {after.offset}.")
                if is_last or delivered == limit or self._reads_smaller(batch):
                    return
        raise self._ended(part.partition, said)

    def _reads_smaller(self, batch: Batch) -> bool:
        """Whether a batch was so large that the next stream should have smaller ones."""
        size, count = sum(map(len, batch.events)), len(batch.events)
        if size <= PIECE_BYTES or count == 1:
            return False
        self._batch_events = max(1, count * PIECE_BYTES // size)
        return True

    def _one_by_one(self, partition: str, before: Place, last: Place, count: int) -> Sequence[RangePart]:
        found: list[RangePart] = []
        quiet, said = 0, ""
        with closing(self.stream({partition: before}, 1, count, self._quiet_max)) as batches:
            for batch in batches:
                at, said = place(batch.cursor.offset), _said(batch)
                if at > last:
                    return found
                if batch.events:
                    found.append(RangePart(self.event_type, partition, at, batch.events, at))
                quiet = 0 if batch.events or said else quiet + 1
        if len(found) < count and quiet < self._quiet_max:
            raise self._ended(partition, said)
        return found

    def _ended(self, partition: str, said: str) -> ConnectionFailed:
        ended = f"{self._client.url} has ended the stream of {self.event_type}, partition {partition}, before its end"
        return ConnectionFailed(f"{ended}: {said}" if said else ended)


def check_identity(client: Client, event_type: str, created_at: datetime | None) -> datetime | None:
    """Check that an event type is the one that was created at a time, if that is given; returns when it was created.

    Raises:
        RangeError: it is another one.
    """
    found = client.event_types.get(event_type).created_at
    if created_at not in {None, found}:
        raise RangeError(f"{event_type} was deleted and created again while it was read; read it anew")
    return found


def _said(batch: Batch) -> str:
    """The reason that the broker gives with a batch, if any."""
    return str((batch.info or {}).get("debug", ""))


def _cut(piece: RangePart, to: Place) -> RangePart:
    """The piece without the events after a place."""
    if piece.read_to <= to:
        return piece
    wanted = sum(piece.place(index) <= to for index in range(len(piece.events)))
    return piece._replace(events=piece.events[:wanted], read_to=to)
