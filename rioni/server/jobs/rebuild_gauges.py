"""Shows the progress of a rebuild in the metrics of the leader."""

from rioni.commands.job_runner import LoggedJobRunner
from rioni.http.metrics.collectors import Metrics
from rioni.installation.infrastructure import Infrastructure
from rioni.projections.generations.rebuilds import running


EVERY_S = 5.0


class RebuildGauges:
    """Reads the record of the running rebuild every few seconds; failures are logged."""

    def __init__(self, base: Infrastructure, metrics: Metrics) -> None:
        self._base, self._metrics, self._runner = base, metrics, LoggedJobRunner()
        self._due_at_s = base.clock.monotonic()

    def tick(self) -> None:
        """Set the gauges, if it is time to; blocks on the database."""
        if self._base.clock.monotonic() >= self._due_at_s:
            self._due_at_s = self._base.clock.monotonic() + EVERY_S
            self._runner.run("reading the progress of rebuilds", self._set)

    def _set(self) -> None:
        found = None
        if self._base.adapters.leadership.held():
            found = self._base.database_pool(self._base.read, running)
        self._metrics.rebuild_running.set(found is not None)
        self._metrics.rebuild_phase_ratio.set(0 if found is None else found.done / max(1, found.total))
