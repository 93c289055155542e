"""Limits for clock corrections, and handling of timestamps that contradict a store's clock."""

import structlog


CLOCK_JUMP_MAX_MS = 3_600_000
"""Maximum clock correction; a larger jump counts as a clock error."""

_log = structlog.get_logger("rioni.domain")


def not_before(previous_ms: int, now_ms: int) -> int:
    """The time stamp of what is appended now.

    Args:
        previous_ms: the time stamp of what was appended before. Time stamps do not go back when the clock is set back
            by a little, because they are searched in. One that is further in the future is wrong and not carried on:
            else nothing behind it would ever expire.
        now_ms: by the clock.
    """
    if previous_ms <= now_ms + CLOCK_JUMP_MAX_MS:
        return max(previous_ms, now_ms)
    _log.warning("events were stored with a time in the future; the clock was wrong then, or is now", by_ms=previous_ms)
    return now_ms
