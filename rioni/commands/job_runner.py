"""Retries background jobs and logs each distinct failure once."""

from collections.abc import Callable

import structlog

from rioni.domain.errors import Unavailable


_log = structlog.get_logger("rioni.background_jobs")


class LoggedJobRunner:
    """Runs jobs, and remembers the last failure of each."""

    def __init__(self) -> None:
        self._failures: dict[str, str] = {}

    def run(self, what: str, job: Callable[[], None]) -> None:
        """Run a job; log its failure, once as long as the failure stays the same, and don't raise it.

        Unavailable is logged as one sentence, any other error with its traceback.
        """
        try:
            job()
        except Exception as ex:  # noqa: BLE001 - no failure may keep the other jobs from running
            failure = repr(ex)
            if self._failures.get(what) != failure:
                self._failures[what] = failure
                traceback = not isinstance(ex, Unavailable)
                _log.error("job failed; retrying", job=what, reason=str(ex), exc_info=traceback)
        else:
            self._failures.pop(what, None)
