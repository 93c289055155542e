"""Tries again where a stream breaks: with growing pauses, and not for ever."""

import time
from collections.abc import Callable

from rioni.client import ClientError
from rioni.client.retries import RETRY_AFTER_MAX_S, RETRY_S, backoff_s, may_help


PATIENCE_S = RETRY_S
"""How long it is tried again without progress, as long as by clients: an outage of a minute is no error."""
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
        if ex is not None and (not may_help(ex, again=True) or now_s >= self._since_s + PATIENCE_S):
            raise ex
        if ex is not None and self._failures == FAILURES_SILENT:
            self._note(f"{ex}. Trying again ...")
        asked_s = getattr(ex, "retry_after_s", None) or 0.0
        self._sleep(max(backoff_s(self._failures, 1.0), min(asked_s, RETRY_AFTER_MAX_S)))
