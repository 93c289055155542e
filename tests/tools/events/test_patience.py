import pytest

from rioni.client import ConnectionFailed
from rioni.client.errors import problem
from rioni.tools.events.patience import FAILURES_SILENT, PATIENCE_S, WAIT_MAX_S, Patience


@pytest.fixture
def pauses():
    return []


@pytest.fixture
def notes():
    return []


@pytest.fixture
def patience(pauses, notes):
    return Patience(notes.append, pauses.append, lambda: sum(pauses))


def _problem(status, retry_after_s=None):
    return problem(status, {"title": "no"}, request="GET /", retry_after_s=retry_after_s)


def test_pauses_grow_up_to_a_limit_and_then_it_is_an_error(patience, pauses, notes):
    while sum(pauses) < PATIENCE_S:
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
    assert pauses == [4]


@pytest.mark.parametrize("status", [400, 403, 404, 412, 422])
def test_what_would_fail_again_is_an_error_at_once(patience, pauses, status):
    with pytest.raises(type(_problem(status))):
        patience.failed(_problem(status))
    assert not pauses


def test_streams_that_end_without_a_reason_are_no_error(patience, pauses):
    for _ in range(100):
        patience.failed()
    assert pauses[-1] == WAIT_MAX_S
