"""The handling of events that the handler of an application fails to handle."""

from collections.abc import Callable
from typing import Any

from rioni.client.consumption.events import Event
from rioni.wire.subscriptions import FailureReason


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
