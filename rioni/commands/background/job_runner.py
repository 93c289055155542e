"""Retries background jobs and logs each distinct failure once."""

from collections.abc import Callable

import structlog

from rioni.domain.errors import Unavailable


_log = structlog.get_logger("rioni.attempts")


class LoggedJobRunner:
    """Remembers of each job how it failed last."""

    def __init__(self) -> None:
        self._failures: dict[str, str] = {}

    def attempt(self, what: str, job: Callable[[], None]) -> None:
        """Do a job; if it fails that is logged, once for as long as it fails in the same way, and not raised.

        What is merely not available now says so in a sentence; anything else comes with its traceback.
        """
        try:
            job()
        except Exception as ex:  # noqa: BLE001 - whatever it is, the other jobs go on
            failure = repr(ex)
            if self._failures.get(what) != failure:
                self._failures[what] = failure
                traceback = not isinstance(ex, Unavailable)
                _log.error("job failed; retrying", job=what, reason=str(ex), exc_info=traceback)
        else:
            self._failures.pop(what, None)
