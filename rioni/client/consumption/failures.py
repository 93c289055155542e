"""Decides what follows errors: of handlers, and of streams, when the next one is opened."""

from collections.abc import Callable
from typing import Any

from rioni.client.consumption.events import Event
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
from rioni.wire.subscriptions import FailureReason


# --- The handling of events that the handler of an application fails to handle ---

STOP, SKIP, DEAD_LETTER = OUTCOMES = ("stop", "skip", "dead_letter")
RETRY_FIRST_S = 0.1
RETRY_MAX_S = 30.0
REASON_CHARACTERS_MAX = 1_000

OnError = str | Callable[[Event[Any], Exception], str]


def retry_wait_s(attempt: int) -> float:
    """Seconds between an attempt, counted from 1, and the next."""
    return float(min(RETRY_FIRST_S * 2.0 ** min(attempt - 1, 20), RETRY_MAX_S))


def check_on_error(on_error: OnError) -> None:
    """Raises ValueError if there is no such outcome."""
    if not callable(on_error):
        _check(on_error)


def outcome(on_error: OnError, event: Event[Any], ex: Exception) -> str:
    """Return the action for an event after its last attempt; raises what a function of the application raises."""
    return _check(on_error(event, ex) if callable(on_error) else on_error)


def reason_of(event: Event[Any], ex: Exception) -> FailureReason | None:
    """The reason to send to the broker for an event that is left to it; None if the event's offset is not known."""
    offset = event.offset
    if offset is None:
        return None
    return FailureReason(event_type=event.event_type, partition=event.partition, offset=offset, reason=_text(ex))


def _text(ex: Exception) -> str:
    """Type and text of an error, cut to what the broker takes; the type alone if the error has no text."""
    name = type(ex).__name__
    try:
        text = f"{name}: {ex}"
    except Exception:  # noqa: BLE001 - it is the application's
        text = name
    return text[:REASON_CHARACTERS_MAX].encode(errors="replace").decode()


def _check(name: str) -> str:
    if name not in OUTCOMES:
        raise ValueError(f"{name!r} is not what can be done with an event; there are {', '.join(OUTCOMES)}")
    return name


# --- Decides when a consumer opens its next stream, and when it must not ---

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
        """Handle the arrival of a batch."""
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
