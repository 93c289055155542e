"""Timeline positions, compared with a plain list of all events ever stored."""

from contextlib import suppress
from itertools import accumulate

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rioni.domain.errors import Invalid, UnavailableCursor
from rioni.domain.subscriptions.cursor_arithmetic import (
    OffsetRanges,
    begin,
    distance,
    end,
    newest,
    offset_ranges_of,
    place_since,
    readable_place,
    shifted,
)
from rioni.domain.timelines.position import Bounds, TimelinePosition
from rioni.domain.timelines.timeline import Timelines
from tests.support.builders import timeline, timelines_of


class History:
    """One partition: the number of events in each of its timelines, and how many of all have expired, oldest first."""

    def __init__(self, lengths: list[int], expired: int, cleaned_up: int) -> None:
        self.lengths = lengths
        self.events = [
            TimelinePosition(order, position) for order, length in enumerate(lengths, 1) for position in range(length)
        ]
        # A timeline that is cleaned up has expired before, as a whole.
        self.cleaned_up = min(cleaned_up, len(lengths) - 1)
        self.expired = max(min(expired, len(self.events)), sum(lengths[: self.cleaned_up]))

    @property
    def places(self) -> list[TimelinePosition]:
        """Every timeline position, including equivalent ones."""
        return [
            TimelinePosition(order, position)
            for order, length in enumerate(self.lengths, 1)
            for position in range(-1, length)
        ]

    @property
    def known(self) -> list[TimelinePosition]:
        return [place for place in self.places if place.order > self.cleaned_up]

    def consumed(self, place: TimelinePosition) -> int:
        """The number of events before a timeline position."""
        return sum(event <= place for event in self.events)

    @property
    def timelines(self) -> Timelines:
        return timelines_of(
            *(
                timeline(
                    order,
                    str(order),
                    latest_position=(length - 1,) if order < len(self.lengths) else None,
                    cleaned_up_at="t" if order <= self.cleaned_up else None,
                )
                for order, length in enumerate(self.lengths, 1)
            )
        )

    @property
    def ranges(self) -> OffsetRanges:
        def bounds(one):
            left = [event.position for event in self.events[self.expired :] if event.order == one.order]
            length = self.lengths[one.order - 1]
            return [Bounds(left[0] if left else length, length - 1)]

        (ranges,) = offset_ranges_of(self.timelines.readable, bounds)
        return ranges


HISTORIES = st.builds(
    History,
    st.lists(st.sampled_from([0, 0, 1, 2, 5]), min_size=1, max_size=5),
    st.one_of(st.just(0), st.integers(0, 12)),
    st.one_of(st.just(0), st.integers(0, 4)),
)


@given(HISTORIES, st.data())
def test_a_distance_is_the_number_of_events_between(history, data):
    initial, final = data.draw(st.sampled_from(history.known)), data.draw(st.sampled_from(history.known))
    expected = history.consumed(final) - history.consumed(initial)
    assert distance(initial, final, history.ranges) == expected
    if initial.order <= final.order:
        assert history.timelines.distance(0, initial, final) == expected


@given(HISTORIES, st.data(), st.integers(-15, 15))
def test_a_shift_is_the_inverse_of_the_distance_or_unreadable(history, data, shift):
    place = data.draw(st.sampled_from(history.known))
    target = history.consumed(place) + shift
    if history.expired <= target <= len(history.events):
        found = shifted(place, shift, history.ranges)
        assert history.consumed(found) == target
        others = [each for each in history.known if history.consumed(each) == target]
        assert found == max(others), "the end of a closed timeline is written as the beginning of the next one"
    else:
        with pytest.raises(Invalid):
            shifted(place, shift, history.ranges)


@given(HISTORIES, st.data())
def test_a_cursor_can_be_read_from_if_the_events_behind_it_are_still_stored(history, data):
    place = data.draw(st.sampled_from(history.places))
    if place in history.known and history.consumed(place) >= history.expired:
        assert readable_place("a", "0", place.offset, [history.ranges]) == place
    else:
        with pytest.raises(UnavailableCursor):
            readable_place("a", "0", place.offset, [history.ranges])


@given(HISTORIES, st.integers(1, 9), st.integers(-1, 9))
def test_positions_that_never_existed_can_not_be_read_from(history, order, position):
    place = TimelinePosition(order, position)
    assume(place not in history.places)
    with pytest.raises(UnavailableCursor):
        readable_place("a", "0", place.offset, [history.ranges])


@given(HISTORIES)
def test_all_events_lie_between_begin_and_the_newest_event(history):
    assert history.consumed(begin(history.ranges)) == history.expired
    assert history.consumed(newest(history.ranges)) == len(history.events)
    assert readable_place("a", "0", "BEGIN", [history.ranges]) == begin(history.ranges)
    at_the_end = history.timelines.newest(0, history.lengths[-1] - 1)
    assert history.consumed(at_the_end) == len(history.events)
    with suppress(IndexError):
        assert at_the_end == [event for event in history.events if event.order > history.cleaned_up][-1]


@given(HISTORIES, st.data(), st.integers(-1, 12))
def test_exactly_the_events_stored_since_a_time_follow_its_position(history, data, since):
    ages = data.draw(st.lists(st.integers(0, 2), min_size=len(history.events), max_size=len(history.events)))
    times = dict(zip(history.events, accumulate(ages), strict=True))

    def first_since(offset_range):
        positions = range(offset_range.oldest, offset_range.newest + 1)
        later = [position for position in positions if times[TimelinePosition(offset_range.order, position)] >= since]
        return min(later, default=offset_range.newest + 1)

    place = place_since(history.ranges, first_since)
    earlier = sum(time < since for time in times.values())
    assert history.consumed(place) == max(earlier, history.expired)
    assert readable_place("a", "0", place.offset, [history.ranges]) == place
    assert history.consumed(end(history.ranges)) == len(history.events)


@given(HISTORIES, st.data())
def test_following_the_timelines_from_a_position_yields_every_later_event_once(history, data):
    after = data.draw(st.sampled_from(history.places))
    met = [
        event
        for one, first in history.timelines.following(0, after)
        for event in history.events
        if event.order == one.order and event.position >= first
    ]
    assert met == [event for event in history.events if event > after and event.order > history.cleaned_up]
