import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.client.consumption.event_values import events_passed, is_redelivery, of_event, offset_inside


def written(position, timeline=1):
    return f"001-{timeline:04x}-{position:018d}" if position >= 0 else f"001-{timeline:04x}--1"


@given(
    before=st.integers(-1, 1_000),
    gaps=st.lists(st.integers(1, 3), min_size=1, max_size=20),
    handled=st.integers(0, 20),
)
def test_an_offset_inside_a_batch_is_never_behind_what_is_handled(before, gaps, handled):
    handled = min(handled, len(gaps))
    positions = [before + sum(gaps[: n + 1]) for n in range(len(gaps))]
    offset = offset_inside(written(before), handled, written(positions[-1]))
    if before + handled < 0:
        assert offset is None
    else:
        assert written(before) <= offset <= written(positions[handled - 1] if handled else before)
        if set(gaps) == {1}:
            assert offset == written(before + handled)


@given(
    unknown=st.booleans(),
    before=st.integers(-1, 1_000),
    behind=st.integers(0, 3),
    gaps=st.lists(st.integers(1, 2), min_size=1, max_size=20),
)
def test_the_offset_of_an_event_is_its_own_or_not_known(unknown, before, behind, gaps):
    positions = [before + behind + sum(gaps[: n + 1]) for n in range(len(gaps))]
    known = None if unknown else written(before)
    found = [of_event(known, index, len(gaps), written(positions[-1])) for index in range(len(gaps))]
    assert all(offset in {None, written(position)} for offset, position in zip(found, positions, strict=True))
    assert found[-1] == written(positions[-1])
    if not (unknown or behind) and set(gaps) == {1}:
        assert None not in found


def test_the_offset_of_the_last_event_is_known_however_it_is_written():
    assert [of_event("3", index, 2, "5") for index in range(2)] == [None, "5"]


@pytest.mark.parametrize(
    ("before", "end"),
    [
        (None, written(9)),
        ("", written(9)),
        ("BEGIN", written(9)),
        (written(3), written(9, timeline=2)),
        ("3", "9"),
        (written(8), written(9)),
    ],
)
def test_offsets_inside_a_batch_are_not_guessed(before, end):
    assert offset_inside(before, 2, end) is None


@pytest.mark.parametrize(
    ("seen", "count", "end", "expected"),
    [
        (written(4), 1, written(4), True),
        (written(4), 3, written(6), True),
        (written(4), 2, written(6), False),
        (written(4), 2, written(9), False),
        (written(4), 1, written(3), True),
        (written(9), 1, written(0, timeline=2), False),
        (written(0, timeline=2), 1, written(9), True),
        (written(-1), 1, written(0), False),
        (None, 1, written(0), False),
        ("b", 1, "a", False),
        ("a", 1, "a", True),
        ("9", 5, "10", False),
    ],
)
def test_events_that_come_again_are_known_by_their_offsets(seen, count, end, expected):
    assert is_redelivery(seen, count, end) == expected


@given(
    before=st.integers(-1, 100),
    gaps=st.lists(st.integers(1, 3), min_size=1, max_size=20),
    committed=st.integers(-1, 200),
)
def test_no_event_counts_as_committed_that_is_not(before, gaps, committed):
    positions = [before + sum(gaps[: n + 1]) for n in range(len(gaps))]
    count = events_passed(written(committed), len(gaps), written(positions[-1]))
    exact = sum(position <= committed for position in positions)
    assert 0 <= count <= exact
    if set(gaps) == {1} or exact == len(gaps):
        assert count == exact


@pytest.mark.parametrize(("committed", "end"), [("a", "b"), ("9", "5"), (written(9), written(3, timeline=2))])
def test_where_offsets_are_not_understood_nothing_counts_as_committed(committed, end):
    assert events_passed(committed, 2, end) == 0
