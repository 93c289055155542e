from rioni.domain.coordination_ports import EventTypePartition
from rioni.domain.cursor import Place, format_offset
from rioni.http.subscription_stats import partitions_of, unconsumed_of
from tests.support.builders import timeline, timelines_of


def test_partitions_are_sorted_as_strings():
    timelines = timelines_of(timeline(1, "topic", partitions=11))
    assert [key.partition for key in partitions_of(timelines)] == ["0", "1", "10", *"23456789"]


def test_what_follows_a_committed_cursor_is_counted_across_timelines_and_never_negative():
    timelines = timelines_of(timeline(1, "a", partitions=3, latest_position=(4, -1, 9)), timeline(2, "b", partitions=3))
    keys = [EventTypePartition("order.created", str(number)) for number in range(3)]
    cursors = {keys[0]: format_offset(1, 1), keys[1]: format_offset(2, 25)}
    newest = [Place(2, 9), Place(2, 0), Place(2, 0)]
    assert unconsumed_of(timelines, newest, cursors) == {keys[0]: 3 + 10, keys[1]: 0}
