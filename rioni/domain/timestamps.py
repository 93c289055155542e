"""Timestamps, as the API writes them (reference common#dates)."""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache


_LONG_MONTH = "(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
_SHORT_MONTH = "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
_FEBRUARY = "02-(?:0[1-9]|1[0-9]|2[0-8])"
_LEAP_YEAR = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_DATE = f"(?:[0-9]{{4}}-(?:{_LONG_MONTH}|{_SHORT_MONTH}|{_FEBRUARY})|{_LEAP_YEAR}-02-29)"
_HOUR_AND_MINUTE = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_TIME = rf"{_HOUR_AND_MINUTE}:[0-5][0-9](?:\.[0-9]{{1,9}})?"

DATE_TIME = f"^{_DATE}[Tt]{_TIME}(?:[Zz]|[+-]{_HOUR_AND_MINUTE})$"
"""RFC 3339 with real calendar dates, mandatory seconds and offset, at most nine digits of a second."""


_DATE_TIME = re.compile(DATE_TIME)
_EPOCH = datetime.fromtimestamp(0, UTC)


def rfc3339(timestamp_ms: int) -> str:
    """A time as RFC 3339 in UTC with milliseconds and `Z`."""
    seconds, milliseconds = divmod(timestamp_ms, 1_000)
    return f"{_second(seconds)}.{milliseconds:03d}Z"


# PERF: formatting takes 20 µs; most timestamps are of the current second.
@lru_cache(64)
def _second(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


def milliseconds(timestamp: str) -> int:
    """The time that `rfc3339` has written."""
    return round(datetime.fromisoformat(timestamp).timestamp() * 1_000)


def parsed_ms(timestamp: str) -> int | None:
    """The time that a client has written as RFC 3339, rounded down; None where it is none."""
    if _DATE_TIME.fullmatch(timestamp) is None:
        return None
    try:
        return (datetime.fromisoformat(timestamp.upper()) - _EPOCH) // timedelta(milliseconds=1)
    except ValueError:  # the year 0
        return None


def beyond_millisecond(timestamp: str) -> bool:
    """Whether a time that a client has written is later than its millisecond, so that rounding up adds one."""
    digits = re.search(r"[.,][0-9]{3}([0-9]+)", timestamp)
    return digits is not None and digits[1].strip("0") != ""
