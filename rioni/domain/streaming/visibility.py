"""Decides which events a stream delivers, and which it skips or leaves out."""

from collections.abc import Mapping, Sequence
from itertools import islice, repeat
from typing import TypeVar

import msgspec

from rioni.domain.access.authorization import Subject, permits
from rioni.domain.breaths import Breaths
from rioni.domain.ports.event_store import Chunk
from rioni.domain.publishing.headers import NO_HEADERS, Headers
from rioni.domain.subscriptions.event_filter import EventFilter


# --- Decides which events a stream delivers and which it skips ---
#
# Source: reference low-level-streams#flushing, streams#hidden-events.


class Visibility(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions that hide events from a stream; tombstones are hidden from all."""

    subscription_id: str | None = None
    """The reading subscription, None for a low-level stream: events for another subscription are hidden."""
    reader: Subject | None = None
    """The subject that the owner of an event must permit; None if owners are not checked."""
    wanted: EventFilter | None = None
    """The subscription's filter."""

    def ranges(self, chunk: Chunk, first: int = 0) -> Sequence[tuple[int, int]] | None:
        """The visible events of a chunk; those before position `first` are ignored.

        PERF: without headers and without a filter nothing is hidden, and no event is evaluated. With a filter it pauses
        periodically, since each event of a chunk may take milliseconds.

        Returns:
            Ranges of positions, the second one after the last event, in order and none of them empty; None for all
            events.
        """
        if chunk.headers is None and self.wanted is None:
            return None
        found: list[tuple[int, int]] = []
        first = max(first, chunk.first)
        skipped = first - chunk.first
        start, begin = first, chunk.ends[skipped - 1] + 1 if skipped else 0
        breathe = Breaths()
        headers = chunk.headers or repeat(NO_HEADERS, len(chunk.ends))
        events = zip(chunk.ends, headers, strict=True)
        for position, (end, each) in enumerate(islice(events, skipped, None), first):
            if end == begin or self._hides(each) or not self._wants(chunk.data[begin:end]):
                if start < position:
                    found.append((start, position))
                start = position + 1
            begin = end + 1
            if self.wanted is not None:
                breathe()
        if start == first:
            return None
        if start < chunk.next:
            found.append((start, chunk.next))
        return found

    def _wants(self, event: bytes) -> bool:
        return self.wanted is None or self.wanted.matches(event)

    def _hides(self, headers: Headers) -> bool:
        if headers.subscription_id is not None and headers.subscription_id != self.subscription_id:
            return True
        return headers.owner is not None and self.reader is not None and not permits((headers.owner,), self.reader)


# --- Streams that examine a limited number of events in a second ---
#
# Source: reference low-level-streams#left-out-events.

K = TypeVar("K")

FRAME_S = 0.1
"""How long such a stream waits between two reads, so that its cost does not grow with the rate of appends."""


class Sampling:
    """Limits the events per second; an unused rest can be used within the next second."""

    def __init__(self, events_per_second: int, now_s: float) -> None:
        """Begin.

        Args:
            events_per_second: the limit; 1 or more.
            now_s: monotonic time, as below.
        """
        self._per_s = events_per_second
        self._left: float = events_per_second
        self._at_s = now_s
        self._turn = 0

    def left_out(self, unread: Mapping[K, int], read: int, now_s: float) -> dict[K, int]:
        """How many of the oldest unread events to leave out, for partitions with too many.

        Partitions with few events lose none to those with many; among equal ones they take turns.

        Args:
            unread: the number of unread events by partition.
            read: how many events were read since the last call.
            now_s: the time.
        """
        self._left = min(self._per_s, self._left - read + self._per_s * (now_s - self._at_s))
        self._at_s = now_s
        waiting = [key for key, count in unread.items() if count > 0]
        self._turn += 1
        begin = self._turn % len(waiting) if waiting else 0
        waiting = sorted(waiting[begin:] + waiting[:begin], key=unread.__getitem__)
        left, left_out = max(0, int(self._left)), {}
        for rest, key in zip(range(len(waiting), 0, -1), waiting, strict=True):
            share = min(unread[key], -(-left // rest))
            left -= share
            if share < unread[key]:
                left_out[key] = unread[key] - share
        return left_out
