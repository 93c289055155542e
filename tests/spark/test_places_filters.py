"""Bounds hold for exactly the events that the filters admit, whatever timelines they are in."""

import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from rioni.client.ranges import Place
from rioni.spark.places import bounds_of


COMPARISONS = {
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    EqualTo: operator.eq,
}
EVENTS = [Place(order, position) for order in (1, 2, 3) for position in range(4)]
PLACES = st.builds(Place, st.integers(1, 4), st.integers(-1, 9))
WHOLE = ({"a": {"0": Place(1, -1)}}, {"a": {"0": EVENTS[-1]}})


@given(filters=st.lists(st.tuples(st.sampled_from(list(COMPARISONS)), PLACES), max_size=3))
def test_what_is_read_is_what_the_filters_admit(filters):
    bounds, rest = bounds_of([kind(("_offset",), at.offset) for kind, at in filters])
    assert rest == []
    starts, ends = bounds.narrow(*WHOLE)
    after, to = starts["a"]["0"], ends["a"]["0"]
    read = [at for at in EVENTS if after < at <= to and bounds.admits(at)]
    assert read == [at for at in EVENTS if all(COMPARISONS[kind](at.offset, other.offset) for kind, other in filters)]
    assert all(place.position < 4 for place in (after, to) if place <= EVENTS[-1]), (
        "a place behind the end of its timeline can't be read"
    )


@pytest.mark.parametrize(
    "given",
    [
        EqualTo(("amount",), 1),
        GreaterThan(("_offset",), "7"),
        EqualTo(("_offset",), None),
        GreaterThan(("_partition",), "1"),
    ],
    ids=str,
)
def test_other_filters_are_left_to_spark(given):
    bounds, rest = bounds_of([given])
    assert rest == [given]
    assert bounds.narrow(*WHOLE) == WHOLE


def test_partitions_and_event_types_are_chosen():
    bounds, rest = bounds_of([In(("_partition",), ("1", "2")), EqualTo(("_event_type",), "a")])
    assert rest == []
    places = {name: dict.fromkeys("012", EVENTS[0]) for name in "ab"}
    starts, ends = bounds.narrow(places, places)
    assert starts == ends == {"a": {"1": EVENTS[0], "2": EVENTS[0]}}
