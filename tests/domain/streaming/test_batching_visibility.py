from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.domain.access.authorization import EVERYBODY, UNAUTHENTICATED, Attribute, Subject
from rioni.domain.publishing.headers import NO_HEADERS, Headers
from rioni.domain.streaming.batching import Visibility
from rioni.domain.subscriptions.event_filter import EventFilter
from tests.support.memory import chunk
from tests.support.tables import rows


TEAM = Attribute("team", "red")
RED = Subject(name="red", attributes=frozenset({TEAM}))
BLUE = Subject(name="blue", attributes=frozenset({Attribute("team", "blue")}))
MINE, OTHER = Headers(subscription_id="mine"), Headers(subscription_id="other")


@pytest.mark.parametrize(
    ("headers", "visibility", "visible"),
    rows(
        ("an ordinary event", NO_HEADERS, Visibility(), True),
        ("one with a key", Headers(key="key"), Visibility(), True),
        ("consumer tag: of this subscription", MINE, Visibility(subscription_id="mine"), True),
        ("consumer tag: of another one", OTHER, Visibility(subscription_id="mine"), False),
        ("consumer tag: low-level", MINE, Visibility(), False),
        ("owner: not asked", Headers(owner=TEAM), Visibility(), True),
        ("owner: permits", Headers(owner=TEAM), Visibility(reader=RED), True),
        ("owner: does not", Headers(owner=TEAM), Visibility(reader=BLUE), False),
        ("owner: authentication is off", Headers(owner=TEAM), Visibility(reader=UNAUTHENTICATED), True),
        ("owner: everybody", Headers(owner=EVERYBODY), Visibility(reader=BLUE), True),
        ("owner: none", NO_HEADERS, Visibility(reader=BLUE), True),
        (
            "owner permits, tag of another one",
            Headers(owner=TEAM, subscription_id="other"),
            Visibility(subscription_id="mine", reader=RED),
            False,
        ),
        (
            "own tag, owner does not permit",
            Headers(owner=TEAM, subscription_id="mine"),
            Visibility(subscription_id="mine", reader=BLUE),
            False,
        ),
    ),
)
def test_visibility_depends_on_tags_and_owners(headers: Headers, visibility: Visibility, visible: bool):
    events = [b"1", b"2", b"3"]
    ranges = visibility.ranges(chunk(7, events, headers=[OTHER, headers, OTHER]))
    assert ranges == ([(8, 9)] if visible else [])


def test_chunks_without_headers_are_visible_as_a_whole():
    assert Visibility(subscription_id="mine", reader=BLUE).ranges(chunk(0, [b"1", b"2"])) is None


@given(
    st.lists(st.sampled_from([(b"1", NO_HEADERS), (b"", Headers(key="k")), (b"22", OTHER), (b"333", MINE)]), min_size=1)
)
def test_ranges_of_visible_events_are_as_long_as_possible(events):
    one = chunk(5, [event for event, _ in events], headers=[headers for _, headers in events])
    ranges = Visibility(subscription_id="mine").ranges(one)
    expected = [position for position, (event, headers) in enumerate(events, 5) if event and headers != OTHER]
    if len(expected) == len(events):
        assert ranges is None
        return
    assert [position for start, stop in ranges for position in range(start, stop)] == expected
    assert all(left[1] < right[0] for left, right in pairwise(ranges))


def test_a_filter_hides_events_that_do_not_match():
    events = [b'{"n":%d}' % number for number in range(6)]
    seen = Visibility(wanted=EventFilter("event.n >= 2 && event.n != 4"))
    assert seen.ranges(chunk(10, events)) == [(12, 14), (15, 16)]
    assert seen.ranges(chunk(12, events[2:4])) is None
    assert seen.ranges(chunk(10, events[:2])) == []


def test_a_filter_is_not_evaluated_for_hidden_events():
    events = [b'{"n":0}', b"", b'{"n":0}', b'{"n":1}']
    headers = [OTHER, Headers(key="k"), MINE, NO_HEADERS]
    seen = Visibility(subscription_id="mine", wanted=EventFilter("event.n == 0"))
    assert seen.ranges(chunk(0, events, headers=headers)) == [(2, 3)]
