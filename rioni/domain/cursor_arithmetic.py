"""Distances between cursors, and cursors moved by a distance, across the timelines of a partition (consumption 3.3)."""

from collections.abc import Sequence
from typing import NamedTuple

from rioni.domain.cursor import BEFORE_FIRST, Place
from rioni.domain.errors import Invalid


TIMELINE_NOT_FOUND = (
    "Timeline not found. It might happen in case the cursor refers to a timeline that has already expired."
)


class Extent(NamedTuple):
    """What one partition holds in one timeline."""

    order: int
    oldest: int
    """The first position that can be read, or would be."""
    newest: int
    """The last position that was written."""


def distance(initial: Place, final: Place, extents: Sequence[Extent]) -> int:
    """How many positions lie behind `initial` up to and including `final`; negative if `final` comes first.

    Args:
        initial: exclusive.
        final: inclusive.
        extents: of all timelines of the partition, by order.

    Raises:
        Invalid: a place is in none of them.
    """
    return _count(final, extents) - _count(initial, extents)


def shifted(place: Place, shift: int, extents: Sequence[Extent]) -> Place:
    """The place that lies `shift` positions further, or back if it is negative.

    Args:
        place: the last position read.
        shift: how far.
        extents: of all timelines of the partition, by order.

    Raises:
        Invalid: there is no such place: not written yet, expired, or before everything.
    """
    count = _count(place, extents) + shift
    for extent in extents:
        length = extent.newest + 1
        # The end of a closed timeline is written as the beginning of the next one.
        if count < length or extent is extents[-1]:
            position = count + BEFORE_FIRST
            if extent.oldest + BEFORE_FIRST <= position <= extent.newest:
                return Place(extent.order, position)
            break
        count -= length
    raise Invalid(TIMELINE_NOT_FOUND if count < 0 else "The shifted cursor refers to a position that does not exist.")


def _count(place: Place, extents: Sequence[Extent]) -> int:
    """How many positions there ever were up to and including a place."""
    before = 0
    for extent in extents:
        if extent.order == place.order:
            return before + place.position + 1
        before += extent.newest + 1
    raise Invalid(TIMELINE_NOT_FOUND)
