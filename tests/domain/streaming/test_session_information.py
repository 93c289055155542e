"""The information for humans in streams of subscriptions, string by string: reference streams#json-batches."""

import pytest

from rioni.domain.streaming.messages import Reason
from rioni.domain.subscriptions.dead_letters import Failures, Policy
from tests.domain.streaming.driver import A, B, Driver, place, subscription
from tests.domain.streaming.script import play
from tests.support.tables import rows


def stream(policy: Policy | None = None, **parameters) -> Driver:
    """A stream of a subscription; it owns no partition yet."""
    return Driver(subscription(policy, **parameters).parameters, policy=policy)


SENT = ("publish", A, 1)
STARTED = "Stream started"
LOST = "skipped events due to retention time passed, count: 4"


@pytest.mark.parametrize(
    ("parameters", "steps", "said"),
    rows(
        ("Stream started", {}, [("own", A), SENT], [STARTED]),
        ("Stream started, an empty batch", {"batch_flush_timeout_s": 5}, [("own", A), ("wait", 5)], [STARTED]),
        ("Stream started, once", {}, [("own", A, B), SENT, ("publish", B, 1)], [STARTED, ""]),
        ("skipped events", {}, [("own", A), ("lose", A, 4, 1)], [f"{STARTED}; {LOST}"]),
        (
            "skipped events of a partition that sends later",
            {},
            [("own", A, B), SENT, ("lose", B, 4, 1)],
            [STARTED, LOST],
        ),
        (
            "Stream timeout reached",
            {"stream_timeout_s": 9},
            [("own", A), SENT, ("wait", 9)],
            [STARTED, "Stream timeout reached"],
        ),
        (
            "Commit timeout reached",
            {"commit_timeout_s": 9},
            [("own", A), SENT, ("wait", 9)],
            [STARTED, "Commit timeout reached"],
        ),
        (
            "Stream limit in events reached: N",
            {"stream_limit": 2},
            [("own", A), ("publish", A, 2), ("commit", A, 1)],
            [STARTED, "", "Stream limit in events reached: 2"],
        ),
        (
            "Resetting subscription cursors",
            {},
            [("own", A), SENT, ("end", Reason.RESET)],
            [STARTED, "Resetting subscription cursors"],
        ),
        (
            "Consumption is blocked",
            {},
            [("own", A), SENT, ("end", Reason.BLOCKED)],
            [STARTED, "Consumption is blocked"],
        ),
        (
            "Stream parameters are causing overflow",
            {"batch_limit": 100, "max_uncommitted_events": 1_000, "memory_bytes_max": 10},
            [("own", A), ("publish", A, 9)],
            [f"{STARTED}; Stream parameters are causing overflow"],
        ),
        ("no partition, nothing is written", {}, [("end", Reason.RESET)], []),
        (
            "the last batch belongs to one of its partitions",
            {},
            [("own", A, B), SENT, ("end", Reason.BLOCKED)],
            [STARTED, "Consumption is blocked"],
        ),
    ),
)
def test_information_has_the_exact_texts(parameters, steps, said):
    """Reference streams#info-texts."""
    played = play(stream(**parameters), steps)
    assert [batch.info for batch in played.batches] == said
    assert all(batch.partition in played.ownership for batch in played.batches)
    # 8.9: the stored offset is unchanged until the client commits.
    assert not played.autocommitted
    assert played.machine.expired_unread == (4 if LOST in "".join(said) else 0)


def test_dead_letter_tracking_is_reported_with_the_next_batch_after_a_change_of_partitions():
    """Reference streams#json-batches."""
    played = stream(Policy(send_count=3, keeps=False))
    played.own(A, failures=Failures(2, failed=place(7), search_until=place(9)))
    played.publish(A, 1)
    (batch,) = played.taken()
    assert batch.info == (
        "Stream started; Auto DLQ failed commits tracking: "
        "{a:0 failedCommitsCount=2 lastDeadLetterOffset=001-0001-000000000000000009}"
    )
