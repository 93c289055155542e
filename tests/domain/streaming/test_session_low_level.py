"""The flush loop of a low-level stream, row by row: reference low-level-streams#flushing.

Source: reference low-level-streams#sending, low-level-streams#end-of-a-stream.
"""

import pytest

from rioni.domain.streaming.messages import Reason
from tests.domain.streaming.driver import A, B, Batch, low_level
from tests.domain.streaming.script import new_batches, play
from tests.support.tables import rows


@pytest.mark.parametrize(
    ("parameters", "steps", "batches"),
    rows(
        (
            "a full buffer",
            {"batch_limit": 2},
            [("publish", A, 5)],
            [("0", 1, [0, 1]), ("0", 3, [2, 3])],
        ),
        (
            "batch_flush_timeout",
            {"batch_limit": 9, "batch_flush_timeout_s": 5},
            [("publish", A, 2), ("wait", 4.9), ("publish", B, 1), ("wait", 0.1)],
            [("0", 1, [0, 1]), ("1", 0, [0])],
        ),
        (
            "an empty buffer: a keep-alive",
            {"batch_flush_timeout_s": 5},
            [("publish", A, 1), ("wait", 4), ("publish", B, 1), ("wait", 1)],
            [("0", 0, [0]), ("1", 0, [0]), ("0", 0, [])],
        ),
        (
            "each flush begins the time anew",
            {"batch_flush_timeout_s": 5},
            [("wait", 3), ("publish", A, 1), ("wait", 4)],
            [("0", 0, [0]), ("1", -1, [])],
        ),
        (
            "too much in memory: the heaviest partition",
            {"batch_limit": 100, "memory_bytes_max": 60},
            [("publish_alone", A, 10), ("publish_alone", B, 30), ("arrive",), ("publish", B, 10)],
            [("1", 29, list(range(30)))],
        ),
        (
            "too much in memory: never more than batch_limit",
            {"batch_limit": 20, "memory_bytes_max": 20},
            [("publish", A, 19), ("publish", A, 19)],
            [("0", 18, list(range(19))), ("0", 37, list(range(19, 38)))],
        ),
        (
            "stream_limit counts all partitions and is exact",
            {"batch_limit": 2, "stream_limit": 3},
            [("publish_alone", A, 2), ("publish_alone", B, 2), ("arrive",)],
            [("0", 1, [0, 1]), ("1", 0, [0])],
        ),
        (
            "stream_timeout: the rest is flushed",
            {"batch_limit": 9, "stream_timeout_s": 20},
            [("publish", A, 2), ("publish", B, 1), ("wait", 20)],
            [("0", 1, [0, 1]), ("1", 0, [0])],
        ),
        (
            "of tombstones and tagged events only the cursors show something",
            {"batch_limit": 2, "batch_flush_timeout_s": 5},
            [("publish_hidden", A, "t.x"), ("publish_hidden", B, "xt"), ("wait", 5)],
            [("0", 1, [1]), ("1", 1, [])],
        ),
        (
            "the cursor passes them with a later event",
            {},
            [("publish_hidden", A, ".xt"), ("publish_hidden", A, ".")],
            [("0", 0, [0]), ("0", 3, [3])],
        ),
    ),
)
def test_batches_are_flushed_as_in_the_contract(parameters, steps, batches):
    """Reference low-level-streams#memory-limit, low-level-streams#stream-limit, low-level-streams#skipped-events."""
    assert new_batches(play(low_level(A, B, **parameters), steps)) == batches


@pytest.mark.parametrize(
    ("parameters", "steps", "closed"),
    rows(
        ("age", {"stream_timeout_s": 30}, [("wait", 30)], Reason.STREAM_TIMEOUT),
        ("not before", {"stream_timeout_s": 30}, [("wait", 29.9)], None),
        ("stream_limit", {"stream_limit": 2}, [("publish", A, 1), ("publish", B, 1)], Reason.STREAM_LIMIT),
        (
            "keep-alives on all partitions",
            {"stream_keep_alive_limit": 2, "batch_flush_timeout_s": 5},
            [("wait", 10)],
            Reason.KEEP_ALIVE_LIMIT,
        ),
        (
            "keep-alives on one of them",
            {"stream_keep_alive_limit": 2, "batch_flush_timeout_s": 5},
            [("wait", 5), ("publish", A, 1), ("wait", 5)],
            None,
        ),
        (
            "an event sets the counter to 0",
            {"stream_keep_alive_limit": 2, "batch_flush_timeout_s": 5},
            [("wait", 5), ("publish", A, 1), ("publish", B, 1), ("wait", 10)],
            Reason.KEEP_ALIVE_LIMIT,
        ),
        ("a negative keep-alive limit", {"stream_keep_alive_limit": -1}, [("wait", 0)], Reason.KEEP_ALIVE_LIMIT),
        ("no keep-alive limit", {"batch_flush_timeout_s": 5}, [("wait", 3_599)], None),
        ("blacklist", {}, [("end", Reason.BLOCKED)], Reason.BLOCKED),
        ("write failure", {}, [("end", Reason.CLIENT_GONE)], Reason.CLIENT_GONE),
        ("readers changed", {}, [("end", Reason.UNAUTHORIZED)], Reason.UNAUTHORIZED),
        ("event type deleted", {}, [("end", Reason.EVENT_TYPE_DELETED)], Reason.EVENT_TYPE_DELETED),
        ("node shutdown", {}, [("end", Reason.SHUTDOWN)], Reason.SHUTDOWN),
    ),
)
def test_a_low_level_stream_ends_with_the_reason_unless_its_client_requested_the_end(parameters, steps, closed):
    """Reference low-level-streams#end-reasons, low-level-streams#keep-alive-limit."""
    stream = play(low_level(A, B, **parameters), steps)
    assert stream.closed is closed
    said = [batch.info for batch in stream.taken() if batch.info]
    wished = closed in (None, Reason.STREAM_TIMEOUT, Reason.STREAM_LIMIT, Reason.KEEP_ALIVE_LIMIT, Reason.CLIENT_GONE)
    assert said == ([] if wished else [closed.value])


def test_an_overtaken_stream_continues_with_the_oldest_event_and_reports_the_loss():
    """Reference low-level-streams#lost-events."""
    stream = low_level(A, B)
    stream.publish(A, 1)
    stream.lose(B, 4, 2)
    assert stream.taken()[1:] == [
        Batch(B, 4, [4], "skipped events due to retention time passed, count: 4"),
        Batch(B, 5, [5], ""),
    ]
    stream.lose(A, 2, 1)
    assert stream.taken() == [Batch(A, 3, [3], "skipped events due to retention time passed, count: 2")]
