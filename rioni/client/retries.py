"""Which requests are made again, and when."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from rioni.client.errors import ConnectionFailed, ServerError, TooManyRequests, Unavailable


RETRY_AFTER_MAX_S = 60.0
"""The longest time that a broker may ask to wait."""
GATEWAY_ERRORS = frozenset((502, 504))
"""What proxies answer while the broker can't be reached."""
UNKNOWN_OUTCOME = "The outcome is unknown"
"""How the detail of a 503 begins where the change may have been made."""


def may_help(ex: BaseException, *, again: bool) -> bool:
    """Whether the same request may succeed a moment later.

    Args:
        ex: why it failed.
        again: whether it does no harm if the broker processed it already.
    """
    match ex:
        case ConnectionFailed():
            return again or not ex.sent
        case Unavailable():
            return again or not ex.detail.startswith(UNKNOWN_OUTCOME)
        case TooManyRequests():
            return True
        case ServerError():
            return again and ex.status in GATEWAY_ERRORS
    return False


def retry_after_s(header: str | None) -> float | None:
    """Seconds that a header `Retry-After` asks to wait: a number, or a date as HTTP writes it."""
    if not header:
        return None
    if header.isdecimal():
        return float(header)
    try:
        return max((parsedate_to_datetime(header) - datetime.now(UTC)).total_seconds(), 0.0)
    except (TypeError, ValueError):
        return None
