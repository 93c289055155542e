"""Looks for events in all partitions, and counts the positions that were looked at."""

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from rioni.cli.events.merging import as_they_come, by_time
from rioni.cli.events.ranges import Selection, between, ends, starts
from rioni.cli.events.reading import Piece, Range, Reader
from rioni.cli.events.selecting import Wanted, selected
from rioni.domain.timelines.position import TimelinePosition


@dataclass
class Search:
    """A search.

    Args:
        readers: of the event types.
        selection: where to begin and to end.
        wanted: of which events.
        by_time: whether to find them in the order of the times at which the broker received them.
        threads: partitions that are read at the same time, where the order does not matter.
    """

    readers: Sequence[Reader]
    selection: Selection
    wanted: Wanted
    by_time: bool = False
    threads: int = 4

    total: int = 0
    """Positions that are to be looked at."""
    _scanned: list[int] = field(default_factory=list)
    """Those that were, of each range: several threads count."""

    @property
    def scanned(self) -> int:
        """How many positions were looked at."""
        return sum(self._scanned)

    def run(self) -> Generator[Piece, None, None]:
        """What is found, and pieces without events for progress; blocks until it comes.

        Raises:
            ClientError: a broker refuses, or does not answer for about a minute.
            Invalid: the selection does not fit the event types.
        """
        sources: list[Generator[Piece, None, None]] = []
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

    def _searched(self, reader: Reader, part: Range, number: int) -> Generator[Piece, None, None]:
        """A range; the filter runs in the thread that reads."""
        after = part.after
        with closing(reader.read(part)) as pieces:
            for piece in pieces:
                yield from selected([piece], self.wanted)
                self._scanned[number] += _positions(after, piece)
                after = piece.read_to
        self._scanned[number] = part.positions


def _positions(after: TimelinePosition, piece: Piece) -> int:
    if piece.read_to.order == after.order:
        return piece.read_to.position - after.position
    return len(piece.events)
