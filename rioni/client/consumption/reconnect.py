"""Decides when a consumer opens its next stream, and when it must not."""

from collections.abc import Callable

from rioni.client.errors import (
    ClientError,
    Conflict,
    ConnectionFailed,
    Problem,
    ServerError,
    TooManyRequests,
    Unauthorized,
    UnexpectedAnswer,
)
from rioni.client.retries import RETRY_AFTER_MAX_S, WAIT_FIRST_S, backoff_s


REQUEST_S = 2.0
"""Seconds for which a consumer repeats a request: then it goes on by itself, since it knows more and may be stopped."""
DOUBTS_MAX = 10
"""The most times in a row that a stream may be refused for a reason that may be the error of this client."""
REFUSALS_MAX = 10
"""The most times in a row that commits of a partition may be refused: each time its events come again."""


class Reconnect:
    """Counts failures in a row, and returns how long to wait.

    Args:
        limit_s: how long to try without a batch; None for no limit.
        random: gives numbers from 0 to 1, by which the waiting times of many clients differ.
    """

    def __init__(self, limit_s: float | None, random: Callable[[], float]) -> None:
        self._limit_s, self._random = limit_s, random
        self._worked = False
        self._failures = self._doubts = 0
        self._failing_since_s: float | None = None

    def received(self) -> None:
        """A batch has come."""
        if self._failures or not self._worked:
            self._worked, self._failures, self._doubts, self._failing_since_s = True, 0, 0, None

    def ended(self, ex: ClientError | None, now_s: float) -> float:
        """Seconds to wait after a stream that has ended, or that could not be opened.

        Args:
            ex: why; None if the broker ended it.
            now_s: the time.

        Raises:
            ClientError: that one, since another attempt would not help.
        """
        if ex is not None and (not self._may_heal(ex) or self._too_late(now_s)):
            raise ex
        if self._failing_since_s is None:
            self._failing_since_s = now_s
        self._failures += 1
        if isinstance(ex, Problem) and (asked_s := ex.retry_after_s) is not None:
            return min(asked_s, RETRY_AFTER_MAX_S) + WAIT_FIRST_S * self._random()
        if ex is None and self._failures == 1:
            return 0.0
        return backoff_s(self._failures, self._random())

    def _may_heal(self, ex: ClientError) -> bool:
        if isinstance(ex, (Unauthorized, UnexpectedAnswer)):
            self._doubts += 1
            return self._worked and self._doubts <= DOUBTS_MAX
        if isinstance(ex, ConnectionFailed):
            return ex.temporary
        return isinstance(ex, (Conflict, TooManyRequests, ServerError))

    def _too_late(self, now_s: float) -> bool:
        since_s = self._failing_since_s
        return self._limit_s is not None and since_s is not None and now_s - since_s >= self._limit_s
