"""Timeline positions: reference cursors#offset-order, cursors#available-positions, cursors#arithmetic-requests.

Source: reference cursors#readable-positions.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.domain.errors import Invalid, InvalidCursor
from rioni.domain.subscriptions.cursor_arithmetic import (
    OffsetRange,
    available,
    begin,
    distance,
    end,
    offset_ranges_of,
    readable_place,
    shifted,
)
from rioni.domain.timelines.position import Bounds, TimelinePosition, format_offset
from tests.support.builders import timeline
from tests.support.tables import rows


THREE = [OffsetRange(1, 0, 4), OffsetRange(2, 0, 0), OffsetRange(3, 0, 9)]
"""Timelines of five, one and ten events."""


@pytest.mark.parametrize(
    ("initial", "final", "events"),
    rows(
        ("equal cursors", TimelinePosition(1, 2), TimelinePosition(1, 2), 0),
        ("-1 counts as position -1", TimelinePosition(1, -1), TimelinePosition(1, 4), 5),
        ("backwards", TimelinePosition(1, 4), TimelinePosition(1, 0), -4),
        ("the end of a timeline is the beginning of the next", TimelinePosition(1, 4), TimelinePosition(2, -1), 0),
        ("across timelines", TimelinePosition(1, 3), TimelinePosition(3, 1), 4),
        ("across timelines, backwards", TimelinePosition(3, 1), TimelinePosition(1, 3), -4),
    ),
)
def test_distances_span_timelines(initial, final, events):
    """Reference cursors#timeline-ends, cursors#distances."""
    assert distance(initial, final, THREE) == events


@pytest.mark.parametrize(
    ("place", "shift", "result"),
    rows(
        ("back to the beginning of a timeline", TimelinePosition(3, 1), -2, TimelinePosition(3, -1)),
        ("back into the one before", TimelinePosition(3, 1), -3, TimelinePosition(2, -1)),
        ("to the end of a closed timeline", TimelinePosition(1, 3), 1, TimelinePosition(2, -1)),
        ("across one event", TimelinePosition(1, 3), 2, TimelinePosition(3, -1)),
        ("across timelines", TimelinePosition(1, 3), 3, TimelinePosition(3, 0)),
        ("by nothing", TimelinePosition(1, -1), 0, TimelinePosition(1, -1)),
    ),
)
def test_shifts_cross_timelines(place, shift, result):
    """Reference cursors#shifts."""
    moved = shifted(place, shift, THREE)
    assert distance(place, moved, THREE) == shift
    assert distance(moved, result, THREE) == 0


@pytest.mark.parametrize(
    ("place", "shift", "text"),
    rows(
        ("before the first timeline", TimelinePosition(1, -1), -1, "Timeline not found"),
        ("one too far", TimelinePosition(3, 9), 1, "does not exist"),
        ("far too far", TimelinePosition(1, 0), 100, "does not exist"),
        ("an unknown timeline", TimelinePosition(9, 0), 0, "Timeline not found"),
    ),
)
def test_positions_that_do_not_exist_are_rejected(place, shift, text):
    with pytest.raises(Invalid, match=text):
        shifted(place, shift, THREE)


def test_expired_positions_and_timelines_are_rejected():
    with pytest.raises(Invalid):
        shifted(TimelinePosition(1, 9), -5, [OffsetRange(1, 7, 9)])
    assert shifted(TimelinePosition(1, 9), -3, [OffsetRange(1, 7, 9)]) == TimelinePosition(1, 6)
    with pytest.raises(Invalid, match="Timeline not found"):
        distance(TimelinePosition(7, 0), TimelinePosition(1, 0), THREE)


RETAINED = [[OffsetRange(2, 5, 9), OffsetRange(3, 0, -1), OffsetRange(4, 0, 3)]]
"""One partition: a closed timeline of which five positions are left, an empty one, and the active one."""


@pytest.mark.parametrize(
    ("ranges", "place"),
    rows(
        ("nothing was ever written", [OffsetRange(1, 0, -1), OffsetRange(2, 0, -1)], TimelinePosition(1, -1)),
        ("all events have expired", [OffsetRange(1, 5, 4), OffsetRange(2, 0, -1)], TimelinePosition(2, -1)),
        ("an empty timeline comes first", [OffsetRange(1, 0, -1), OffsetRange(2, 0, 3)], TimelinePosition(2, -1)),
    ),
)
def test_begin_is_resolved_as_in_the_contract(ranges, place):
    """Reference cursors#begin."""
    assert begin(ranges) == place
    assert readable_place("a", "0", place.offset, [ranges]) == place


@pytest.mark.parametrize(
    ("offset", "place"),
    rows(
        ("the newest position", "001-0004-000000000000000003", TimelinePosition(4, 3)),
        ("before the first one", "001-0004--1", TimelinePosition(4, -1)),
        ("in a closed timeline", "001-0002-000000000000000007", TimelinePosition(2, 7)),
        ("one before the oldest", "001-0002-000000000000000004", TimelinePosition(2, 4)),
        ("the end of a closed timeline", "001-0002-000000000000000009", TimelinePosition(2, 9)),
        ("in an empty timeline", "001-0003--1", TimelinePosition(3, -1)),
        ("BEGIN", "begin", TimelinePosition(2, 4)),
    ),
)
def test_reading_can_begin_at_available_positions(offset, place):
    assert readable_place("a", "0", offset, RETAINED) == place


UNAVAILABLE = (
    "offset {} for partition 0 event type a is unavailable as retention time of data elapsed. "
    "PATCH partition offset with valid and available offset"
)
BEHIND_END = (
    ". The partition ends before that, at 001-0004-000000000000000003: was the broker restored from a backup, or the "
    "event type created again?"
)


@pytest.mark.parametrize(
    ("partition", "offset", "text"),
    rows(
        ("unknown partition", "1", "BEGIN", "non existing partition 1"),
        ("unparseable offset", "0", "x", "invalid offset x for partition 0"),
        ("expired", "0", "001-0002-000000000000000003", UNAVAILABLE.format(3)),
        ("too new", "0", "001-0004-000000000000000004", UNAVAILABLE.format(4) + BEHIND_END),
        ("a timeline that is not there yet", "0", "001-0005--1", UNAVAILABLE.format(-1) + BEHIND_END),
        ("too new for a closed timeline", "0", "001-0002-000000000000000010", UNAVAILABLE.format(10)),
        ("deleted timeline", "0", "001-0001-000000000000000000", UNAVAILABLE.format(0)),
        ("a plain number: in a deleted timeline", "0", "8", UNAVAILABLE.format(8)),
        ("a timeline that never was", "0", "001-0000--1", UNAVAILABLE.format(-1)),
    ),
)
def test_reading_cannot_begin_at_unavailable_positions(partition, offset, text):
    """Reference cursors#cursor-errors, cursors#problem-fields, timelines#expired-events."""
    with pytest.raises(InvalidCursor) as caught:
        readable_place("a", partition, offset, RETAINED)
    assert str(caught.value) == text
    if "is unavailable" in text:
        assert caught.value.available == {
            "event_type": "a",
            "partition": "0",
            "oldest_available_offset": "001-0002-000000000000000005",
            "newest_available_offset": "001-0004-000000000000000003",
        }


@given(st.lists(st.integers(0, 5), min_size=1, max_size=5), st.data())
def test_arithmetic_agrees_with_a_plain_list_of_all_events(lengths, data):
    ranges = [OffsetRange(order, 0, length - 1) for order, length in enumerate(lengths, 1)]
    everything = [TimelinePosition(each.order, position) for each in ranges for position in range(each.newest + 1)]
    start = data.draw(st.integers(0, len(everything)))
    end = data.draw(st.integers(0, len(everything)))
    initial = everything[start - 1] if start else TimelinePosition(1, -1)
    final = everything[end - 1] if end else TimelinePosition(1, -1)
    assert distance(initial, final, ranges) == end - start
    assert distance(shifted(initial, end - start, ranges), final, ranges) == 0


def test_partitions_not_known_yet_are_empty():
    """Another server has added them: those of a closed timeline never had events, those of the active one are empty."""
    closed = timeline(1, "old", partitions=2, latest_position=(4, -1))
    found = offset_ranges_of([closed, timeline(2, "new", partitions=2)], lambda _: [Bounds(0, 4)])
    assert found == [[OffsetRange(1, 0, 4), OffsetRange(2, 0, 4)], [OffsetRange(1, 0, -1), OffsetRange(2, 0, -1)]]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=4))
def test_the_beginning_is_the_place_before_the_oldest_available_offset_whatever_was_switched_or_expired(timelines):
    """Reference cursors#shifted-cursors."""
    ranges: list[OffsetRange] = []
    for order, (count, expired) in enumerate(timelines, 1):
        # The oldest events expire first.
        has_events = any(each.oldest <= each.newest for each in ranges)
        ranges.append(OffsetRange(order, 0 if has_events else min(expired, count), count - 1))
    found = shifted(begin(ranges), 0, ranges)
    oldest = available(ranges)["oldest_available_offset"]
    assert format_offset(found.order, found.position + 1) == oldest
    partitions = [ranges]
    assert distance(readable_place("e", "0", found.offset, partitions), begin(ranges), ranges) == 0
    for moved in range(distance(begin(ranges), end(ranges), ranges) + 1):
        assert shifted(shifted(begin(ranges), moved, ranges), -moved, ranges) == found
