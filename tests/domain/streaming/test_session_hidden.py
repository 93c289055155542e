"""How streams handle events that they don't deliver (reference low-level-streams#flushing, streams#hidden-events)."""

import pytest

from rioni.domain.access.authorization import Attribute, Subject
from rioni.domain.publishing.headers import Headers
from rioni.domain.streaming.batching import Visibility
from rioni.domain.streaming.messages import Reason, VisibilityChanged
from rioni.domain.streaming.session import AUTOCOMMIT_EVERY_S
from tests.domain.streaming.driver import A, B, low_level, subscription
from tests.support.tables import rows


@pytest.mark.parametrize(
    ("pattern", "events", "committed"),
    rows(
        ("a tombstone", "t", [], [0]),
        ("consumer tags", "xxx", [], [2]),
        ("before an event", "x.", [[1]], [0]),
        ("behind one that is not committed", ".x", [[0]], []),
        ("in between", "x.x.t", [[1], [3]], [0]),
        ("between batches", "xx..xx..xx", [[2, 3], [6, 7]], [1]),
    ),
)
def test_only_hidden_events_before_all_visible_ones_are_committed(pattern, events, committed):
    stream = subscription(batch_limit=2 if ".." in pattern else 1)
    stream.publish_hidden(A, pattern)
    assert [batch.events for batch in stream.taken()] == events
    assert stream.autocommitted == [(A, position) for position in committed]


def test_nothing_is_committed_behind_buffered_events():
    stream = subscription(batch_limit=10)
    stream.publish_hidden(A, "x.x.x")
    assert stream.taken() == []
    assert stream.autocommitted == [(A, 0)]


def test_hidden_events_are_committed_when_the_client_has_committed_the_events_before():
    stream = subscription(batch_limit=2)
    stream.publish_hidden(A, "..xx..tx")
    stream.commit(A, 0)
    assert not stream.autocommitted
    stream.commit(A, 1)
    assert stream.autocommitted == [(A, 3)]
    stream.commit(A, 5)
    stream.wait(AUTOCOMMIT_EVERY_S)
    assert stream.autocommitted == [(A, 3), (A, 7)]


def test_hidden_events_are_committed_together_at_intervals():
    """Reference streams#autocommit."""
    stream = subscription()
    stream.publish_hidden(A, "x")
    for _ in range(10):
        stream.publish_hidden(A, "xt")
        stream.wait(0.1)
    assert stream.autocommitted == [(A, 0)]
    stream.wait(AUTOCOMMIT_EVERY_S)
    assert stream.autocommitted == [(A, 0), (A, 20)]
    stream.wait(10 * AUTOCOMMIT_EVERY_S)
    assert len(stream.autocommitted) == 2


def test_a_batch_spans_hidden_events_and_counts_only_visible_ones():
    stream = subscription(batch_limit=4, max_uncommitted_events=4)
    stream.publish_hidden(A, ".x.ttt.xx.x.")
    (batch,) = stream.taken()
    assert (batch.events, batch.position) == ([0, 2, 6, 9], 9)
    stream.commit(A, 9)
    stream.wait(30)
    assert stream.taken()[0].events == [11]


def test_hidden_events_do_not_count_against_the_limit_of_a_stream():
    stream = subscription(batch_limit=1, stream_limit=2)
    stream.publish_hidden(A, "xx.x.x")
    assert [batch.events for batch in stream.taken()] == [[2], [4]]
    stream.commit(A, 4)
    assert stream.closed is Reason.STREAM_LIMIT
    assert stream.autocommitted[-1] == (A, 5)


def test_committing_hidden_events_does_not_restart_the_commit_timeout():
    stream = subscription(commit_timeout_s=6)
    stream.publish_hidden(A, "x")
    stream.publish_hidden(A, "x.")
    stream.wait(5.5)
    assert stream.autocommitted == [(A, 0), (A, 1)]
    stream.wait(0.5)
    assert stream.closed is Reason.COMMIT_TIMEOUT


def test_keep_alives_advance_with_automatic_commits():
    stream = subscription()
    stream.publish_hidden(A, "xx")
    stream.wait(30)
    assert [(batch.events, batch.position) for batch in stream.taken()] == [([], 1)]


def test_hidden_events_are_committed_before_a_partition_is_handed_over():
    """Reference streams#autocommit."""
    stream = subscription(batch_limit=10)
    stream.own(B)
    stream.publish_hidden(A, "x")
    stream.publish_hidden(A, "xx.xx")  # not sent yet
    stream.want(A)
    assert stream.released == [A]
    assert stream.autocommitted == [(A, 0), (A, 2)]


def test_hidden_events_behind_unsent_ones_are_not_committed_when_a_partition_is_requested():
    stream = subscription(batch_limit=1, max_uncommitted_events=1)
    stream.own(B)
    stream.publish_hidden(A, ".x.xx")
    stream.want(A)
    stream.commit(A, 0)
    assert stream.released == [A]
    assert stream.autocommitted == [(A, 1)]


def test_a_partition_that_is_no_longer_requested_continues_without_loss():
    stream = subscription(batch_limit=1, max_uncommitted_events=1)
    stream.publish_hidden(A, ".x.xx.x")
    stream.want(A)
    stream.want(A, wanted=False)
    for position in (0, 2, 5):
        assert stream.taken()[0].events == [position]
        stream.commit(A, position)
    stream.wait(AUTOCOMMIT_EVERY_S)
    assert stream.autocommitted[-1] == (A, 6)


@pytest.mark.parametrize("reason", [Reason.STREAM_TIMEOUT, Reason.SHUTDOWN, Reason.UNAUTHORIZED, Reason.RESET])
def test_hidden_events_are_committed_at_the_end_of_the_stream(reason):
    """Reference streams#autocommit."""
    stream = subscription()
    stream.publish_hidden(A, "x")
    stream.publish_hidden(A, "xx")
    stream.end(reason)
    assert stream.closed is reason
    assert stream.autocommitted == [(A, 0), (A, 2)]


@pytest.mark.parametrize("reason", [Reason.SESSION_ENDED, Reason.SUBSCRIPTION_DELETED, Reason.FAILURE])
def test_nothing_is_committed_without_the_ability_to_commit(reason):
    stream = subscription()
    stream.publish_hidden(A, "x")
    stream.publish_hidden(A, "xx")
    stream.end(reason)
    assert stream.autocommitted == [(A, 0)]


def test_a_low_level_stream_skips_hidden_events_with_the_next_batch_and_not_before():
    stream = low_level(A, batch_limit=1)
    stream.publish_hidden(A, ".xtx")
    assert [(batch.events, batch.position) for batch in stream.taken()] == [([0], 0)]
    stream.wait(30)
    assert [(batch.events, batch.position) for batch in stream.taken()] == [([], 3)]
    stream.publish_hidden(A, "x.")
    assert [(batch.events, batch.position) for batch in stream.taken()] == [([5], 5)]
    assert not stream.autocommitted


def test_hidden_events_do_not_prevent_the_memory_limit():
    stream = low_level(A, batch_limit=100, memory_bytes_max=100)
    stream.publish_hidden(A, "x." * 40)
    stream.wait(30)
    assert [event for batch in stream.taken() for event in batch.events] == list(range(1, 80, 2))
    assert stream.machine._round_robin[0].buffer.bytes == 0


def test_a_changed_visibility_applies_to_all_unsent_events():
    owner = Attribute("team", "red")
    stream = subscription(batch_limit=1, max_uncommitted_events=1)
    stream.store.append("a", {0: [b"%d" % n for n in range(4)]}, headers={0: [Headers(owner=owner)] * 4})
    stream.arrive()
    assert stream.taken()[0].events == [0]
    stream.step(VisibilityChanged(Visibility(reader=Subject(name="blue"))))
    stream.commit(A, 0)
    assert stream.taken() == []
    assert stream.autocommitted == [(A, 3)]
    stream.step(VisibilityChanged(Visibility()))
    stream.publish_hidden(A, ".")
    assert stream.taken()[0].events == [4]
