"""Offsets and cursors: the text form of a position, and how positions of one partition compare and count.

Sources: reference cursors#offset-forms. A *position* is the number of an event in one partition of one
timeline, from 0 without gaps; an *offset* is its text, and always names the last event read (exclusive). `BEFORE_FIRST`
is the position before the first event of a timeline.
"""

import re
from typing import NamedTuple

import msgspec

from rioni.domain.errors import InvalidCursor, Unavailable


BEFORE_FIRST = -1
POSITION_MAX = 10**18 - 1
BEGIN = "BEGIN"

_CANONICAL = re.compile(r"00[01]-([0-9a-fA-F]{4})-(-1|[0-9]{1,18})")
_PARTITION = re.compile(r"0|[1-9][0-9]{0,8}")
_LEGACY = re.compile(r"-1|[0-9]{1,18}")


class TimelinePosition(msgspec.Struct, frozen=True, order=True):
    """A position in a partition: the order of a timeline, and the last position read in it."""

    order: int
    position: int

    @property
    def offset(self) -> str:
        """The canonical text, which compares as the place does."""
        return format_offset(self.order, self.position)


class Cursor(msgspec.Struct, frozen=True, kw_only=True):
    """A cursor of a client: a partition and the offset of the last event that it has read."""

    partition: str
    offset: str


def format_offset(order: int, position: int) -> str:
    """Write a place as text: `001-<order, 4 hex digits>-<position, 18 digits>`, `-1` before the first event."""
    if position == BEFORE_FIRST:
        return f"001-{order:04x}--1"
    return f"001-{order:04x}-{position:018d}"


def partition_number(partition: str, count: int) -> int | None:
    """The number of a partition, given its name; None if it is not one of `count` partitions."""
    return int(partition) if _PARTITION.fullmatch(partition) and int(partition) < count else None


def parse_offset(offset: str, *, partition: str, oldest_order: int) -> TimelinePosition | None:
    """Read an offset in any accepted form.

    Args:
        offset: canonical, a plain number in the oldest known timeline, or BEGIN in any case.
        partition: named in the error only.
        oldest_order: the order of the oldest known timeline, which plain numbers refer to.

    Returns:
        The place, or None for BEGIN: the oldest available place is not known here.

    Raises:
        InvalidCursor: the text has another form.
    """
    if canonical := _CANONICAL.fullmatch(offset):
        return TimelinePosition(int(canonical[1], 16), int(canonical[2]))
    if _LEGACY.fullmatch(offset):
        return TimelinePosition(oldest_order, int(offset))
    # Some other letters have ASCII capitals, such as the dotless i.
    if offset.isascii() and offset.upper() == BEGIN:
        return None
    raise InvalidCursor(f"invalid offset {offset} for partition {partition}")


def stored_place(offset: str) -> TimelinePosition:
    """The place of an offset that the broker has stored, in its canonical form.

    Raises:
        Unavailable: it is damaged.
    """
    if canonical := _CANONICAL.fullmatch(offset):
        return TimelinePosition(int(canonical[1], 16), int(canonical[2]))
    raise Unavailable(f"The stored offset {offset!r} is damaged; `rioni verify` reports where it is.")


class EventTypePartition(NamedTuple):
    """A partition of an event type, as clients name it."""

    event_type: str
    partition: str


class Bounds(NamedTuple):
    """Readable range of a partition of a topic."""

    oldest: int
    """The first readable position, or the next one to be written if there is none."""
    newest: int
    """The last written position; `oldest - 1` if the partition is empty."""
