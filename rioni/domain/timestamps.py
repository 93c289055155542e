"""Timestamps as the API writes them (reference common#dates)."""

import re
from datetime import UTC, datetime, timedelta

from rioni.domain.schemas.formats import DATE_TIME


_DATE_TIME = re.compile(DATE_TIME)
_EPOCH = datetime.fromtimestamp(0, UTC)


def rfc3339(timestamp_ms: int) -> str:
    """A time as RFC 3339 in UTC with milliseconds and `Z`."""
    seconds, milliseconds = divmod(timestamp_ms, 1_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{milliseconds:03d}Z"


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
