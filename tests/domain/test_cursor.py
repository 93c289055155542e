import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.domain.cursor import POSITION_MAX, Place, format_offset, parse_offset
from rioni.domain.errors import InvalidCursor


PLACES = st.builds(Place, st.integers(1, 0xFFFF), st.integers(-1, POSITION_MAX))


def parse(offset):
    return parse_offset(offset, partition="0", oldest_order=1)


@given(PLACES)
def test_every_place_survives_being_written_and_read(place):
    assert parse(place.offset) == place


@given(PLACES, PLACES)
def test_offsets_compare_as_their_places_do(left, right):
    assert (left.offset < right.offset) == (left < right)
    assert (left.offset == right.offset) == (left == right)


@pytest.mark.parametrize(
    ("order", "position", "offset"),
    [(1, 123, "001-0001-000000000000000123"), (1, -1, "001-0001--1"), (0xAB, 0, "001-00ab-000000000000000000")],
)
def test_the_canonical_form(order, position, offset):
    assert format_offset(order, position) == offset


@pytest.mark.parametrize(
    ("offset", "place"),
    [
        ("7", Place(1, 7)),
        ("-1", Place(1, -1)),
        ("001-00AB-000000000000000001", Place(0xAB, 1)),
        ("001-0001-5", Place(1, 5)),
    ],
)
def test_other_accepted_forms(offset, place):
    assert parse(offset) == place


@pytest.mark.parametrize("offset", ["BEGIN", "begin", "Begin"])
def test_begin_is_known_in_any_case(offset):
    assert parse(offset) is None


@pytest.mark.parametrize("offset", ["", "END", "abc", "001-0001", "001-0001-", "001-0001--2", "002-0001-1", "1.5", "٣"])
def test_anything_else_is_refused_by_name(offset):
    with pytest.raises(InvalidCursor) as caught:
        parse(offset)
    assert str(caught.value) == f"invalid offset {offset} for partition 0"
