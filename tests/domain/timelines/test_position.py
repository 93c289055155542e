"""Offsets as text: reference cursors#offset-forms, cursors#offset-order.

Source: reference cursors#offsets.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.domain.errors import InvalidCursor
from rioni.domain.timelines.position import POSITION_MAX, TimelinePosition, format_offset, parse_offset
from tests.support.tables import rows


PLACES = st.builds(TimelinePosition, st.integers(1, 0xFFFF), st.integers(-1, POSITION_MAX))


def parse(offset):
    return parse_offset(offset, partition="0", oldest_order=1)


@given(PLACES)
def test_every_timeline_position_can_be_formatted_and_parsed(place):
    assert parse(place.offset) == place


@given(PLACES, PLACES)
def test_offsets_are_ordered_as_their_timeline_positions(left, right):
    assert (left.offset < right.offset) == (left < right)
    assert (left.offset == right.offset) == (left == right)


@pytest.mark.parametrize(
    ("order", "position", "offset"),
    rows(
        ("a position", 1, 123, "001-0001-000000000000000123"),
        ("before the first event", 1, -1, "001-0001--1"),
        ("the order is hexadecimal", 0xAB, 0, "001-00ab-000000000000000000"),
    ),
)
def test_the_form_of_formatted_offsets(order, position, offset):
    """Reference cursors#positions."""
    assert format_offset(order, position) == offset


@pytest.mark.parametrize(
    ("offset", "place"),
    rows(
        ("canonical", "001-0002-000000000000000005", TimelinePosition(2, 5)),
        ("before the first event", "001-0002--1", TimelinePosition(2, -1)),
        ("upper-case order", "001-00AB-000000000000000001", TimelinePosition(0xAB, 1)),
        ("not padded", "001-0001-5", TimelinePosition(1, 5)),
        ("version 000", "000-0001-000000000000000007", TimelinePosition(1, 7)),
        ("plain number: in the oldest timeline", "7", TimelinePosition(1, 7)),
        ("plain -1", "-1", TimelinePosition(1, -1)),
        ("BEGIN", "BEGIN", None),
        ("begin in any case", "bEgIn", None),
    ),
)
def test_the_accepted_forms_of_offsets(offset, place):
    assert parse(offset) == place


@pytest.mark.parametrize(
    "offset",
    rows(
        ("END is none", "END"),
        ("empty", ""),
        ("letters", "abc"),
        ("no position", "001-0001"),
        ("an empty position", "001-0001-"),
        ("before before the first event", "001-0001--2"),
        ("another version", "002-0001-1"),
        ("a fraction", "1.5"),
        ("a digit of another script", "٣"),
        ("19 digits", "1" * 19),
        ("an order of 5 digits", "001-00001-1"),
        ("white space", " 1"),
        ("a line feed", "1\n"),
        ("a plus", "+1"),
        ("a letter whose capital is of ASCII", "beg\u0131n"),
    ),
)
def test_invalid_offsets_are_rejected_by_name(offset):
    with pytest.raises(InvalidCursor) as caught:
        parse(offset)
    assert str(caught.value) == f"invalid offset {offset} for partition 0"
