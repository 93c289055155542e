"""Tries again where a stream breaks: with growing pauses, and not for ever."""

import time
from collections.abc import Callable

from rioni.client import ClientError, ConnectionFailed, ServerError, TooManyRequests
from rioni.client.retries import RETRY_S, WAIT_FIRST_S, WAIT_MAX_S


PATIENCE_S = RETRY_S
"""How long it is tried again without progress, as long as by clients: an outage of a minute is no error."""
ASKED_MAX_S = 10.0
"""The longest time that a broker may ask to wait."""
FAILURES_SILENT = 3
"""People are told from this one on."""


class Patience:
    """Counts failures in a row.

    Args:
        note: tells people why it takes so long.
        sleep: waits so many seconds.
        now_s: the time, from any moment on.
    """

    def __init__(
        self,
        note: Callable[[str], object],
        sleep: Callable[[float], object] = time.sleep,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._note, self._sleep, self._now_s = note, sleep, now_s
        self._failures, self._since_s = 0, 0.0

    def succeeded(self) -> None:
        """There was progress."""
        self._failures = 0

    def failed(self, ex: ClientError | None = None) -> None:
        """Wait before the next attempt.

        Args:
            ex: why it failed; None where the broker ended a stream without saying why.

        Raises:
            ClientError: this error, where no further attempt would help, or there was no progress for `PATIENCE_S`.
        """
        now_s = self._now_s()
        if not self._failures:
            self._since_s = now_s
        self._failures += 1
        temporary = ex is None or isinstance(ex, ConnectionFailed | ServerError | TooManyRequests)
        if ex is not None and (not temporary or now_s >= self._since_s + PATIENCE_S):
            raise ex
        if ex is not None and self._failures == FAILURES_SILENT:
            self._note(f"{ex}. Trying again ...")
        asked_s = getattr(ex, "retry_after_s", None) or 0.0
        self._sleep(max(min(WAIT_FIRST_S * 2 ** min(self._failures - 1, 20), WAIT_MAX_S), min(asked_s, ASKED_MAX_S)))
