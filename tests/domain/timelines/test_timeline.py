import pytest

from rioni.domain.timelines.position import BEFORE_FIRST, TimelinePosition
from tests.support.builders import NOW, timeline, timelines_of


def closed(order, *latest, **changes):
    return timeline(order, f"topic-{order}", partitions=len(latest), latest_position=latest, **changes)


TIMELINES = timelines_of(
    closed(1, 7, 8, cleaned_up_at=NOW),
    closed(2, 4, BEFORE_FIRST),
    closed(3, *[BEFORE_FIRST] * 2),
    timeline(4, "active"),
)


@pytest.mark.parametrize(
    ("number", "position", "newest"),
    [
        (0, 0, TimelinePosition(4, 0)),
        (0, 9, TimelinePosition(4, 9)),
        (0, BEFORE_FIRST, TimelinePosition(2, 4)),
        (1, BEFORE_FIRST, TimelinePosition(2, BEFORE_FIRST)),
    ],
    ids=["one event", "several events", "the last events are in an earlier timeline", "all events are gone"],
)
def test_the_newest_event_is_in_the_last_timeline_that_has_any(number, position, newest):
    assert TIMELINES.newest(number, position) == newest


def test_of_one_empty_timeline_the_newest_position_is_before_its_first():
    alone = timelines_of(timeline(1, "active"))
    assert alone.newest(0, BEFORE_FIRST) == TimelinePosition(1, BEFORE_FIRST)


@pytest.mark.parametrize(
    ("place", "newest", "beyond"),
    [
        (TimelinePosition(4, 3), TimelinePosition(4, 3), False),
        (TimelinePosition(4, 4), TimelinePosition(4, 3), True),
        (TimelinePosition(2, 9), TimelinePosition(2, 4), False),
        (TimelinePosition(4, BEFORE_FIRST), TimelinePosition(2, 4), False),
        (TimelinePosition(4, 0), TimelinePosition(2, 4), True),
    ],
)
def test_a_place_is_beyond_the_end_if_the_next_event_of_the_active_timeline_comes_before_it(place, newest, beyond):
    assert TIMELINES.is_beyond_end(place, newest) is beyond


@pytest.mark.parametrize(
    ("committed", "newest", "unconsumed"),
    [
        (TimelinePosition(1, 5), TimelinePosition(4, 1), 2 + 5 + 0 + 2),
        (TimelinePosition(2, 9), TimelinePosition(4, 1), 2),
        (TimelinePosition(2, 1), TimelinePosition(2, 4), 3),
        (TimelinePosition(4, 8), TimelinePosition(2, 4), 0),
    ],
    ids=["through all timelines", "more than the timeline held", "none in the active timeline", "beyond the end"],
)
def test_unconsumed_events_are_those_of_all_timelines_behind_a_place(committed, newest, unconsumed):
    assert TIMELINES.unconsumed(0, committed, newest) == unconsumed
