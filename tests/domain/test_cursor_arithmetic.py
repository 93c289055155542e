import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.domain.cursor import Place
from rioni.domain.cursor_arithmetic import Extent, distance, shifted
from rioni.domain.errors import Invalid


THREE = [Extent(1, 0, 4), Extent(2, 0, 0), Extent(3, 0, 9)]
"""Timelines of five, one and ten events."""


@pytest.mark.parametrize(
    ("initial", "final", "events"),
    [
        (Place(1, 2), Place(1, 2), 0),
        (Place(1, -1), Place(1, 4), 5),
        (Place(1, 4), Place(1, 0), -4),
        (Place(1, 4), Place(2, -1), 0),
        (Place(1, 3), Place(3, 1), 4),
        (Place(3, 1), Place(1, 3), -4),
    ],
)
def test_distances_span_timelines(initial, final, events):
    assert distance(initial, final, THREE) == events


@pytest.mark.parametrize(
    ("place", "shift", "result"),
    [
        (Place(3, 1), -2, Place(3, -1)),
        (Place(3, 1), -3, Place(2, -1)),
        (Place(1, 3), 1, Place(2, -1)),
        (Place(1, 3), 2, Place(3, -1)),
        (Place(1, 3), 3, Place(3, 0)),
        (Place(1, -1), 0, Place(1, -1)),
    ],
)
def test_shifts_cross_timelines(place, shift, result):
    moved = shifted(place, shift, THREE)
    assert distance(place, moved, THREE) == shift
    assert distance(moved, result, THREE) == 0


@pytest.mark.parametrize(("place", "shift"), [(Place(1, -1), -1), (Place(3, 9), 1), (Place(1, 0), 100)])
def test_what_does_not_exist_is_refused(place, shift):
    with pytest.raises(Invalid):
        shifted(place, shift, THREE)


def test_expired_positions_and_timelines_are_refused():
    with pytest.raises(Invalid):
        shifted(Place(1, 9), -5, [Extent(1, 7, 9)])
    assert shifted(Place(1, 9), -3, [Extent(1, 7, 9)]) == Place(1, 6)
    with pytest.raises(Invalid, match="Timeline not found"):
        distance(Place(7, 0), Place(1, 0), THREE)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=5), st.data())
def test_they_agree_with_a_plain_list_of_all_events(lengths, data):
    extents = [Extent(order, 0, length - 1) for order, length in enumerate(lengths, 1)]
    everything = [Place(extent.order, position) for extent in extents for position in range(extent.newest + 1)]
    start = data.draw(st.integers(0, len(everything)))
    end = data.draw(st.integers(0, len(everything)))
    initial = everything[start - 1] if start else Place(1, -1)
    final = everything[end - 1] if end else Place(1, -1)
    assert distance(initial, final, extents) == end - start
    assert distance(shifted(initial, end - start, extents), final, extents) == 0
