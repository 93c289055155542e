from array import array

from rioni.domain.ports.event_store import Chunk
from rioni.domain.publishing.headers import NO_HEADERS, Headers
from rioni.domain.streaming.batching import Visibility
from rioni.domain.streaming.messages import Fetch, Run
from rioni.domain.streaming.partition import StreamPartition
from rioni.domain.timelines.position import EventTypePartition, TimelinePosition


KEY = EventTypePartition("order.created", "0")
TOMBSTONE = Headers(key="key")


def chunk(first, *events, headers=None):
    lengths = [len(event) + 1 for event in events]
    ends = array("I", [sum(lengths[: index + 1]) - 1 for index in range(len(events))])
    return Chunk(first, 0, b",".join(events), ends, headers)


def run(*chunks, order=1, expired_unread=0):
    return Run(Fetch(KEY, TimelinePosition(1, -1), 1), order, chunks, expired_unread)


def partition(position=-1):
    return StreamPartition(KEY, TimelinePosition(1, position), 0.0)


def receive(target, answer, *, commits=True):
    return target.receive(answer, Visibility(), commits=commits)


def test_an_empty_answer_means_that_nothing_follows():
    empty = partition(5)
    assert receive(empty, run()) == 0
    assert empty.newest == empty.fetched == TimelinePosition(1, 5)


def test_skipped_events_add_up_and_move_the_sent_position_while_nothing_is_buffered():
    skipping = partition()
    receive(skipping, run(chunk(3, b"1"), expired_unread=2))
    assert (skipping.skipped, skipping.sent) == (5, TimelinePosition(1, 2))
    assert skipping.fetched == TimelinePosition(1, 3)
    receive(skipping, run(chunk(6, b"1", b"2")))
    assert (skipping.skipped, skipping.sent) == (7, TimelinePosition(1, 2)), "an event before them is not sent yet"
    assert skipping.fetched == TimelinePosition(1, 7)
    assert skipping.buffer.count == 3


def test_events_of_the_next_timeline_begin_at_its_first_position():
    switched = partition(9)
    assert receive(switched, run(chunk(0, b"1", b"2"), order=2)) == 0
    assert (switched.skipped, switched.sent) == (0, TimelinePosition(1, 9))
    assert switched.fetched == TimelinePosition(2, 1)


def test_hidden_events_are_counted_and_tracked_for_commits_only():
    headers = [TOMBSTONE, TOMBSTONE, NO_HEADERS, TOMBSTONE]
    answer = run(chunk(0, b"", b"", b"1", b"", headers=headers))
    for commits, tracked in ((True, 3), (False, 0)):
        hiding = partition()
        assert receive(hiding, answer, commits=commits) == 3
        assert hiding.filtered.count == tracked
        assert hiding.buffer.count == 1
