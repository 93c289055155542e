"""Timestamps, as the API writes them (reference common#dates), and the time of an event by its metadata."""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

import msgspec


_LONG_MONTH = "(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
_SHORT_MONTH = "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
_FEBRUARY = "02-(?:0[1-9]|1[0-9]|2[0-8])"
_LEAP_YEAR = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_DATE = f"(?:[0-9]{{4}}-(?:{_LONG_MONTH}|{_SHORT_MONTH}|{_FEBRUARY})|{_LEAP_YEAR}-02-29)"
_HOUR_AND_MINUTE = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_FRACTION = r"(?:\.[0-9]{1,9})?"
_TIME = f"{_HOUR_AND_MINUTE}:[0-5][0-9]{_FRACTION}"
_DAY_MINUTES = 24 * 60
_OFFSETS = (
    # Whole hours, and those of time zones: a leap second stands at another minute with each of them.
    *(f"{sign}{hour:02d}:00" for sign in "+-" for hour in range(1, 24)),
    *("+03:30", "+04:30", "+05:30", "+05:45", "+06:30", "+08:45", "+09:30", "+10:30", "+12:45", "+13:45"),
    *("-02:30", "-03:30", "-09:30"),
)


def _last_minute(offset: str) -> str:
    """When it is 23:59 in UTC."""
    minutes = int(offset[1:3]) * 60 + int(offset[4:])
    hour, minute = divmod((_DAY_MINUTES - 1 + (minutes if offset[0] == "+" else -minutes)) % _DAY_MINUTES, 60)
    return f"{hour:02d}:{minute:02d}"


_LEAP_SECONDS = "|".join(
    [f"23:59:60{_FRACTION}(?:[Zz]|[+-]00:00)", *(f"{_last_minute(each)}:60\\{each}" for each in _OFFSETS)]
)

DATE_TIME = f"^{_DATE}[Tt](?:{_TIME}(?:[Zz]|[+-]{_HOUR_AND_MINUTE})|{_LEAP_SECONDS})$"
"""RFC 3339 with real calendar dates, mandatory seconds and offset, at most nine digits of a second.

A leap second is one at the end of a day in UTC; with an offset from UTC it has no fraction.
"""


_DATE_TIME = re.compile(DATE_TIME)
EPOCH = datetime.fromtimestamp(0, UTC)
LAST_MS = 253_402_300_799_999
"""The last millisecond of the year 9999; no later time can be written in UTC."""


def utc_text(time: datetime, timespec: str = "milliseconds") -> str:
    """A time in UTC as RFC 3339 with `Z`."""
    return time.isoformat(timespec=timespec).replace("+00:00", "Z")


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
    """The time that a client has written as RFC 3339, rounded down; None if the text is no time."""
    if _DATE_TIME.fullmatch(timestamp) is None:
        return None
    try:
        return (parsed(timestamp) - EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError):  # the year 0, or the last second of the year 9999
        return None


_LEAP_SECOND = re.compile(r"(?<=:[0-9]{2}:)60")


def parsed(timestamp: str) -> datetime:
    """A time in one of the forms of ISO 8601 or RFC 3339; a leap second is the second after it.

    Raises:
        ValueError: it is none.
        OverflowError: it is a leap second at the end of the year 9999.
    """
    text = timestamp.upper()
    if ":60" not in text:
        return datetime.fromisoformat(text)
    text, leap_seconds = _LEAP_SECOND.subn("59", text, count=1)
    return datetime.fromisoformat(text) + timedelta(seconds=leap_seconds)


def beyond_millisecond(timestamp: str) -> bool:
    """Whether a time that a client has written is later than its millisecond, so that rounding up adds one."""
    digits = re.search(r"[.,][0-9]{3}([0-9]+)", timestamp)
    return digits is not None and digits[1].strip("0") != ""


# --- The time at which an event came to the broker, from its metadata ---


class _Metadata(msgspec.Struct):
    received_at: str | None = None
    occurred_at: str | None = None


class _Timed(msgspec.Struct):
    metadata: _Metadata | None = None


_decode = msgspec.json.Decoder(_Timed).decode


def time_of(event: msgspec.Raw | bytes) -> datetime | None:
    """When the broker received an event, otherwise when it occurred; None if its metadata contain neither time."""
    try:
        metadata = _decode(event).metadata
        text = metadata and (metadata.received_at or metadata.occurred_at)
        found = parsed(text) if text else None
    except (msgspec.MsgspecError, ValueError, OverflowError):
        return None
    return found.replace(tzinfo=UTC) if found is not None and found.tzinfo is None else found
