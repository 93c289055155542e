"""The policy of subscriptions for events that consumers fail to process: reference streams#dead-letter-handling."""

import pytest

from rioni.domain.subscriptions.dead_letters import POLICY, SEND_COUNT, Policy, policy_error, policy_of
from tests.support.tables import rows


@pytest.mark.parametrize(
    ("annotations", "policy"),
    rows(
        ("none", {}, None),
        ("SKIP_EVENT, the least", {SEND_COUNT: "2", POLICY: "SKIP_EVENT"}, Policy(send_count=2, keeps=False)),
        (
            "DEAD_LETTER_QUEUE, the most",
            {SEND_COUNT: "10", POLICY: "DEAD_LETTER_QUEUE", "other": "x"},
            Policy(send_count=10, keeps=True),
        ),
    ),
)
def test_annotations_define_the_policy(annotations, policy):
    """Reference subscriptions#dead-letter-policy."""
    assert policy_error(annotations) is None
    assert policy_of(annotations) == policy


@pytest.mark.parametrize(
    ("annotations", "text"),
    rows(
        (
            "a number alone",
            {SEND_COUNT: "3"},
            f"The annotation {SEND_COUNT} needs {POLICY} beside it; give both of them or none",
        ),
        (
            "a policy alone",
            {POLICY: "SKIP_EVENT"},
            f"The annotation {POLICY} needs {SEND_COUNT} beside it; give both of them or none",
        ),
        *(
            (
                f"number {count:.9}",
                {SEND_COUNT: count, POLICY: "SKIP_EVENT"},
                f"The annotation {SEND_COUNT} must be an integer from 2 to 10",
            )
            for count in ("1", "11", "", "-2", "2.5", "two", "٣", "1" * 1000)
        ),
        *(
            (
                f"policy {policy}",
                {SEND_COUNT: "2", POLICY: policy},
                f"The annotation {POLICY} must be SKIP_EVENT or DEAD_LETTER_QUEUE",
            )
            for policy in ("", "skip_event", "DROP")
        ),
    ),
)
def test_invalid_annotations_are_named_and_define_no_policy(annotations, text):
    """Reference subscriptions#dead-letter-policy."""
    assert policy_error(annotations) == text
    assert policy_of(annotations) is None
