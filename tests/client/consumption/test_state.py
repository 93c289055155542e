"""A consumer's events, commits and messages; `test_state_properties.py` tests what holds in every history."""

import msgspec
import pytest

from rioni.client import Batch, Cursor, EventBatch
from rioni.client.consumption.events import BROKEN_MARGIN_S, StreamPartition
from rioni.client.consumption.lanes import Assigned
from rioni.client.consumption.options import Options
from rioni.client.consumption.state import ELSEWHERE, ENDED, FAILED, RETRY_PAUSE_S, SILENT, STOPPED, ConsumptionState
from tests.support.subscription_model import offset_of


BEGIN = {StreamPartition("e", name): offset_of(-1) for name in "01"}


class Consumer:
    """The state of a consumer with an open stream, and short names for what happens to it."""

    def __init__(self, committed=BEGIN, **options):
        self.state = ConsumptionState(Options(**options), None, self.mark)
        self.session = self.state.opened("stream", committed, 0.0)
        self.next_batch = None

    def mark(self, batch, count):
        self.state.handled(batch, count)

    def receive(self, partition, first, last=None, now_s=0.0, info=None, session=None):
        """Events from one position to another; without the second a keep-alive at the first."""
        cursor = Cursor(
            event_type="e", partition=partition, offset=offset_of(first if last is None else last), cursor_token="t"
        )
        events = [] if last is None else [msgspec.Raw(b"%d" % n) for n in range(first, last + 1)]
        self.state.received(session or self.session, Batch(cursor=cursor, events=events, info=info), now_s)

    def take(self):
        """The next batch, after assignments and revocations."""
        self.told()
        batch, self.next_batch = self.next_batch, None
        return batch

    def told(self):
        """The messages that the application gets next, up to the next batch."""
        told = []
        while self.next_batch is None and (item := self.state.take()) is not None:
            if isinstance(item, EventBatch):
                self.next_batch = item
            else:
                told.append(("+" if isinstance(item, Assigned) else item.reason, item.progress.partition.partition))
                self.state.release(item)
        return told

    def handle(self, batch, count=None):
        batch.handled = len(batch) if count is None else count
        self.state.release(batch)

    def next_after(self, batch):
        """Put a batch down as it is, and take the next one."""
        self.state.release(batch)
        return self.take()

    def due(self, now_s):
        """The commits that are due: partition and position, None for a heartbeat."""
        commit = self.state.due(now_s)
        return commit and [
            (cut.progress.partition.partition, cut.cursor and int(cut.cursor.offset[-18:])) for cut in commit.cuts
        ]

    def commit(self, now_s):
        self.state.committed(self.state.due(now_s), now_s)


# --- handing out ---


def test_partitions_take_turns_and_have_one_batch_in_hand():
    consumer = Consumer()
    for partition, first in (("0", 0), ("0", 1), ("0", 2), ("1", 0)):
        consumer.receive(partition, first, first)
    first, second = consumer.take(), consumer.take()
    assert [(batch.partition, batch.cursor.offset[-1]) for batch in (first, second)] == [("0", "0"), ("1", "0")]
    assert consumer.take() is None
    consumer.handle(first)
    third = consumer.take()
    assert (third.partition, third.cursor.offset[-1]) == ("0", "1")


def test_a_partition_stays_in_order_across_streams():
    """Events in hand from the last stream are finished before the next one's are handed out."""
    consumer = Consumer()
    consumer.receive("0", 0, 1)
    old = consumer.take()
    consumer.state.closed(consumer.session, 1.0, orderly=True)
    consumer.receive("0", 0, 1, session=consumer.state.opened("next", BEGIN, 2.0))
    assert consumer.take() is None
    assert old.dropped
    consumer.handle(old, 1)
    assert [event.raw for event in consumer.take()] == [b"0", b"1"]


def test_events_that_come_again_replace_what_waits():
    consumer = Consumer()
    consumer.receive("0", 0, 1)
    consumer.receive("0", 2, 3)
    consumer.receive("0", 0, 2)
    assert consumer.told() == [("+", "0")]
    assert [event.raw for event in consumer.take()] == [b"0", b"1", b"2"]
    assert consumer.take() is None


def test_memory_is_bounded_even_if_the_broker_does_not_keep_to_the_window():
    consumer = Consumer(max_uncommitted_events=10, batch_limit=5)
    consumer.receive("0", 0, 24)
    assert consumer.state.has_room(consumer.session)
    consumer.receive("1", 0, 0)
    assert not consumer.state.has_room(consumer.session)


# --- commits ---


def test_whole_batches_are_committed_at_once():
    consumer = Consumer()
    for first in (0, 2, 4):
        consumer.receive("0", first, first + 1)
    assert consumer.due(1.0) is None
    consumer.handle(consumer.take())
    consumer.handle(consumer.take())
    assert consumer.due(1.0) == [("0", 3)]
    consumer.commit(1.0)
    assert consumer.due(1.1) is None


def test_commits_pause_for_a_moment_so_that_they_have_several_batches():
    consumer = Consumer()
    for first in (0, 2):
        consumer.receive("0", first, first + 1)
    consumer.handle(consumer.take())
    consumer.commit(1.0)
    consumer.handle(consumer.take())
    assert consumer.due(1.0) is None
    assert consumer.due(1.1) == [("0", 3)]


@pytest.mark.parametrize("policy", ["batch", "interval"])
def test_a_window_that_fills_is_committed_without_a_pause(policy):
    consumer = Consumer(commit=policy, max_uncommitted_events=16)
    for first in (0, 2, 4):
        consumer.receive("0", first, first + 1)
    consumer.handle(consumer.take())
    assert consumer.due(0.0) is None
    consumer.handle(consumer.take())
    assert consumer.due(0.0) == [("0", 3)]


def test_by_interval_everything_is_committed_together():
    consumer = Consumer(commit="interval", commit_interval_s=5)
    for partition in "01":
        consumer.receive(partition, 0, 1)
        consumer.handle(consumer.take())
    assert consumer.due(4.9) is None
    assert consumer.state.due_at_s(1.0) == 5
    assert consumer.due(5.0) == [("0", 1), ("1", 1)]
    consumer.commit(5.0)
    consumer.receive("0", 2, 3)
    consumer.handle(consumer.take())
    assert consumer.due(9.9) is None
    assert consumer.due(10.0) == [("0", 3)]


def test_manual_commits_are_what_the_application_marks():
    consumer = Consumer(commit="manual")
    consumer.receive("0", 0, 3)
    consumer.receive("0", 4, 7)
    first, second = consumer.take(), None
    consumer.state.release(first)
    second = consumer.take()
    assert consumer.due(1.0) is None
    list(second)[1].commit()
    assert consumer.due(1.0) == [("0", 5)]
    consumer.commit(1.0)
    assert not consumer.state.handled(first, 4)
    assert not consumer.state.handled(second, 2)
    second.commit()
    assert consumer.due(2.0) == [("0", 7)]


def test_a_commit_that_could_not_be_made_is_due_again():
    consumer = Consumer()
    consumer.receive("0", 0, 1)
    consumer.handle(consumer.take())
    consumer.state.not_committed(consumer.state.due(1.0), 1.0)
    assert consumer.due(1.0) is None
    assert consumer.due(1.0 + RETRY_PAUSE_S) == [("0", 1)]


def test_a_stream_that_ended_long_ago_is_not_committed_for_ever():
    consumer = Consumer(commit_timeout=10)
    consumer.receive("0", 0, 1)
    consumer.handle(consumer.take())
    consumer.state.closed(consumer.session, 1.0, orderly=True)
    consumer.state.not_committed(consumer.state.due(20.0), 20.0)
    commit = consumer.state.due(22.0)
    consumer.state.not_committed(commit, 22.0)
    assert consumer.due(100.0) is None
    assert consumer.told() == [(ENDED, "0")]


def test_a_partition_whose_commit_is_refused_is_dropped_and_what_is_in_hand_not_continued():
    consumer = Consumer()
    for first in (0, 2, 4):
        consumer.receive("0", first, first + 1)
    consumer.handle(consumer.take())
    in_hand = consumer.take()
    consumer.state.refused(consumer.state.due(1.0), "it belongs to another stream")
    assert in_hand.dropped
    consumer.handle(in_hand)
    assert consumer.told() == [("it belongs to another stream", "0")]
    assert consumer.take() is None
    assert consumer.due(100.0) is None


@pytest.mark.parametrize("late", [False, True], ids=["events come after the refusal", "events come before it"])
def test_when_events_of_a_partition_come_that_was_lost_another_stream_is_opened(late):
    """They may have been sent before it was lost, or since it came back; another stream begins at a known place."""
    consumer = Consumer()
    consumer.receive("0", 0, 1)
    consumer.receive("0", 2, 3)
    consumer.handle(consumer.take())
    commit = consumer.state.due(1.0)
    if late:
        consumer.receive("0", 6, 7, now_s=1.0)
    consumer.state.refused(commit, "refused")
    if not late:
        assert consumer.state.broken(1.0) == []
        consumer.receive("0", 6, 7, now_s=1.0)
    assert consumer.told() == [("refused", "0")]
    assert consumer.take() is None
    assert consumer.state.broken(1.0) == [consumer.session]
    consumer.state.closed(consumer.session, 1.0, orderly=False)
    assert consumer.state.broken(1.0) == []
    assert consumer.state.take_over() == ["stream"]


def test_events_that_come_again_while_their_commit_is_answered_are_not_handed_out():
    consumer = Consumer()
    consumer.receive("0", 0, 1)
    consumer.handle(consumer.take())
    commit = consumer.state.due(1.0)
    consumer.receive("0", 0, 3)
    consumer.state.committed(commit, 1.0)
    again = consumer.take()
    assert (len(again), again.handled) == (4, 2)
    consumer.receive("0", 0, 5)
    assert [event.raw for event in consumer.next_after(again)] == [b"2", b"3", b"4", b"5"]


@pytest.mark.parametrize("answer", ["committed", "refused"])
def test_the_answer_to_a_commit_may_come_after_the_partition_was_lost(answer):
    consumer = Consumer()
    consumer.receive("0", 0, 1)
    consumer.handle(consumer.take())
    commit = consumer.state.due(1.0)
    consumer.receive("0", 0, 1)
    if answer == "committed":
        consumer.state.committed(commit, 1.0)
    else:
        consumer.state.refused(commit, "refused")
    assert consumer.told() == [(ELSEWHERE, "0"), ("+", "0")]
    assert (consumer.session.waiting, consumer.session.handled) == (2, 2 if answer == "committed" else 0)


def test_cursors_are_not_committed_one_by_one_for_partitions_that_were_lost_and_came_back():
    consumer = Consumer()
    for partition in "01":
        consumer.receive(partition, 0, 1)
        consumer.handle(consumer.take())
    commit = consumer.state.due(1.0)
    consumer.receive("0", 0, 1)
    assert [cut.progress.partition.partition for each in commit.one_by_one() for cut in each.cuts] == ["1"]


def test_a_cursor_inside_a_batch_that_is_refused_costs_nothing_but_itself():
    consumer = Consumer()
    consumer.receive("0", 0, 3)
    consumer.take().handled = 2
    assert consumer.due(20.0) == [("0", 1)]
    consumer.state.refused(consumer.state.due(20.0), "refused")
    assert consumer.due(20.0) == [("0", None)]


# --- slow handlers ---


def test_slow_handlers_are_kept_alive_with_what_is_handled_and_otherwise_with_what_is_committed():
    consumer = Consumer(commit_timeout=30)
    consumer.receive("0", 0, 3, now_s=5.0)
    batch = consumer.take()
    assert consumer.state.due_at_s(5.0) == 15
    assert consumer.due(15.0) == [("0", None)]
    consumer.commit(15.0)
    batch.handled = 2
    assert consumer.due(24.9) is None
    assert consumer.due(25.0) == [("0", 1)]
    consumer.commit(25.0)
    assert consumer.due(34.9) is None
    assert consumer.due(35.0) == [("0", None)]


def test_without_a_known_place_a_cursor_inside_a_batch_is_not_guessed():
    consumer = Consumer(committed={})
    consumer.receive("0", 0, 3)
    consumer.take().handled = 2
    assert consumer.due(20.0) == [("0", None)]


def test_patience_with_a_slow_handler_ends():
    consumer = Consumer(commit_timeout=30, keep_alive_s=25)
    consumer.receive("0", 0, 3)
    batch = consumer.take()
    for now_s in (10.0, 20.0, 30.0):
        assert consumer.due(now_s) == [("0", None)]
        consumer.commit(now_s)
    assert consumer.due(1_000.0) is None
    batch.handled = 1
    assert consumer.due(1_000.0) == [("0", 0)]


# --- assignment ---


def test_the_application_is_told_once_of_what_it_gets_and_loses():
    consumer = Consumer()
    consumer.receive("0", -1)
    consumer.receive("0", 0, 1)
    assert consumer.told() == [("+", "0")]
    consumer.handle(consumer.take())
    consumer.commit(1.0)
    consumer.state.closed(consumer.session, 2.0, orderly=True)
    assert consumer.told() == [(ENDED, "0")]


def test_the_last_words_of_a_stream_assign_nothing():
    consumer = Consumer()
    consumer.receive("1", -1, info={"debug": "Stream timeout reached"})
    assert consumer.told() == []
    assert consumer.session.said == "Stream timeout reached"


def test_a_partition_that_is_silent_while_others_are_not_is_lost():
    consumer = Consumer(batch_flush_timeout=1)
    consumer.receive("0", -1)
    consumer.receive("1", -1)
    assert consumer.told() == [("+", "0"), ("+", "1")]
    for now_s in range(1, 14):
        consumer.receive("0", -1, now_s=float(now_s))
    assert consumer.told() == []
    consumer.receive("0", -1, now_s=14.0)
    assert consumer.told() == [(SILENT, "1")]
    consumer.receive("1", -1, now_s=15.0)
    assert consumer.told() == [("+", "1")]


def test_a_consumer_that_could_not_read_for_long_loses_nothing():
    consumer = Consumer(batch_flush_timeout=1)
    for now_s in (0.0, 500.0, 1_000.0):
        for partition in "01":
            consumer.receive(partition, -1, now_s=now_s)
    assert consumer.told() == [("+", "0"), ("+", "1")]


def test_a_connection_without_a_sign_of_life_is_broken():
    consumer = Consumer(batch_flush_timeout=1)
    assert not consumer.state.broken(1e6)
    consumer.receive("0", -1, now_s=5.0)
    end_s = 5.0 + 1 + BROKEN_MARGIN_S
    assert consumer.state.due_at_s(5.0) == end_s
    assert consumer.state.broken(end_s) == [consumer.session]
    consumer.state.closed(consumer.session, end_s, orderly=False)
    assert not consumer.state.broken(end_s)


# --- ends ---


def test_after_the_end_of_a_stream_what_it_sent_is_still_handled_and_committed_event_by_event():
    consumer = Consumer()
    consumer.receive("0", 0, 3)
    consumer.receive("0", 4, 5)
    batch = consumer.take()
    consumer.state.closed(consumer.session, 1.0, orderly=False)
    batch.handled = 3
    assert consumer.due(1.0) == [("0", 2)]
    consumer.commit(1.0)
    consumer.handle(batch)
    consumer.handle(consumer.take())
    assert consumer.due(1.0) == [("0", 5)]
    consumer.commit(1.0)
    assert consumer.told() == [(ENDED, "0")]
    assert consumer.state.take_over() == ["stream"]
    assert consumer.state.take_over() == []


def test_a_stream_that_was_read_to_its_end_need_not_be_ended():
    consumer = Consumer()
    consumer.receive("0", 0, 3)
    consumer.handle(consumer.take())
    consumer.state.closed(consumer.session, 1.0, orderly=True)
    consumer.commit(1.0)
    assert consumer.state.take_over() == []


def test_an_event_that_fails_holds_up_its_partition_and_the_others_are_committed():
    consumer = Consumer()
    consumer.receive("0", 0, 3)
    consumer.receive("0", 4, 5)
    consumer.receive("1", 0, 1)
    failing, other = consumer.take(), consumer.take()
    failing.handled = 2
    assert consumer.state.fail(failing) is consumer.session
    consumer.state.release(failing)
    consumer.state.closed(consumer.session, 1.0, orderly=False)
    assert consumer.due(1.0) == [("0", 1)]
    consumer.commit(1.0)
    assert consumer.told() == [(FAILED, "0")]
    assert consumer.state.take_over() == []
    consumer.handle(other)
    consumer.commit(1.0)
    assert consumer.state.take_over() == ["stream"]


def test_an_event_that_fails_after_its_partition_was_lost_concerns_nobody():
    consumer = Consumer()
    consumer.receive("0", 0, 1)
    batch = consumer.take()
    consumer.state.refused(consumer.state.due(20.0), "refused")
    assert consumer.state.fail(batch) is None


def test_at_the_end_what_is_in_hand_is_finished_and_everything_handled_is_committed():
    consumer = Consumer(commit="interval")
    consumer.receive("0", 0, 3)
    consumer.receive("0", 4, 5)
    consumer.receive("1", 0, 1)
    first, second = consumer.take(), consumer.take()
    consumer.handle(second)
    consumer.state.stop()
    assert first.dropped
    assert consumer.told() == [(STOPPED, "1")]
    consumer.receive("0", 6, 7)
    # It may take longer than the broker waits for commits.
    assert consumer.due(20.0) == [("0", None), ("1", 1)]
    consumer.handle(first, 1)
    assert consumer.told() == [(STOPPED, "0")]
    consumer.state.end(1.0)
    assert consumer.due(1.0) == [("0", 0), ("1", 1)]
    assert not consumer.state.settled
    consumer.commit(1.0)
    assert consumer.state.settled
    assert consumer.state.take_over() == ["stream"]
