"""Reads event types from some place on: what is there, then what is published."""

from collections import deque
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime

from rioni.cli.events.last import last_events
from rioni.cli.events.merging import as_they_come, by_time
from rioni.cli.events.places import Bounds, Places
from rioni.cli.events.ranges import Selection, between, ends, starts
from rioni.cli.events.reading import Piece, Reader
from rioni.cli.events.selecting import Wanted, selected


def tailed(
    readers: Sequence[Reader], selection: Selection, wanted: Wanted, *, last: int | None, follow: bool
) -> Generator[Piece, None, None]:
    """The events of several event types; blocks until they come.

    Args:
        readers: of the event types.
        selection: where to begin and to end.
        wanted: of which events.
        last: begin with so many events of those that are there.
        follow: whether to go on with what is published from now on.

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
            places = starts(reader.locator, bounds[reader], selection, from_end=follow)
            sources += [reader.read(each) for each in between(reader.locator, places, to[reader])]
            to[reader] = {name: max(at, places[name]) for name, at in to[reader].items()}
        with closing(by_time(sources)) as pieces:
            yield from selected(pieces, wanted)
    if follow and selection.is_open:
        with closing(_followed(to, selection.until)) as pieces:
            yield from selected(pieces, wanted)


def _last(
    bounds: Mapping[Reader, Mapping[str, Bounds]], to: Mapping[Reader, Places], count: int, wanted: Wanted
) -> deque[Piece]:
    found: deque[Piece] = deque(maxlen=count)
    for reader, partitions in bounds.items():
        up_to = {name: Bounds(each.before_oldest, to[reader][name]) for name, each in partitions.items()}
        found = deque(by_time([found, last_events(reader, up_to, count, wanted)]), maxlen=count)
    return found


def _followed(places: Mapping[Reader, Places], until: datetime | None) -> Generator[Piece, None, None]:
    """What comes behind the places, until a time."""
    read_to = {reader.event_type: dict(each) for reader, each in places.items()}
    sources = [reader.follow(each) for reader, each in places.items()]
    with closing(as_they_come(sources, threads=len(sources))) as pieces:
        for piece in pieces:
            if until is not None and datetime.now(UTC) >= until:
                break
            read_to[piece.event_type][piece.partition] = piece.read_to
            yield piece
    if until is None:
        return
    # What was stored before the end, but has not come yet.
    for reader in places:
        at = read_to[reader.event_type]
        to = reader.locator.at(reader.locator.bounds(tuple(at)), until)
        yield from by_time([reader.read(each) for each in between(reader.locator, at, to)])
