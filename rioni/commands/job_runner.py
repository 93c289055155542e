"""Background jobs: they are retried, each distinct failure is logged once, and a watchdog tells if they still run."""

from collections.abc import Callable

import structlog

from rioni.config.logs import FailureLog
from rioni.domain.ports.host import Clock, Health


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
            job: returns False if there was nothing to do: then it does not count as a success.
        """
        try:
            done = job()
        except Exception as ex:  # noqa: BLE001 - no failure may keep the other jobs from running
            self._failures.failed(_FAILED, ex, of=what, job=what)
        else:
            if done is not False:
                self._failures.succeeded(_FAILED, of=what, job=what)


# --- Watchdog: checks that the periodic jobs of a process still run ---

SILENT_S = 600.0
"""A round of jobs that takes longer counts as hanging."""


class JobWatchdog:
    """Records when the jobs of a process last completed."""

    def __init__(self, clock: Clock) -> None:
        """Start counting now."""
        self._clock = clock
        self._runner = LoggedJobRunner()
        self._done_at_s = clock.monotonic()

    def watched(self, jobs: Callable[[], None]) -> Callable[[], None]:
        """Wrap the jobs so that they are watched; a bug in one round does not prevent the next one."""

        def run() -> None:
            self._runner.run("jobs", jobs)
            self._done_at_s = self._clock.monotonic()

        return run

    def health(self) -> Health:
        """Failed if the jobs last completed more than `SILENT_S` ago."""
        ago_s = self._clock.monotonic() - self._done_at_s
        reason = "The background jobs of this process hang: restart it." if ago_s > SILENT_S else ""
        return Health(reason=reason, detail=f"done {ago_s:.0f} s ago")
