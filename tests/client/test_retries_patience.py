import pytest

from rioni.client import ConnectionFailed
from rioni.client.errors import UnexpectedAnswer, problem
from rioni.client.retries import FAILURES_SILENT, RETRY_AFTER_MAX_S, RETRY_S, WAIT_MAX_S, Patience, may_help


@pytest.fixture
def pauses():
    return []


@pytest.fixture
def notes():
    return []


@pytest.fixture
def patience(pauses, notes):
    return Patience(pauses.append, notes.append, now_s=lambda: sum(pauses))


def _problem(status, retry_after_s=None):
    return problem(status, {"title": "no"}, request="GET /", retry_after_s=retry_after_s)


def test_pauses_grow_up_to_a_limit_and_then_it_is_an_error(patience, pauses, notes):
    while sum(pauses) < RETRY_S:
        patience.failed(ConnectionFailed("no answer"))
    assert pauses == sorted(pauses)
    assert pauses[-1] == WAIT_MAX_S
    assert notes == ["no answer. Trying again ..."]
    with pytest.raises(ConnectionFailed):
        patience.failed(ConnectionFailed("no answer"))


def test_progress_begins_anew(patience, pauses, notes):
    for _ in range(2_000):
        patience.failed(_problem(503))
        patience.succeeded()
    assert len(set(pauses)) == 1
    assert not notes or FAILURES_SILENT == 1


def test_a_broker_may_ask_for_a_longer_pause(patience, pauses):
    patience.failed(_problem(429, retry_after_s=4))
    patience.failed(_problem(503, retry_after_s=86_400))
    assert pauses == [4, RETRY_AFTER_MAX_S]


ERRORS = [
    ConnectionFailed("cut"),
    ConnectionFailed("refused", sent=False),
    ConnectionFailed("certificate verify failed", sent=False, temporary=False),
    UnexpectedAnswer("<html>"),
    *map(_problem, (400, 401, 403, 404, 409, 412, 413, 422, 429, 500, 501, 502, 503, 504)),
]


@pytest.mark.parametrize("ex", ERRORS, ids=str)
def test_what_is_worth_another_attempt_is_decided_as_by_clients(patience, pauses, ex):
    """A certificate that is not trusted would be refused for two minutes, otherwise."""
    if may_help(ex, again=True):
        patience.failed(ex)
        assert len(pauses) == 1
    else:
        with pytest.raises(type(ex)):
            patience.failed(ex)
        assert pauses == []


def test_streams_that_end_without_a_reason_are_no_error(patience, pauses):
    for _ in range(100):
        patience.failed()
    assert pauses[-1] == WAIT_MAX_S
