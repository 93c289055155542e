"""Header `Retry-After`, and what is worth another attempt."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from rioni.client.errors import ConnectionFailed, problem
from rioni.client.retries import may_help, retry_after_s


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
