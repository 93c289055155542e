"""Header `Retry-After`, what is worth another attempt, and for how long there are further ones."""

import logging
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from rioni.client.errors import ConnectionFailed, TimedOut, problem
from rioni.client.retries import RETRY_S, WAIT_MAX_S, Attempts, backoff_s, may_help, retry_after_s
from rioni.domain.errors import RETRY_AFTER_S


@pytest.mark.parametrize(
    ("header", "seconds"), [(None, None), ("", None), ("7", 7.0), ("soon", None), ("-1", None), ("nan", None)]
)
def test_seconds(header, seconds):
    assert retry_after_s(header) == seconds


def test_a_date():
    seconds = retry_after_s(format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True))
    assert seconds is not None
    assert 0 < seconds <= 60
    assert retry_after_s("Wed, 21 Oct 2015 07:28:00 GMT") == 0
    assert retry_after_s("Wed, 21 Oct 2015 07:28:00 -0000") is None


@pytest.mark.parametrize(
    ("error", "repeatable", "once"),
    [
        (ConnectionFailed("", sent=False), True, True),
        (ConnectionFailed("", sent=True), True, False),
        (ConnectionFailed("", sent=False, temporary=False), False, False),
        (problem(503, {}, request="", retry_after_s=None), True, True),
        (problem(503, {"detail": "The outcome is unknown: x"}, request="", retry_after_s=None), True, False),
        (problem(502, {}, request="", retry_after_s=None), True, False),
        (problem(500, {}, request="", retry_after_s=None), False, False),
        (problem(409, {}, request="", retry_after_s=None), False, False),
        (ValueError(), False, False),
    ],
)
def test_what_may_help(error, repeatable, once):
    assert may_help(error, again=True) == repeatable
    assert may_help(error, again=False) == once


GONE = ConnectionFailed("connection refused", sent=False)
CUT = ConnectionFailed("connection reset")
BUSY = problem(503, {"detail": "Kafka does not respond"}, request="", retry_after_s=None)
CLIENTS_WORK_AFTER_S = 5.0
"""So soon after their broker clients work again; see tests/properties/test_outages.py."""
ASKS = problem(503, {}, request="", retry_after_s=2.0)
LATE = TimedOut("no answer in time")


def recovery_s(outage_s, ex, took_s=0.0, *, retry_s=RETRY_S, **limits):
    """How long after the end of an outage the next attempt begins; raises if there is none."""
    limits = {"again": True, "count_max": None, "until_s": retry_s, "deadline_s": None} | limits
    attempts, now_s = Attempts(0.0, **limits), 0.0
    while now_s < outage_s:
        began_s, now_s = now_s, now_s + took_s
        now_s += attempts.failed(ex, began_s, now_s)
    return now_s - outage_s


@pytest.mark.parametrize("outage_s", [0.01, 0.5, 1.5, 3, 10, 30, 60, 90, 110])
@pytest.mark.parametrize("ex", [GONE, CUT, BUSY, ASKS], ids=["gone", "cut", "busy", "asks to wait"])
def test_an_outage_is_ridden_out_by_default_and_over_soon_after_its_end(ex, outage_s):
    assert recovery_s(outage_s, ex) <= WAIT_MAX_S
    assert recovery_s(outage_s, ex, retry_s=0, deadline_s=120) <= WAIT_MAX_S


@pytest.mark.parametrize("outage_s", [0.01, 1.5, 30, 60, 90])
def test_an_attempt_that_comes_too_early_is_no_long_wait(outage_s):
    """The first part of a broker that works again may be another than the one that an attempt needs."""
    asks = problem(503, {}, request="", retry_after_s=float(RETRY_AFTER_S))
    for ex in (GONE, BUSY, asks):
        assert recovery_s(outage_s + recovery_s(outage_s, ex) + 0.001, ex) <= WAIT_MAX_S
    assert 2 * max(WAIT_MAX_S, RETRY_AFTER_S) < CLIENTS_WORK_AFTER_S


@pytest.mark.parametrize("outage_s", [30, 60, 90])
def test_attempts_that_take_long_are_ridden_out_too(outage_s):
    assert recovery_s(outage_s, LATE, took_s=30) <= 30 + WAIT_MAX_S


@pytest.mark.parametrize(
    "limits",
    [
        {},
        {"deadline_s": 120},
        {"again": False},
        {"retry_s": 1},
        {"retry_s": 0},
        {"count_max": 1},
        {"count_max": 5},
        {"deadline_s": 0.05, "retry_s": 1_000},
    ],
    ids=str,
)
def test_there_is_a_last_attempt_whatever_fails(limits):
    for ex in (GONE, CUT, BUSY, ASKS, LATE):
        with pytest.raises(type(ex)) as caught:
            recovery_s(1_000, ex, **limits)
        assert caught.value is ex


def test_a_broker_that_asks_for_no_pause_is_not_asked_without_end():
    attempts = Attempts(0.0, again=True, count_max=None, until_s=1_000, deadline_s=None)
    at_once = problem(503, {}, request="", retry_after_s=0.0)
    waits = [attempts.failed(at_once, 0, 0) for _ in range(50)]
    assert waits[:5] == [0] * 5
    assert all(wait > 0 for wait in waits[5:])
    assert waits[-1] >= WAIT_MAX_S / 2


def test_the_pause_grows_up_to_a_limit_and_differs_among_clients():
    assert [round(backoff_s(n, 1.0), 3) for n in (1, 2, 3, 4, 5, 6, 1_000)] == [0.1, 0.2, 0.4, 0.8, 1.6, 2, 2]
    assert all(backoff_s(n, 0.0) == backoff_s(n, 1.0) / 2 for n in range(1, 50))
    assert len({backoff_s(10) for _ in range(100)}) > 50


def test_an_error_knows_whether_an_attempt_before_it_may_have_been_processed():
    attempts = Attempts(0.0, again=True, count_max=None, until_s=9, deadline_s=None)
    conflict = problem(409, {}, request="", retry_after_s=None)
    found = []
    for ex in (GONE, BUSY, CUT, GONE):
        attempts.failed(ex, 0, 0)
        found.append(ex.may_be_done)
    with pytest.raises(type(conflict)):
        attempts.failed(conflict, 0, 0)
    assert found == [False, False, False, True]
    assert conflict.may_be_done


def test_a_long_outage_is_logged_once_in_a_while(caplog):
    with caplog.at_level(logging.WARNING, "rioni.client"):
        recovery_s(1.0, GONE)
        assert caplog.messages == []
        recovery_s(60, GONE)
    assert 4 <= len(caplog.messages) <= 5
    assert all("connection refused" in message and "more" in message for message in caplog.messages)
