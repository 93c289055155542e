"""Rules for repeating requests: which ones, when, and for how long."""

import logging
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from rioni.client.errors import ClientError, ConnectionFailed, Problem, ServerError, TooManyRequests, Tried, Unavailable


RETRY_S = 120.0
"""Seconds for which requests are repeated by default: a broker's restart, or an outage of a minute, is no error."""
RETRY_AFTER_MAX_S = 60.0
"""The longest time that a broker may ask to wait."""
WAIT_FIRST_S = 0.1
WAIT_MAX_S = 2.0
"""So soon after a broker has recovered its clients go on; should the first attempt come too early, so soon again."""
SILENT_S = 2.0
"""Attempts are logged when they have failed for so long, and then every `LOG_EVERY_S`."""
LOG_EVERY_S = 15.0
AT_ONCE_MAX = 5
"""Attempts that are made at once if the broker asks for no pause; later ones are made with pauses."""
GATEWAY_ERRORS = frozenset((502, 504))
"""The statuses that proxies answer with while the broker can't be reached."""
UNKNOWN_OUTCOME = "The outcome is unknown"
"""The beginning of the detail of a 503 if the change may have been made."""
LOOK_FIRST = "The broker may have made the change: look at it before you ask for it again."

_log = logging.getLogger("rioni.client")


def may_help(ex: BaseException, *, again: bool) -> bool:
    """Whether the same request may succeed a moment later.

    Args:
        ex: why it failed.
        again: whether it does no harm if the broker processed it already.
    """
    match ex:
        case ConnectionFailed():
            return ex.temporary and (again or not ex.sent)
        case Unavailable():
            return again or not may_be_done(ex)
        case TooManyRequests():
            return True
        case ServerError():
            return again and ex.status in GATEWAY_ERRORS
    return False


def may_be_done(ex: BaseException) -> bool:
    """Whether the broker may have processed the request that failed."""
    match ex:
        case ConnectionFailed():
            return ex.sent
        case Unavailable():
            return ex.detail.startswith(UNKNOWN_OUTCOME)
        case ServerError():
            return True
    return False


def backoff_s(failures: int, share: float | None = None) -> float:
    """Seconds to wait after a number of failures in a row.

    Args:
        failures: from 1 on.
        share: from 0 to 1, by which the times of many clients differ; by default a random number.
    """
    share = random.random() if share is None else share  # noqa: S311 - no secret
    return min(WAIT_FIRST_S * 2.0 ** min(failures - 1, 20), WAIT_MAX_S) * (0.5 + 0.5 * share)


class Attempts:
    """The attempts of one request, from the first that failed on.

    Args:
        begun_s: when the first one began, on the monotonic clock.
        again: whether the request may be sent again when it is unknown whether the broker processed it.
        count_max: how many there may be; None for no limit but that of time.
        until_s: when the last one may begin.
        deadline_s: when the last one must have ended; None if it may take as long as any.
    """

    def __init__(
        self, begun_s: float, *, again: bool, count_max: int | None, until_s: float, deadline_s: float | None
    ) -> None:
        self._begun_s, self._since = begun_s, datetime.now(UTC)
        self._again, self._count_max, self._until_s, self._deadline_s = again, count_max, until_s, deadline_s
        self._count = 0
        self._may_be_done = False
        self._logged_s, self._is_logged = begun_s + SILENT_S - LOG_EVERY_S, False

    def failed(self, ex: ClientError, began_s: float, now_s: float) -> float:
        """Note that an attempt failed; returns the seconds to wait before the next one.

        Args:
            ex: why.
            began_s: when the attempt began.
            now_s: the time now.

        Raises:
            ClientError: this error, since a further attempt would not help, or there is no time left for one.
        """
        self._count += 1
        ex.may_be_done = self._may_be_done
        self._may_be_done |= may_be_done(ex)
        if not may_help(ex, again=self._again):
            if not self._again and may_be_done(ex):
                ex.add_note(LOOK_FIRST)
            raise ex
        asked_s = getattr(ex, "retry_after_s", None)
        wait_s = backoff_s(self._count) if asked_s is None else min(asked_s, RETRY_AFTER_MAX_S)
        if self._count > AT_ONCE_MAX:
            wait_s = max(wait_s, backoff_s(self._count - AT_ONCE_MAX))
        if self._is_last(ex, now_s + wait_s, now_s - began_s):
            if self._count > 1:
                ex.tried = Tried(self._count, self._since, now_s - self._begun_s)
            raise ex
        if now_s - self._logged_s >= LOG_EVERY_S:
            self._logged_s, self._is_logged = now_s, True
            _log.warning(
                "Failing since %.0f s; tried again for up to %.0f s more: %s",
                now_s - self._begun_s,
                self._ends_s - now_s,
                ex,
            )
        return wait_s

    def succeeded(self, now_s: float) -> None:
        """Log that the request succeeded, if it was logged that it fails."""
        if self._is_logged:
            _log.warning("Works again after %.0f s", now_s - self._begun_s)

    @property
    def _ends_s(self) -> float:
        return self._until_s if self._deadline_s is None else self._deadline_s

    def _is_last(self, ex: ClientError, next_s: float, took_s: float) -> bool:
        if self._count_max is not None and self._count >= self._count_max:
            return True
        if self._deadline_s is None:
            return next_s > self._until_s
        # The error in a broker's answer says more than that of one more attempt, which would be cut off.
        return next_s + (took_s if isinstance(ex, Problem) else 0.0) >= self._deadline_s


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


# --- Retries when a stream breaks: with growing pauses, and not for ever ---

FAILURES_SILENT = 3
"""The number of failures in a row after which people are informed, once."""


class Patience:
    """Counts failures in a row.

    Args:
        sleep: waits a number of seconds, and may raise to end the reading.
        note: informs people of the reason for the delay.
        retry_s: seconds without progress for which it is tried again.
        now_s: the time, from any moment on.
    """

    def __init__(
        self,
        sleep: Callable[[float], object] = time.sleep,
        note: Callable[[str], object] = lambda _: None,
        retry_s: float = RETRY_S,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sleep, self._note, self._retry_s, self._now_s = sleep, note, retry_s, now_s
        self._failures, self._since_s = 0, 0.0

    def succeeded(self) -> None:
        """There was progress."""
        self._failures = 0

    def failed(self, ex: ClientError | None = None) -> None:
        """Wait before the next attempt.

        Args:
            ex: why it failed; None if the broker ended a stream without a reason.

        Raises:
            ClientError: this error, if no further attempt would help, or there was no progress for `retry_s`.
        """
        now_s = self._now_s()
        if not self._failures:
            self._since_s = now_s
        self._failures += 1
        if ex is not None and (not may_help(ex, again=True) or now_s >= self._since_s + self._retry_s):
            raise ex
        if ex is not None and self._failures == FAILURES_SILENT:
            self._note(f"{ex}. Trying again ...")
        asked_s = getattr(ex, "retry_after_s", None) or 0.0
        self._sleep(max(backoff_s(self._failures, 1.0), min(asked_s, RETRY_AFTER_MAX_S)))
