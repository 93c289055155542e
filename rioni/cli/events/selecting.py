"""The events that a user selects: ranges of times and offsets, a filter and a limit; follows new events."""

import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import cast

import msgspec

from rioni.client import BadRequest, Batch, ClientError, Cursor, PreconditionFailed, Unprocessable
from rioni.client.ranges import Bounds, Locator, Place, Places, Range, RangePart, Reader, place
from rioni.domain.errors import Invalid
from rioni.domain.texts import nearest
from rioni.domain.timestamps import time_of


# --- The ranges that times, offsets and partitions select ---

CLOCKS_DIFFER = timedelta(minutes=1)
"""The largest difference that is expected between the clocks of a broker and of this machine."""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The selection of the events to read.

    Args:
        partitions: only of these; by default of all.
        since: stored at this time or later.
        until: stored before this time.
        from_offset: the first event wanted, if there is one partition; or `begin`, or `end`.
    """

    partitions: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    from_offset: str | None = None

    def __post_init__(self) -> None:
        if self.since is not None and self.from_offset is not None:
            raise Invalid("A read begins at a time or at an offset: give --since or --from-offset.")
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise Invalid("--since has to be before --until.")
        if self.since is not None and self.since > datetime.now(UTC) + CLOCKS_DIFFER:
            raise Invalid("--since is in the future.")

    @property
    def is_open(self) -> bool:
        """Whether events that are still to be published may be among them."""
        return self.until is None or self.until > datetime.now(UTC)


def starts(locator: Locator, bounds: Mapping[str, Bounds], wanted: Selection, *, from_end: bool) -> Places:
    """The places after which reading begins.

    Args:
        locator: of the event type.
        bounds: of the partitions.
        wanted: the selection.
        from_end: whether to start at the end if the selection has no start.

    Raises:
        Invalid: the offset does not name its partition, or lies beyond the end of the partition.
        RangeError: the offset is malformed.
    """
    if wanted.since is not None:
        return at_time(locator, bounds, wanted.since)
    asked = (wanted.from_offset or ("end" if from_end else "begin")).lower()
    if asked == "begin":
        return {name: each.before_oldest for name, each in bounds.items()}
    if asked == "end":
        return {name: each.newest for name, each in bounds.items()}
    if len(bounds) > 1:
        raise Invalid(f"{asked} is an offset of one partition: name that by --partition.")
    if near := nearest(asked, ("begin", "end")):
        raise Invalid(f"There is no offset {asked}; did you mean {near}?")
    first = place(asked)
    after = Place(first.order, max(first.position - 1, -1))
    for name, each in bounds.items():
        # The next event may be waited for; a later one is that of another broker, or a typo.
        if after > max(each.newest, each.before_oldest):
            raise Invalid(
                f"--from-offset {asked} lies behind the end of partition {name} of {locator.event_type}, which is "
                f"{each.newest.offset}. To begin with what is published from now on, say end."
            )
    return dict.fromkeys(bounds, after)


def ends(locator: Locator, bounds: Mapping[str, Bounds], wanted: Selection) -> Places:
    """The places of the last events wanted, of those that are there now."""
    if wanted.until is not None and not wanted.is_open:
        return at_time(locator, bounds, wanted.until)
    return {name: each.newest for name, each in bounds.items()}


def between(locator: Locator, first: Places, last: Places) -> list[Range]:
    """The ranges between places; those without positions are left out."""
    found = [
        Range(name, after, last[name], locator.distance(name, after, last[name]))
        for name, after in first.items()
        if name in last
    ]
    return [each for each in found if each.positions > 0]


# --- The places that a time names ---

PROBE_S = 1
"""Seconds that a probe for an event's time waits if there is no event."""


def at_time(locator: Locator, bounds: Mapping[str, Bounds], time: datetime) -> Places:
    """The place before the first event that was stored at a time or later, in each partition.

    Servers that know no places by time are asked for the times of single events.

    Args:
        locator: of the event type.
        bounds: of the partitions.
        time: aware of its offset.

    Raises:
        Invalid: neither the server nor the events know times.
    """
    try:
        return locator.at(bounds, time.astimezone(UTC).isoformat(timespec="milliseconds"))
    except (BadRequest, Unprocessable):
        return {name: _searched(locator, name, each, time) for name, each in bounds.items()}


def _searched(locator: Locator, partition: str, bounds: Bounds, time: datetime) -> Place:
    """Bisect, looking for the first event that is not older."""
    first, last = 0, locator.distance(partition, bounds.before_oldest, bounds.newest)
    while first < last:
        middle = (first + last) // 2
        if _is_older(locator, partition, locator.shifted(partition, bounds.before_oldest, [middle])[0], time):
            first = middle + 1
        else:
            last = middle
    return locator.shifted(partition, bounds.before_oldest, [first])[0]


def _is_older(locator: Locator, partition: str, after: Place, time: datetime) -> bool:
    batches = locator.client.events(
        locator.event_type,
        cursors=[Cursor(partition=partition, offset=after.offset)],
        batch_limit=1,
        stream_limit=1,
        batch_flush_timeout=PROBE_S,
        stream_keep_alive_limit=1,
    )
    with closing(cast("Generator[Batch, None, None]", batches)) as opened:
        event = next((event for batch in opened for event in batch.events), None)
    if event is None:
        return False
    found = time_of(event)
    if found is None:
        raise Invalid(
            f"This server finds no places by time, and the events of {locator.event_type} do not say when they were "
            "received. Give offsets instead of times."
        )
    return found < time


# --- Chooses events: by a filter, and up to a limit ---

Wanted = Callable[[msgspec.Raw], bool]


def wanted_by(expression: str | None) -> Wanted:
    """Return a function that returns whether a filter of subscriptions would let an event pass.

    Args:
        expression: in CEL; None for all events.

    Raises:
        Invalid: it is not such an expression, or too expensive.
    """
    if expression is None:
        return lambda _: True
    # PERF: the import takes 0.3 s, for which only users of a filter wait.
    from rioni.domain.subscriptions.event_filter import EventFilter, checked_filter

    checked_filter(expression)
    # A filter must not be used by two threads at the same time.
    own = threading.local()

    def wanted(event: msgspec.Raw) -> bool:
        if not hasattr(own, "matches"):
            own.matches = EventFilter(expression).matches
        return bool(own.matches(bytes(event)))

    return wanted


def selected(pieces: Iterable[RangePart], wanted: Wanted) -> Iterator[RangePart]:
    """The pieces with those events that are wanted; their progress stays, so there are pieces without events."""
    for piece in pieces:
        yield from _parts(piece, [wanted(event) for event in piece.events])


def _parts(piece: RangePart, chosen: list[bool]) -> Iterator[RangePart]:
    """Pieces of adjacent events; only the last one reaches as far as the whole."""
    if all(chosen):
        yield piece
        return
    begin = 0
    while begin < len(chosen):
        end = begin
        while end < len(chosen) and chosen[end]:
            end += 1
        if end > begin:
            last = piece.place(end - 1)
            yield piece._replace(first=piece.place(begin), events=piece.events[begin:end], read_to=last)
        begin = end + 1
    yield piece._replace(events=(), read_to=piece.read_to)


def limited(pieces: Iterable[RangePart], limit: int | None) -> Iterator[RangePart]:
    """The pieces up to `limit` events."""
    left = limit
    for piece in pieces:
        if left is None:
            yield piece
            continue
        if len(piece.events) >= left:
            yield piece._replace(events=piece.events[:left], read_to=piece.place(left - 1))
            return
        left -= len(piece.events)
        yield piece


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


def follow(reader: Reader, places: Places) -> Generator[RangePart, None, None]:
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


def _stream(reader: Reader, places: Places, pace: Pace) -> Generator[RangePart, None, None]:
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
