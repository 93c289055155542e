import pytest

from rioni.client.consumption.failures import OUTCOMES, RETRY_MAX_S, check_on_error, outcome, retry_wait_s


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
