import pytest

from rioni.domain.streaming.messages import Coordinated, PartitionOwnership, Reason
from tests.domain.streaming.driver import A, B, Batch, C, low_level, place, subscription


# --- batches and windows ---


def test_events_are_sent_in_batches_of_batch_limit():
    stream = subscription(batch_limit=3, max_uncommitted_events=100)
    stream.publish(A, 7)
    assert stream.taken() == [Batch(A, 2, [0, 1, 2], "Stream started"), Batch(A, 5, [3, 4, 5], "")]


def test_batches_of_a_stream_are_independent_of_published_batches():
    stream = subscription(batch_limit=4, max_uncommitted_events=100)
    stream.publish(A, 3)
    stream.publish(A, 3)
    stream.publish(A, 2)
    assert [batch.events for batch in stream.taken()] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_an_incomplete_batch_is_sent_after_the_flush_timeout():
    stream = subscription(batch_limit=3, batch_flush_timeout_s=5)
    stream.publish(A, 2)
    stream.wait(4.9)
    assert stream.taken() == []
    stream.wait(0.1)
    assert [batch.events for batch in stream.taken()] == [[0, 1]]


def test_no_more_than_the_window_is_uncommitted_and_its_rest_is_sent_at_once():
    stream = subscription(batch_limit=4, max_uncommitted_events=10)
    stream.publish(A, 50)
    assert stream.sizes() == [4, 4, 2]
    stream.commit(A, 0)
    assert stream.sizes() == [1]
    stream.commit(A, 9)
    assert stream.sizes() == [4, 4, 1]


def test_partitions_use_the_window_in_turn():
    stream = subscription(batch_limit=2, max_uncommitted_events=8)
    stream.own(A, B, C)
    for key in (A, B, C):
        stream.publish_alone(key, 20)
    stream.arrive()
    assert [batch.partition for batch in stream.taken()] == [A, B, C, A]
    stream.commit(A, 3)
    assert [batch.partition for batch in stream.taken()] == [B, C]


def test_the_window_counts_delivered_events_not_positions():
    stream = subscription(batch_limit=10, max_uncommitted_events=10)
    stream.publish_alone(A, 5)
    stream.clock.advance(1)
    stream.publish_alone(A, 5)
    stream.store.delete_before("a", stream.clock.now_ms())
    stream.arrive()
    stream.publish(A, 5)
    assert [batch.events for batch in stream.taken()] == [list(range(5, 15))]


def test_a_stream_without_commits_has_no_window():
    stream = low_level(batch_limit=10)
    stream.publish(A, 1000)
    assert stream.sizes() == [10] * 100


# --- keep-alives ---


def test_a_quiet_partition_is_kept_alive_at_its_last_sent_position():
    stream = subscription(batch_flush_timeout_s=5)
    stream.wait(5)
    stream.publish(A, 1)
    stream.wait(5)
    assert stream.taken() == [Batch(A, -1, [], "Stream started"), Batch(A, 0, [0], ""), Batch(A, 0, [], "")]


def test_a_closed_window_is_kept_alive():
    """Reference streams#keep-alives."""
    stream = subscription(batch_flush_timeout_s=5, max_uncommitted_events=1)
    stream.publish(A, 2)
    stream.wait(10)
    assert stream.sizes() == [1, 0, 0]


def test_a_stream_without_partitions_sends_nothing():
    stream = subscription(batch_flush_timeout_s=5)
    stream.step(Coordinated({}))
    stream.wait(20)
    assert stream.taken() == []


@pytest.mark.parametrize("make", [subscription, low_level])
def test_enough_keep_alives_on_all_partitions_end_the_stream(make):
    stream = make(batch_flush_timeout_s=5, stream_keep_alive_limit=3)
    stream.wait(10)
    stream.publish(A, 1)
    stream.commit(A, 0) if stream.ownership else None
    assert stream.closed is None
    stream.wait(14)
    assert stream.closed is None
    stream.wait(1)
    assert stream.closed == Reason.KEEP_ALIVE_LIMIT


def test_a_busy_partition_keeps_a_quiet_one_from_ending_the_stream():
    stream = low_level(A, B, batch_flush_timeout_s=5, stream_keep_alive_limit=2)
    for _ in range(10):
        stream.publish(A, 1)
        stream.wait(5)
    assert stream.closed is None


# --- stream limit ---


def test_a_low_level_stream_ends_silently_with_its_limit():
    stream = low_level(batch_limit=4, stream_limit=6)
    stream.publish(A, 10)
    assert stream.taken() == [Batch(A, 3, [0, 1, 2, 3], ""), Batch(A, 5, [4, 5], "")]
    assert stream.closed == Reason.STREAM_LIMIT


def test_a_subscription_stream_ends_when_its_limit_is_committed():
    stream = subscription(batch_limit=4, stream_limit=6)
    stream.publish(A, 10)
    assert stream.sizes() == [4, 2]
    stream.commit(A, 3)
    assert stream.closed is None
    stream.commit(A, 5)
    assert stream.taken() == [Batch(A, 5, [], "Stream limit in events reached: 6")]
    assert stream.closed == Reason.STREAM_LIMIT


# --- stream timeout ---


def test_at_the_stream_timeout_buffered_events_are_sent_and_commits_awaited():
    stream = subscription(batch_limit=5, batch_flush_timeout_s=100, stream_timeout_s=50)
    stream.publish(A, 7)
    stream.wait(50)
    assert [(batch.events, batch.info) for batch in stream.taken()] == [
        ([0, 1, 2, 3, 4], "Stream started"),
        ([5, 6], ""),
        ([], "Stream timeout reached"),
    ]
    assert stream.closed is None
    stream.publish(A, 7)
    stream.commit(A, 4)
    assert stream.closed is None
    stream.commit(A, 6)
    assert stream.taken() == []
    assert stream.closed == Reason.STREAM_TIMEOUT


def test_a_stream_without_batches_sends_its_start_information_before_it_ends():
    stream = subscription(batch_flush_timeout_s=600, stream_timeout_s=2)
    stream.wait(2)
    assert [batch.info for batch in stream.taken()] == ["Stream started", "Stream timeout reached"]
    assert stream.closed == Reason.STREAM_TIMEOUT


def test_a_low_level_stream_ends_silently_with_its_timeout():
    stream = low_level(batch_limit=5, stream_timeout_s=30)
    stream.publish(A, 2)
    stream.wait(30)
    assert stream.taken()[-1] == Batch(A, 1, [0, 1], "")
    assert stream.closed == Reason.STREAM_TIMEOUT


# --- commit timeout ---


def test_a_stream_without_a_commit_in_time_ends_at_once():
    stream = subscription(commit_timeout_s=10)
    stream.wait(5)
    stream.publish(A, 1)
    stream.wait(9.9)
    assert stream.closed is None
    stream.wait(0.1)
    assert stream.taken()[-1] == Batch(A, 0, [], "Commit timeout reached")
    assert stream.closed == Reason.COMMIT_TIMEOUT


def test_a_stream_without_events_needs_no_commits():
    stream = subscription(commit_timeout_s=10)
    stream.wait(1000)
    assert stream.closed is None


def test_every_commit_that_advances_restarts_the_commit_timeout():
    stream = subscription(commit_timeout_s=10)
    stream.publish(A, 3)
    for position in range(2):
        stream.wait(9)
        stream.commit(A, position)
    stream.wait(9)
    assert stream.closed is None
    stream.wait(1)
    assert stream.closed == Reason.COMMIT_TIMEOUT


def test_commits_of_one_partition_do_not_hide_another():
    stream = subscription(commit_timeout_s=10)
    stream.own(A, B)
    stream.publish(B, 1)
    stream.publish(A, 3)
    stream.wait(9)
    stream.commit(A, 2)
    stream.wait(1)
    assert stream.closed == Reason.COMMIT_TIMEOUT


# --- commits ---


def test_committing_ahead_of_the_sent_events_skips_events():
    stream = subscription(batch_limit=1, max_uncommitted_events=2)
    stream.publish(A, 10)
    stream.taken()
    stream.commit(A, 6)
    assert [batch.events for batch in stream.taken()] == [[7], [8]]


def test_committing_ahead_of_the_end_skips_future_events():
    """Reference subscriptions#commits-beyond-sent-events."""
    stream = subscription(batch_limit=1)
    stream.commit(A, 2)
    stream.publish(A, 5)
    assert [batch.events for batch in stream.taken()] == [[3], [4]]


def test_a_cursor_that_was_set_back_is_read_again():
    stream = subscription()
    stream.publish(A, 5)
    stream.commit(A, 4)
    stream.taken()
    stream.commit(A, 2)
    assert [batch.events for batch in stream.taken()] == [[3], [4]]


# --- hand-over ---


def test_a_partition_with_nothing_outstanding_is_released_at_once():
    stream = subscription()
    stream.publish(A, 1)
    stream.commit(A, 0)
    stream.want(A)
    assert stream.released == [A]


def test_buffered_events_are_not_sent_by_the_releasing_stream():
    stream = subscription(batch_limit=3, max_uncommitted_events=3)
    stream.publish(A, 10)
    assert stream.sizes() == [3]
    stream.want(A)
    stream.commit(A, 1)
    assert stream.released == []
    stream.publish(A, 1)
    stream.wait(30)
    assert stream.taken() == []
    stream.commit(A, 2)
    assert stream.released == [A]


def test_after_the_commit_timeout_only_that_partition_is_released():
    """Reference streams#hand-over."""
    stream = subscription(commit_timeout_s=10)
    stream.own(A, B)
    stream.publish(A, 1)
    stream.wait(5)
    stream.want(A)
    stream.wait(9.9)
    assert stream.released == []
    stream.wait(0.1)
    assert stream.released == [A]
    assert stream.closed is None
    stream.taken()
    stream.publish(B, 1)
    assert stream.sizes() == [1]


def test_uncommitted_events_of_a_released_partition_do_not_count_in_the_window():
    stream = subscription(max_uncommitted_events=2, commit_timeout_s=10)
    stream.own(A, B)
    stream.publish(A, 2)
    stream.want(A)
    stream.wait(10)
    stream.taken()
    stream.publish(B, 2)
    assert stream.sizes() == [1, 1]


def test_a_partition_that_is_no_longer_requested_continues():
    stream = subscription(max_uncommitted_events=3)
    stream.publish(A, 5)
    stream.want(A)
    stream.taken()
    stream.want(A, wanted=False)
    stream.commit(A, 2)
    assert [batch.events for batch in stream.taken()] == [[3], [4]]
    assert stream.released == []


def test_a_partition_requested_before_it_is_read_is_released_at_once():
    stream = subscription()
    stream.ownership[B] = PartitionOwnership(place(-1), True)
    stream.want(B)
    assert stream.released == [B]


def test_a_new_owner_begins_behind_the_committed_position():
    stream = subscription()
    stream.publish_alone(B, 5)
    stream.ownership[B] = PartitionOwnership(place(2), False)
    stream.step(Coordinated(stream.ownership))
    assert [batch.events for batch in stream.taken()] == [[3], [4]]


# --- retention ---


def test_the_first_batch_says_how_many_events_were_lost():
    stream = subscription()
    stream.lose(A, 5, 2)
    assert stream.taken() == [
        Batch(A, 5, [5], "Stream started; skipped events due to retention time passed, count: 5"),
        Batch(A, 6, [6], ""),
    ]


def test_a_stream_overtaken_by_retention_reports_it_and_continues_with_the_oldest_event():
    stream = subscription()
    stream.publish(A, 1)
    stream.lose(A, 4, 1)
    assert stream.taken()[1:] == [Batch(A, 5, [5], "skipped events due to retention time passed, count: 4")]


# --- batch_timespan and memory ---


def test_batches_end_with_their_timespan():
    stream = subscription(batch_limit=1000, max_uncommitted_events=1000, batch_timespan_s=5, batch_flush_timeout_s=600)
    seconds = 0
    for at in (2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 14, 17, 19, 20, 30):
        stream.clock.advance((at - seconds) * 1000)
        seconds = at
        stream.publish_alone(A, 1)
    stream.arrive()
    assert stream.sizes() == [5, 4, 2, 3, 1]


def test_a_timespan_respects_batch_limit_and_window():
    stream = subscription(batch_limit=4, max_uncommitted_events=6, batch_timespan_s=5, batch_flush_timeout_s=600)
    stream.publish_alone(A, 3)
    stream.clock.advance(1000)
    stream.publish_alone(A, 3)
    stream.clock.advance(9000)
    stream.publish_alone(A, 3)
    stream.arrive()
    assert stream.sizes() == [4, 2]


def test_a_full_buffer_is_sent_with_an_information():
    stream = subscription(batch_limit=1000, max_uncommitted_events=1000, memory_bytes_max=100)
    for _ in range(10):
        stream.publish(A, 10)
    assert [(batch.position, batch.info) for batch in stream.taken()] == [
        (39, "Stream started; Stream parameters are causing overflow"),
        (79, "Stream parameters are causing overflow"),
    ]


# --- all ways to end ---


@pytest.mark.parametrize(
    ("reason", "text", "waits"),
    [
        (Reason.RESET, "Resetting subscription cursors", True),
        (Reason.BLOCKED, "Consumption is blocked", True),
        (Reason.UNAUTHORIZED, "Access denied", False),
        (Reason.TOKEN_EXPIRED, "Token is no longer valid", True),
        (Reason.EVENT_TYPE_DELETED, "Event type deleted", False),
        (Reason.SUBSCRIPTION_DELETED, "Subscription deleted", False),
        (Reason.SESSION_ENDED, "Session ended", False),
        (Reason.SHUTDOWN, "Server is shutting down", False),
        (Reason.FAILURE, "Internal error", False),
        (Reason.CLIENT_GONE, None, True),
    ],
)
def test_an_end_from_outside_gives_the_reason(reason: Reason, text: str | None, waits: bool):
    """Reference streams#end-of-a-stream, streams#end-reasons, streams#final-batch."""
    stream = subscription(commit_timeout_s=10)
    stream.publish(A, 1)
    stream.taken()
    stream.end(reason)
    assert [batch.info for batch in stream.taken()] == ([text] if text else [])
    assert stream.closed == (None if waits else reason)
    stream.end(reason)
    stream.wait(9)
    stream.wait(1)
    assert stream.closed == reason
    assert stream.taken() == []


@pytest.mark.parametrize("reason", list(Reason))
def test_an_end_is_immediate_where_nothing_is_outstanding(reason: Reason):
    for stream in (subscription(), low_level()):
        stream.end(reason)
        assert stream.closed == reason


def test_a_low_level_stream_ended_by_the_broker_gives_the_reason():
    stream = low_level()
    stream.end(Reason.UNAUTHORIZED, "Access on READ event-type:a denied")
    assert stream.taken() == [Batch(A, -1, [], "Access on READ event-type:a denied")]


def test_while_closing_a_commit_ends_the_stream_and_partitions_are_handed_over():
    stream = subscription(commit_timeout_s=10)
    stream.own(A, B)
    stream.publish(A, 1)
    stream.publish(B, 1)
    stream.end(Reason.CLIENT_GONE)
    stream.want(A)
    stream.commit(A, 0)
    assert stream.released == [A]
    assert stream.closed is None
    stream.commit(B, 0)
    assert stream.closed == Reason.CLIENT_GONE


def test_a_waiting_end_is_replaced_by_an_immediate_one():
    stream = subscription()
    stream.publish(A, 1)
    stream.end(Reason.RESET)
    stream.end(Reason.SHUTDOWN)
    assert stream.closed == Reason.SHUTDOWN


def test_a_stream_without_partitions_ends_after_two_commit_timeouts():
    stream = subscription(commit_timeout_s=10)
    stream.step(Coordinated({}))
    stream.wait(19.9)
    assert stream.closed is None
    stream.wait(0.1)
    assert stream.closed == Reason.NO_PARTITION


@pytest.mark.parametrize("reason", [Reason.SESSION_ENDED, Reason.RESET, Reason.SHUTDOWN, Reason.BLOCKED])
def test_a_stream_without_partitions_gives_the_reason_of_its_end_too(reason):
    stream = subscription()
    stream.lose_all()
    stream.machine.fallback_partition = B, place(7)
    stream.taken()
    stream.end(reason)
    assert stream.taken() == [Batch(B, 7, [], reason.value)]
    assert stream.closed is reason


def test_a_stream_that_never_owned_a_partition_gives_that_reason():
    stream = subscription(commit_timeout_s=10)
    stream.lose_all()
    stream.machine.fallback_partition = B, place(7)
    stream.wait(20)
    assert stream.taken()[-1] == Batch(B, 7, [], Reason.NO_PARTITION.value)


def test_a_disconnected_client_is_sent_nothing():
    stream = subscription()
    stream.lose_all()
    stream.machine.fallback_partition = B, place(7)
    stream.taken()
    stream.end(Reason.CLIENT_GONE)
    assert stream.taken() == []


def test_a_stream_ends_at_its_limit_though_its_partition_was_handed_over():
    stream = subscription(batch_limit=1, stream_limit=2)
    stream.publish(A, 2)
    stream.own(B)
    stream.want(A)
    stream.wait(60)
    assert stream.released == [A]
    assert stream.closed is Reason.STREAM_LIMIT
