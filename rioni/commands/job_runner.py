"""Retries background jobs and logs each distinct failure once."""

from collections.abc import Callable

import structlog

from rioni.config.failures import FailureLog


_log = structlog.get_logger("rioni.background_jobs")

_FAILED = "job failed; retrying"


class LoggedJobRunner:
    """Runs jobs, and remembers the last failure of each."""

    def __init__(self) -> None:
        self._failures = FailureLog(_log)

    def run(self, what: str, job: Callable[[], bool | None]) -> None:
        """Run a job; log its failure as `FailureLog` does, and don't raise it.

        Args:
            what: names the job in the log.
            job: returns False where there was nothing to do, which does not tell whether it works again.
        """
        try:
            done = job()
        except Exception as ex:  # noqa: BLE001 - no failure may keep the other jobs from running
            self._failures.failed(_FAILED, ex, of=what, job=what)
        else:
            if done is not False:
                self._failures.succeeded(_FAILED, of=what, job=what)
