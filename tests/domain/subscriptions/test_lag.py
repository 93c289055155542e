import pytest

from rioni.domain.subscriptions.lag import Lag, cursor_errors, partitions_of, unconsumed_of
from rioni.domain.timelines.position import EventTypePartition, TimelinePosition, format_offset
from tests.support.builders import timeline, timelines_of


KEY = EventTypePartition("order.created", "0")


def test_partitions_are_sorted_as_strings():
    timelines = timelines_of(timeline(1, "topic", partitions=11))
    assert [key.partition for key in partitions_of(timelines)] == ["0", "1", "10", *"23456789"]


def test_events_behind_a_committed_cursor_are_counted_across_timelines_and_never_negative():
    """Reference subscriptions#unconsumed-events."""
    timelines = timelines_of(timeline(1, "a", partitions=3, latest_position=(4, -1, 9)), timeline(2, "b", partitions=3))
    keys = [EventTypePartition("order.created", str(number)) for number in range(3)]
    cursors = {keys[0]: format_offset(1, 1), keys[1]: format_offset(1, 25)}
    newest = [TimelinePosition(2, 9), TimelinePosition(2, 0), TimelinePosition(2, 0)]
    assert unconsumed_of(timelines, newest, cursors) == {keys[0]: 3 + 10, keys[1]: 1}


@pytest.mark.parametrize(
    ("committed", "newest", "unconsumed"),
    [
        ((1, 4), TimelinePosition(2, -1), 0),
        ((2, -1), TimelinePosition(1, 4), 0),
        ((1, 4), TimelinePosition(1, 4), 0),
        ((1, 2), TimelinePosition(1, 4), 2),
        ((2, 3), TimelinePosition(2, 3), 0),
    ],
)
def test_the_end_of_a_closed_timeline_is_the_beginning_of_the_next_one(committed, newest, unconsumed):
    """Reference cursors#timeline-ends."""
    timelines = timelines_of(timeline(1, "a", latest_position=(4,)), timeline(2, "b"))
    cursors = {KEY: format_offset(*committed)}
    assert unconsumed_of(timelines, [newest], cursors) == {KEY: unconsumed}
    assert cursor_errors(timelines, [newest], cursors) == {}


@pytest.mark.parametrize(
    ("committed", "newest"),
    [
        ((2, 4), TimelinePosition(2, 3)),
        ((2, 10**17), TimelinePosition(2, 3)),
        ((2, 0), TimelinePosition(1, 4)),
        ((3, -1), TimelinePosition(2, 3)),
    ],
)
def test_a_cursor_beyond_the_last_event_is_named_and_has_no_lag(committed, newest):
    """Reference subscriptions#cursors-beyond-the-end."""
    timelines = timelines_of(timeline(1, "a", latest_position=(4,)), timeline(2, "b"))
    cursors = {KEY: format_offset(*committed)}
    assert unconsumed_of(timelines, [newest], cursors) == {}
    (text,) = cursor_errors(timelines, [newest], cursors).values()
    assert text.startswith(f"The committed cursor {cursors[KEY]} of event type order.created, partition 0, is beyond")
    assert newest.offset in text


@pytest.mark.parametrize(
    ("lag", "seconds"),
    [(Lag(0), 0), (Lag(5), 0), (Lag(5, None), None), (Lag(5, 8_001), 1), (Lag(5, 8_000), 2), (Lag(5, 11_000), 0)],
)
def test_the_age_of_the_first_unconsumed_event_is_in_whole_seconds(lag, seconds):
    """Reference operations#lag-metrics."""
    assert lag.seconds(10_000) == seconds
