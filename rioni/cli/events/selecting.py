"""Chooses events: by a filter, and up to a limit."""

import threading
from collections.abc import Callable, Iterable, Iterator

import msgspec

from rioni.cli.events.reading import Piece


Wanted = Callable[[msgspec.Raw], bool]


def wanted_by(expression: str | None) -> Wanted:
    """What says of an event whether a filter of subscriptions would let it pass.

    Args:
        expression: in CEL; None for all events.

    Raises:
        Invalid: it is not such an expression, or too expensive.
    """
    if expression is None:
        return lambda _: True
    # PERF: 0.3 s, which only those wait for who have a filter.
    from rioni.domain.subscriptions.event_filter import EventFilter, checked_filter

    checked_filter(expression)
    # A filter must not be used by two threads at the same time.
    own = threading.local()

    def wanted(event: msgspec.Raw) -> bool:
        if not hasattr(own, "matches"):
            own.matches = EventFilter(expression).matches
        return bool(own.matches(bytes(event)))

    return wanted


def selected(pieces: Iterable[Piece], wanted: Wanted) -> Iterator[Piece]:
    """The pieces with those events that are wanted; their progress stays, so there are pieces without events."""
    for piece in pieces:
        yield from _parts(piece, [wanted(event) for event in piece.events])


def _parts(piece: Piece, chosen: list[bool]) -> Iterator[Piece]:
    """Pieces of events that stand together; only the last one reaches as far as the whole."""
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


def limited(pieces: Iterable[Piece], limit: int | None) -> Iterator[Piece]:
    """The pieces up to so many events."""
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
