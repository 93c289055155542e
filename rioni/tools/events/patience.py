"""Tries again where a stream breaks: with growing pauses, and not for ever."""

import time
from collections.abc import Callable

from rioni.client import ClientError, ConnectionFailed, ServerError, TooManyRequests


PAUSE_FIRST_S = 0.1
PAUSE_MAX_S = 10.0
FAILURES_MAX = 12
"""Failures in a row; with the pauses between them, about a minute."""
FAILURES_SILENT = 3
"""People are told from this one on."""


class Patience:
    """Counts failures in a row.

    Args:
        note: tells people why it takes so long.
        sleep: waits so many seconds.
    """

    def __init__(self, note: Callable[[str], None], sleep: Callable[[float], None] = time.sleep) -> None:
        self._note, self._sleep = note, sleep
        self._failures = 0

    def succeeded(self) -> None:
        """There was progress."""
        self._failures = 0

    def failed(self, ex: ClientError | None = None) -> None:
        """Wait before the next attempt.

        Args:
            ex: why it failed; None where the broker ended a stream without saying why.

        Raises:
            ClientError: this error, where no further attempt would help, or there were too many.
        """
        self._failures += 1
        temporary = ex is None or isinstance(ex, ConnectionFailed | ServerError | TooManyRequests)
        if ex is not None and (not temporary or self._failures >= FAILURES_MAX):
            raise ex
        if ex is not None and self._failures == FAILURES_SILENT:
            self._note(f"{ex}. Trying again ...")
        asked_s = getattr(ex, "retry_after_s", None) or 0.0
        self._sleep(min(max(PAUSE_FIRST_S * 2 ** (self._failures - 1), asked_s), PAUSE_MAX_S))
