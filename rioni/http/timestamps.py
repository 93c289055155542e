"""Timestamps as the API writes them (registry contract 1.5)."""

from datetime import UTC, datetime


def rfc3339(timestamp_ms: int) -> str:
    """A time as RFC 3339 in UTC with milliseconds and `Z`."""
    seconds, milliseconds = divmod(timestamp_ms, 1_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{milliseconds:03d}Z"
