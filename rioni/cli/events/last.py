"""The last events of an event type, over all partitions."""

from collections import deque
from collections.abc import Callable, Mapping

import msgspec

from rioni.cli.events.merging import by_time
from rioni.cli.events.places import Bounds
from rioni.cli.events.reading import Piece, Range, Reader


def last_events(
    reader: Reader, bounds: Mapping[str, Bounds], count: int, wanted: Callable[[msgspec.Raw], bool]
) -> list[Piece]:
    """The last events that are wanted, each a piece, in the order of the times at which they were received.

    Args:
        reader: of the event type.
        bounds: of the partitions; what comes behind them is not read.
        count: how many at most; two times as many are in memory.
        wanted: says of an event whether it is.
    """
    found: deque[Piece] = deque(maxlen=count)
    for partition, each in bounds.items():
        own = _last_of(reader, partition, each, count, wanted)
        found = deque(by_time([found, own]), maxlen=count)
    return list(found)


def _last_of(
    reader: Reader, partition: str, bounds: Bounds, count: int, wanted: Callable[[msgspec.Raw], bool]
) -> deque[Piece]:
    """Look into growing windows, from the end."""
    locator, to = reader.locator, bounds.newest
    left = locator.distance(partition, bounds.before_oldest, to)
    size = count
    found: deque[Piece] = deque()
    while left > 0 and len(found) < count:
        size = min(size, left)
        after = locator.shifted(partition, to, -size) if size < left else bounds.before_oldest
        window: deque[Piece] = deque(maxlen=count - len(found))
        for piece in reader.read(Range(partition, after, to, size)):
            for index, event in enumerate(piece.events):
                if wanted(event):
                    at = piece.place(index)
                    window.append(Piece(piece.event_type, partition, at, [event], at))
        found.extendleft(reversed(window))
        to, left, size = after, left - size, size * 2
    return found
