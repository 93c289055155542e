from rioni.domain.streaming.messages import PartitionOwnership, Reason
from tests.domain.streaming.driver import A, B, place, subscription


def test_committing_the_same_cursor_again_restarts_the_commit_timeout():
    """Reference subscriptions#commit-heartbeats."""
    stream = subscription(commit_timeout_s=10)
    stream.publish(A, 1)
    for _ in range(3):
        stream.wait(9)
        stream.heartbeat(A)
    stream.wait(9)
    assert stream.closed is None
    stream.wait(1)
    assert stream.closed == Reason.COMMIT_TIMEOUT


def test_heartbeats_of_one_partition_do_not_hide_another():
    stream = subscription(commit_timeout_s=10)
    stream.own(A, B)
    stream.publish(B, 1)
    stream.publish(A, 1)
    stream.wait(9)
    stream.heartbeat(A)
    stream.wait(1)
    assert stream.closed == Reason.COMMIT_TIMEOUT


def test_heartbeats_of_a_previous_owner_do_not_count():
    stream = subscription(commit_timeout_s=10)
    stream.ownership[B] = PartitionOwnership(place(-1), requested_by_other=False, heartbeats=7)
    stream.own(A)
    stream.publish(B, 1)
    stream.wait(9)
    stream.commit(A, -1)
    stream.wait(1)
    assert stream.closed == Reason.COMMIT_TIMEOUT


def test_heartbeats_delay_neither_a_hand_over_nor_the_end():
    """Reference subscriptions#commit-heartbeats."""
    releasing, ending = subscription(commit_timeout_s=10), subscription(commit_timeout_s=10)
    for stream in (releasing, ending):
        stream.publish(A, 1)
    releasing.want(A)
    ending.end(Reason.CLIENT_GONE)
    for stream in (releasing, ending):
        stream.wait(9)
        stream.heartbeat(A)
        stream.wait(1)
    assert releasing.released == [A]
    assert ending.closed == Reason.CLIENT_GONE
