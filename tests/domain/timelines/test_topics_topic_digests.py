"""Different records have different digests, even where their bytes joined are the same."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.domain.timelines.position import BEFORE_FIRST
from rioni.domain.timelines.timeline import TimelineCleanedUp, TimelineDigested, TimelinesRepartitioned, evolve
from rioni.domain.timelines.topics import BlockDigest
from tests.support.builders import timeline, timelines_of


NAME = "order.created"
POSITIONS = st.integers(0, 2**62)
BYTES = st.none() | st.binary(max_size=3)
HEADERS = st.lists(st.tuples(st.text("ab", max_size=2), BYTES), max_size=2)
RECORDS = st.lists(st.tuples(POSITIONS, POSITIONS, BYTES, BYTES, HEADERS), max_size=3)


def digest(records):
    block = BlockDigest(0, 0)
    for record in records:
        block.add(*record)
    return block.end(9).digest


@given(RECORDS, RECORDS)
def test_digests_are_equal_only_for_equal_records(one, other):
    assert (digest(one) == digest(other)) == (one == other)


def test_the_boundaries_of_fields_are_part_of_the_digest():
    record = (0, 0, b"a", b"b", [("c", b"d")])
    records = [
        record,
        (0, 0, b"ab", b"", [("c", b"d")]),
        (0, 0, b"a", b"b", [("cd", b"")]),
        (0, 0, b"a", b"b", [("cd", None)]),
        (0, 0, b"a", b"b", []),
        (0, 0, None, b"ab", []),
        (1, 0, b"a", b"b", [("c", b"d")]),
        (0, 1, b"a", b"b", [("c", b"d")]),
    ]
    blocks = [[each] for each in records] + [[record, record], []]
    assert len({digest(each) for each in blocks}) == len(blocks)


# --- what the log has digests of ---


def closed(*latest):
    return timelines_of(
        timeline(1, "closed", partitions=len(latest), latest_position=latest), timeline(2, "active", partitions=2)
    )


@pytest.mark.parametrize(
    ("latest", "done", "left"),
    [
        ((4, BEFORE_FIRST), [], {0: range(5)}),
        ((4, 2), [], {0: range(5), 1: range(3)}),
        ((4, 2), [(5, 0)], {1: range(3)}),
        ((4, 2), [(2, 0), (5, 1)], {1: range(1, 3)}),
        ((4, 2), [(5, 3)], {}),
        ((4, 2), [(3,)], {0: range(3, 5), 1: range(3)}),
        ((BEFORE_FIRST,), [], {}),
    ],
)
def test_digests_are_folded_to_the_positions_that_have_none(latest, done, left):
    state = closed(*latest)
    for positions in done:
        event = TimelineDigested(event_type=NAME, order=1, storage="k", topic="closed", blocks=(), next=positions)
        state = evolve(state, event)
    assert state.undigested(state.timelines[0]) == left
    assert state.undigested(state.active) == {}
    more = evolve(state, TimelinesRepartitioned(event_type=NAME, partitions=5))
    assert more.undigested(more.timelines[0]) == left
    cleaned = evolve(more, TimelineCleanedUp(event_type=NAME, order=1, cleaned_up_at="t"))
    assert cleaned.digested == {}


def test_the_positions_of_different_timelines_are_kept_apart():
    state = timelines_of(*(timeline(order, str(order), latest_position=(3,)) for order in (1, 2)), timeline(3, "3"))
    for order, next_ in itertools.product((1, 2), (1, 2)):
        event = TimelineDigested(event_type=NAME, order=order, storage="k", topic="t", blocks=(), next=(next_ + order,))
        state = evolve(state, event)
    assert state.digested == {1: (3,), 2: (4,)}
