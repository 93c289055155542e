from typing import NamedTuple

import pytest

from rioni.client import FailureReason
from rioni.client.consumption.failures import OUTCOMES, RETRY_MAX_S, check_on_error, outcome, reason_of, retry_wait_s


def test_pauses_between_attempts_double_up_to_a_limit():
    assert [retry_wait_s(n) for n in (1, 2, 3)] == [0.1, 0.2, 0.4]
    assert retry_wait_s(10**6) == RETRY_MAX_S


@pytest.mark.parametrize("name", OUTCOMES)
def test_an_outcome_is_fixed_or_chosen_for_each_event(name):
    check_on_error(name)
    assert outcome(name, None, ValueError()) == name
    assert outcome(lambda *_: name, None, ValueError()) == name


def test_an_outcome_that_is_none_is_refused():
    with pytest.raises(ValueError, match="'retry' is not what can be done with an event; there are stop, skip"):
        check_on_error("retry")
    check_on_error(lambda *_: "retry")
    with pytest.raises(ValueError, match="'retry'"):
        outcome(lambda *_: "retry", None, KeyError())


class Left(NamedTuple):
    offset: str | None
    event_type: str = "a"
    partition: str = "0"


@pytest.mark.parametrize(
    ("ex", "reason"),
    [
        (ValueError("no such customer"), "ValueError: no such customer"),
        (LookupError(), "LookupError: "),
        (ValueError("x" * 10_000), f"ValueError: {'x' * 988}"),
        (ValueError("half \ud83d"), "ValueError: half ?"),
        (ValueError("\u00e9\x00\U0001f642\n"), "ValueError: \u00e9\x00\U0001f642\n"),
    ],
    ids=["usual", "empty", "long", "surrogate", "unicode"],
)
def test_a_reason_is_type_and_text_of_an_error_within_the_limits_of_the_broker(ex, reason):
    assert reason_of(Left("7"), ex) == FailureReason(event_type="a", partition="0", offset="7", reason=reason)
    assert 1 <= len(reason) <= 1_000
    assert reason.encode()


def test_where_the_offset_of_an_event_is_not_known_there_is_no_reason():
    assert reason_of(Left(None), ValueError("x")) is None


def test_an_error_that_can_not_say_its_text_is_named_by_its_type():
    class Silent(Exception):
        def __str__(self) -> str:
            raise KeyError("no text")

    assert reason_of(Left("7"), Silent()).reason == "Silent"
