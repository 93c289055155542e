import itertools

import pytest

from rioni.client import (
    BadRequest,
    Conflict,
    ConnectionFailed,
    Forbidden,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    UnexpectedAnswer,
    Unprocessable,
)
from rioni.client.consumption.failures import DOUBTS_MAX, Reconnect
from rioni.client.errors import problem
from rioni.client.retries import WAIT_MAX_S


def refused(status, retry_after_s=None):
    return problem(status, {}, request="GET /", retry_after_s=retry_after_s)


def reconnect(limit_s=None, random=lambda: 1.0):
    return Reconnect(limit_s, random)


def test_the_first_stream_after_one_that_worked_comes_at_once():
    tries = reconnect()
    tries.received()
    assert tries.ended(None, 0) == 0
    assert tries.ended(None, 0) > 0


def test_waits_double_up_to_a_limit_and_start_anew_after_a_batch():
    tries = reconnect()
    waits = [tries.ended(ConnectionFailed("broken"), 0) for _ in range(20)]
    assert waits == sorted(waits)
    assert (waits[0], waits[1], waits[-1]) == (0.1, 0.2, WAIT_MAX_S)
    tries.received()
    assert tries.ended(ConnectionFailed("broken"), 0) == 0.1


def test_waits_of_many_clients_differ():
    assert {reconnect(random=lambda x=x: x).ended(ConnectionFailed(""), 0) for x in (0.0, 1.0)} == {0.05, 0.1}


def test_the_broker_says_how_long_to_wait_within_limits():
    tries = reconnect(random=lambda: 0.0)
    assert tries.ended(refused(503, 7), 0) == 7
    assert tries.ended(refused(429, 1e9), 0) == 60


@pytest.mark.parametrize("ex", [None, ConnectionFailed(""), refused(409), refused(503)], ids=str)
def test_after_any_outage_and_in_reserve_a_consumer_asks_often(ex):
    tries = reconnect()
    assert [tries.ended(ex, 0) for _ in range(100)][-1] <= 3


def test_a_failure_that_lasts_is_raised():
    with pytest.raises(ConnectionFailed):
        reconnect().ended(ConnectionFailed("certificate", temporary=False), 0)


@pytest.mark.parametrize("ex", [ConnectionFailed(""), *map(refused, (409, 429, 500, 502, 503))], ids=str)
def test_what_may_heal_is_tried_again(ex):
    assert isinstance(ex, (ConnectionFailed, Conflict, TooManyRequests, ServerError, Unavailable))
    tries = reconnect()
    assert all(tries.ended(ex, now_s) > 0 for now_s in range(0, 100_000, 1_000))


@pytest.mark.parametrize(
    ("status", "kind"), [(400, BadRequest), (403, Forbidden), (404, NotFound), (422, Unprocessable)]
)
def test_what_cannot_heal_is_raised(status, kind):
    tries = reconnect()
    tries.received()
    with pytest.raises(kind):
        tries.ended(refused(status), 0)


@pytest.mark.parametrize("ex", [refused(401), UnexpectedAnswer("<html>")], ids=["401", "HTML"])
def test_what_may_be_an_error_of_the_client_is_tried_again_a_few_times_where_it_worked_before(ex):
    with pytest.raises(type(ex)):
        reconnect().ended(ex, 0)
    tries = reconnect()
    for _ in range(2):
        tries.received()
        for _ in range(DOUBTS_MAX):
            tries.ended(ex, 0)
    with pytest.raises((Unauthorized, UnexpectedAnswer)):
        tries.ended(ex, 0)


def test_a_limit_of_time_counts_from_the_last_batch():
    tries = reconnect(limit_s=60)
    for start in (0, 1_000):
        tries.received()
        for now_s in range(start, start + 60, 10):
            tries.ended(ConnectionFailed("gone"), now_s)
    with pytest.raises(ConnectionFailed, match="gone"):
        tries.ended(ConnectionFailed("gone"), 1_060)


def test_streams_without_a_batch_are_not_opened_in_a_row():
    tries = reconnect()
    waits = [tries.ended(None, 0) for _ in range(20)]
    assert all(later >= earlier for earlier, later in itertools.pairwise(waits))
    assert waits[-1] == WAIT_MAX_S
