"""Watchdog: checks that the periodic jobs of a process still run."""

from collections.abc import Callable

from rioni.commands.job_runner import LoggedJobRunner
from rioni.domain.ports.clock import Clock
from rioni.domain.ports.health import Health


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
        """The same jobs, watched; a bug in one round does not prevent the next one."""

        def run() -> None:
            self._runner.run("jobs", jobs)
            self._done_at_s = self._clock.monotonic()

        return run

    def health(self) -> Health:
        """Failed if the jobs last completed more than `SILENT_S` ago."""
        ago_s = self._clock.monotonic() - self._done_at_s
        reason = "The background jobs of this process hang: restart it." if ago_s > SILENT_S else ""
        return Health(reason=reason, detail=f"done {ago_s:.0f} s ago")
