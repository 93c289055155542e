"""The day of an event in the lake."""

import json
from datetime import UTC, datetime

import pytest

from rioni.lake.reader import time_of


NOW = datetime(2026, 11, 20, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-01T00:30:00+01:00", datetime(2025, 12, 31, 23, 30, tzinfo=UTC)),
        ("2016-12-31T23:59:60Z", datetime(2017, 1, 1, tzinfo=UTC)),
        ("0001-01-01T00:00:00Z", datetime(1, 1, 1, tzinfo=UTC)),
        ("0001-01-01T00:00:00+05:00", NOW),
        ("0000-12-31T23:59:59Z", NOW),
        ("9999-12-31T23:59:59Z", datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)),
        ("9999-12-31T23:59:59-05:00", NOW),
        ("9999-12-31T18:59:60-05:00", NOW),
        ("9999-12-31T23:59:60Z", NOW),
        ("yesterday", NOW),
    ],
)
@pytest.mark.parametrize("member", ["received_at", "occurred_at"])
def test_a_time_that_no_day_in_utc_has_is_that_of_reading(member, text, expected):
    event = json.dumps({"metadata": {member: text}}).encode()
    assert time_of(event, "business", NOW) == expected
    assert time_of(event, "undefined", NOW) == NOW
