import re
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.domain.schemas.patterns import PATTERNS, is_uuid
from rioni.domain.timestamps import DATE_TIME


def is_date_time(text: str) -> bool:
    return re.fullmatch(DATE_TIME[1:-1], text) is not None


@pytest.mark.parametrize(
    "text",
    [
        "2024-01-02T03:04:05Z",
        "2024-01-02t03:04:05z",
        "2024-01-02T03:04:05.1Z",
        "2024-01-02T03:04:05.123456789+07:00",
        "2024-02-29T23:59:59-00:00",
        "2000-02-29T00:00:00Z",
        "0000-01-01T00:00:00Z",
        "2016-12-31T23:59:60Z",
        "2016-12-31t23:59:60.999z",
        "2016-12-31T23:59:60+00:00",
        "2016-12-31T23:59:60-00:00",
        "1990-12-31T15:59:60-08:00",
        "2017-01-01T00:59:60+01:00",
        "2017-01-01T05:29:60+05:30",
        "2017-01-01T05:44:60+05:45",
        "2016-12-31T20:29:60-03:30",
        "2017-01-01T22:59:60+23:00",
    ],
)
def test_rfc_3339_is_a_date_time(text):
    """Reference schemas#date-time."""
    assert is_date_time(text)


@pytest.mark.parametrize(
    "text",
    [
        "2024-01-02T03:04:05+0700",
        "2024-01-02T03:04:05+07:00:30",
        "2024-01-02 03:04:05Z",
        "2024-01-02T03:04:05",
        "2024-01-02T03:04Z",
        "2024-01-02T03:04:05.1234567891Z",
        "2024-01-02T03:04:05.Z",
        "2024-01-45T03:04:05Z",
        "2023-02-29T03:04:05Z",
        "1900-02-29T03:04:05Z",
        "2024-04-31T03:04:05Z",
        "2024-13-01T03:04:05Z",
        "2024-01-02T24:00:00Z",
        "2024-01-02T03:60:00Z",
        "2024-01-02T03:04:60Z",
        "2016-12-31T22:59:60Z",
        "2016-12-31T23:58:60Z",
        "2016-12-31T23:59:61Z",
        "2016-12-31T23:59:60",
        "2016-12-31T23:59:60+01:00",
        "2017-01-01T00:59:60-01:00",
        "2024-01-02T03:04:05+24:00",
        "\u0662024-01-02T03:04:05Z",
        "",
    ],
)
def test_anything_else_is_no_date_time(text):
    """Reference schemas#date-time."""
    assert not is_date_time(text)


@given(st.datetimes(), st.sampled_from(["Z", "+01:30", "-12:00"]))
def test_every_real_moment_is_a_date_time(moment, offset):
    assert is_date_time(f"{moment.isoformat()}{offset}")


@given(st.integers(0, 9999), st.integers(0, 13), st.integers(0, 32))
def test_only_days_of_the_calendar_are_accepted(year, month, day):
    text = f"{year:04}-{month:02}-{day:02}"
    try:
        real = datetime.fromisoformat(text) is not None
    except ValueError:
        real = year == 0 and is_date_time(f"2000{text[4:]}T00:00:00Z")  # Python knows no year 0, a leap year
    assert is_date_time(f"{text}T00:00:00Z") is real


@pytest.mark.parametrize(
    ("code", "known"), [("EUR", True), ("USD", True), ("eur", False), ("ABC", False), ("EURO", False)]
)
def test_currencies_are_alphabetic_codes(code, known):
    """Reference schemas#formats."""
    assert (re.fullmatch(PATTERNS["iso-4217"][1:-1], code) is not None) is known
    assert PATTERNS["ISO-4217"] == PATTERNS["iso-4217"]


@pytest.mark.parametrize(
    ("text", "uuid"),
    [
        ("0d1b6f0e-3c52-4d8c-9b50-0f2b7f6d2a11", True),
        ("0D1B6F0E-3C52-4D8C-9B50-0F2B7F6D2A11", True),
        ("0d1b6f0e3c524d8c9b500f2b7f6d2a11", False),
        ("0d1b6f0e-3c52-4d8c-9b50-0f2b7f6d2a11\n", False),
        ("", False),
    ],
)
def test_a_uuid_has_four_dashes(text, uuid):
    assert is_uuid(text) is uuid
