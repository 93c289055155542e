"""When a stream of a subscription sends, and how commits and losses affect it.

Source: reference streams#window, streams#batch-timespan, streams#lost-events, streams#sending.
"""

import pytest

from rioni.domain.streaming.messages import Reason
from tests.domain.streaming.driver import A, B, subscription
from tests.domain.streaming.script import new_batches, play
from tests.support.tables import rows


@pytest.mark.parametrize(
    ("parameters", "steps", "batches"),
    rows(
        ("batch_timespan", {"batch_limit": 9, "batch_timespan_s": 5},
         [("publish", A, 2), ("wait", 6), ("publish", A, 1)], [("0", 1, [0, 1])]),
        ("n queued", {"batch_limit": 2}, [("publish", A, 5)], [("0", 1, [0, 1]), ("0", 3, [2, 3])]),
        ("n is limited by the window", {"batch_limit": 4, "max_uncommitted_events": 6},
         [("publish", A, 20)], [("0", 3, [0, 1, 2, 3]), ("0", 5, [4, 5])]),
        ("n is limited by stream_limit", {"batch_limit": 4, "stream_limit": 6},
         [("publish", A, 20)], [("0", 3, [0, 1, 2, 3]), ("0", 5, [4, 5])]),
        ("flush timeout", {"batch_limit": 4, "batch_flush_timeout_s": 5},
         [("publish", A, 2), ("wait", 5)], [("0", 1, [0, 1])]),
        ("nothing queued: a keep-alive", {"batch_flush_timeout_s": 5},
         [("publish", A, 1), ("wait", 10)], [("0", 0, [0]), ("0", 0, []), ("0", 0, [])]),
        ("not more than the window", {"batch_limit": 4, "batch_flush_timeout_s": 5, "max_uncommitted_events": 1},
         [("publish", A, 3), ("wait", 5)], [("0", 0, [0]), ("0", 0, [])]),
        ("stream timeout", {"batch_limit": 4, "stream_timeout_s": 9},
         [("publish", A, 2), ("wait", 9)], [("0", 1, [0, 1]), ("0", 1, [])]),
        ("stream timeout, nothing queued", {"stream_timeout_s": 9},
         [("publish", A, 1), ("commit", A, 0), ("wait", 9)], [("0", 0, [0]), ("0", 0, [])]),
        ("otherwise nothing", {"batch_limit": 4, "batch_flush_timeout_s": 5},
         [("publish", A, 3), ("wait", 4.9)], []),
        ("every send restarts the flush time", {"batch_flush_timeout_s": 5},
         [("wait", 4), ("publish", A, 1), ("wait", 4.9)], [("0", 0, [0])]),
        ("after an advancing commit", {"max_uncommitted_events": 2},
         [("publish", A, 4), ("commit", A, 0)], [("0", 0, [0]), ("0", 1, [1]), ("0", 2, [2])]),
        ("a stream-wide window, partitions in turn", {"max_uncommitted_events": 3},
         [("own", B), ("publish_alone", A, 9), ("publish_alone", B, 9), ("arrive",)],
         [("0", 0, [0]), ("1", 0, [0]), ("0", 1, [1])]),
        ("hidden events don't count", {"batch_limit": 3, "max_uncommitted_events": 3},
         [("publish_hidden", A, "x.t.x.")], [("0", 5, [1, 3, 5])]),
        ("the memory guard keeps to the window",
         {"batch_limit": 9, "max_uncommitted_events": 4, "memory_bytes_max": 8},
         [("publish", A, 9)], [("0", 3, [0, 1, 2, 3])]),
        ("at least one event", {"batch_limit": 9, "batch_timespan_s": 1},
         [("publish", A, 1), ("wait", 7), ("publish", A, 1), ("wait", 7), ("publish", A, 1)],
         [("0", 0, [0]), ("0", 1, [1]), ("0", 2, [2])]),
        ("the window is a hard bound", {"batch_limit": 9, "max_uncommitted_events": 2, "batch_timespan_s": 5},
         [("publish", A, 4), ("wait", 6), ("publish", A, 1)], [("0", 1, [0, 1])]),
        ("ahead of the sent events", {"max_uncommitted_events": 1},
         [("publish", A, 6), ("commit", A, 3)], [("0", 0, [0]), ("0", 4, [4])]),
        ("ahead of everything", {}, [("commit", A, 2), ("publish", A, 4)], [("0", 3, [3])]),
        ("a part of the sent events", {"max_uncommitted_events": 3},
         [("publish", A, 9), ("commit", A, 1)], [("0", at, [at]) for at in range(5)]),
        ("the same again", {"max_uncommitted_events": 1},
         [("publish", A, 3), ("commit", A, 0), ("commit", A, 0)], [("0", 0, [0]), ("0", 1, [1])]),
        ("set back", {}, [("publish", A, 2), ("commit", A, 1), ("commit", A, -1)],
         [("0", 0, [0]), ("0", 1, [1]), ("0", 0, [0]), ("0", 1, [1])]),
        ("a new owner begins behind the committed cursor", {},
         [("publish_alone", B, 4), ("own_from", B, 1)], [("1", 2, [2]), ("1", 3, [3])]),
        ("no longer requested before it was released", {"max_uncommitted_events": 1},
         [("publish", A, 3), ("want", A), ("withdraw_request", A), ("commit", A, 0)], [("0", 0, [0]), ("0", 1, [1])]),
    ),
)  # fmt: skip
def test_batches_are_sent_as_in_the_contract(parameters, steps, batches):
    """Reference streams#when-a-batch-is-sent, streams#memory-limit, subscriptions#commits-beyond-sent-events."""
    assert new_batches(play(subscription(**parameters), steps)) == batches


@pytest.mark.parametrize(
    ("parameters", "steps", "closed"),
    rows(
        ("commit timeout", {"commit_timeout_s": 9}, [("publish", A, 1), ("wait", 9)], Reason.COMMIT_TIMEOUT),
        ("not before", {"commit_timeout_s": 9}, [("publish", A, 1), ("wait", 8.9)], None),
        ("nothing sent, no time-out", {"commit_timeout_s": 9}, [("wait", 900)], None),
        ("everything committed, no time-out", {"commit_timeout_s": 9},
         [("publish", A, 1), ("commit", A, 0), ("wait", 900)], None),
        ("the time begins with what is sent after all was committed", {"commit_timeout_s": 9},
         [("publish", A, 1), ("commit", A, 0), ("wait", 8), ("publish", A, 1), ("wait", 8)], None),
        ("a commit that advances restarts it", {"commit_timeout_s": 9},
         [("publish", A, 2), ("wait", 8), ("commit", A, 0), ("wait", 8)], None),
        ("other partitions don't", {"commit_timeout_s": 9},
         [("own", B), ("publish", A, 1), ("publish", B, 2), ("wait", 8), ("commit", B, 0), ("wait", 1)],
         Reason.COMMIT_TIMEOUT),
        ("all outstanding committed while closing", {"stream_timeout_s": 9},
         [("publish", A, 2), ("wait", 9), ("commit", A, 1)], Reason.STREAM_TIMEOUT),
        ("a part of it", {"stream_timeout_s": 9}, [("publish", A, 2), ("wait", 9), ("commit", A, 0)], None),
        ("closing waits for the rest of the commit timeout", {"stream_timeout_s": 9, "commit_timeout_s": 20},
         [("wait", 4), ("publish", A, 1), ("wait", 19.9)], None),
        ("and no longer", {"stream_timeout_s": 9, "commit_timeout_s": 20},
         [("wait", 4), ("publish", A, 1), ("wait", 20)], Reason.STREAM_TIMEOUT),
        ("closing waits for a partition that is being handed over", {"commit_timeout_s": 9},
         [("own", B), ("publish", A, 1), ("want", A), ("end", Reason.RESET), ("wait", 8)], None),
        ("closing ends with its commit timeout", {"commit_timeout_s": 9},
         [("own", B), ("publish", A, 1), ("want", A), ("end", Reason.RESET), ("wait", 9)], Reason.RESET),
        ("stream_limit is sent, but not committed", {"stream_limit": 1}, [("publish", A, 2)], None),
        ("stream_limit is committed", {"stream_limit": 1}, [("publish", A, 2), ("commit", A, 0)],
         Reason.STREAM_LIMIT),
        ("stream_limit is never committed", {"stream_limit": 1, "commit_timeout_s": 9},
         [("publish", A, 2), ("wait", 9)], Reason.COMMIT_TIMEOUT),
        ("keep-alive limit on all partitions", {"stream_keep_alive_limit": 2, "batch_flush_timeout_s": 5},
         [("own", B), ("wait", 10)], Reason.KEEP_ALIVE_LIMIT),
        ("a negative keep-alive limit", {"stream_keep_alive_limit": -1}, [("own", B), ("wait", 0)],
         Reason.KEEP_ALIVE_LIMIT),
        ("keep-alive limit on one of them", {"stream_keep_alive_limit": 2, "batch_flush_timeout_s": 5},
         [("own", B), ("wait", 5), ("publish", A, 1), ("wait", 5)], None),
        ("keep-alive limit while the window is closed",
         {"stream_keep_alive_limit": 2, "batch_flush_timeout_s": 5, "max_uncommitted_events": 1},
         [("publish", A, 2), ("wait", 10), ("commit", A, 0)], Reason.KEEP_ALIVE_LIMIT),
        ("no partition for two commit timeouts", {"commit_timeout_s": 9}, [("lose_all",), ("wait", 18)],
         Reason.NO_PARTITION),
        ("no partition for a shorter time", {"commit_timeout_s": 9},
         [("lose_all",), ("wait", 17), ("own", A), ("wait", 17)], None),
        ("a released partition is not committed in time: the stream continues", {"commit_timeout_s": 9},
         [("own", B), ("publish", A, 1), ("want", A), ("wait", 9)], None),
    ),
)  # fmt: skip
def test_streams_end_as_in_the_contract(parameters, steps, closed):
    """Reference streams#commit-timeouts, streams#commit-timeout, streams#closing."""
    assert play(subscription(**parameters), steps).closed is closed


@pytest.mark.parametrize(
    ("steps", "released"),
    rows(
        ("closing: nothing outstanding", [("publish", B, 1), ("end", Reason.RESET), ("want", A)], [A]),
        ("closing: committed", [("publish", A, 1), ("publish", B, 1), ("end", Reason.RESET), ("want", A),
                                    ("commit", A, 0)], [A]),
        ("closing: outstanding", [("publish", A, 1), ("end", Reason.RESET), ("want", A)], []),
        ("nothing outstanding", [("want", A)], [A]),
        ("outstanding", [("publish", A, 2), ("commit", A, 0), ("want", A)], []),
        ("committed", [("publish", A, 2), ("want", A), ("commit", A, 1)], [A]),
        ("queued events are not sent any more", [("publish", A, 20), ("want", A), ("commit", A, 9)], [A]),
        ("the commit timeout has passed", [("publish", A, 1), ("want", A), ("wait", 60)], [A]),
    ),
)  # fmt: skip
def test_partitions_are_handed_over_as_in_the_contract(steps, released):
    """Reference streams#hand-over, streams#closing."""
    stream = subscription()
    stream.own(B)
    assert play(stream, steps).released == released
