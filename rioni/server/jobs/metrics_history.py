"""Has one worker of a node take samples of the metrics of all of them, for charts."""

from rioni.commands.job_runner import LoggedJobRunner
from rioni.domain.ports.leadership import Leadership
from rioni.http.metrics.collectors import Metrics
from rioni.http.metrics.history_table import EVERY_S
from rioni.http.metrics.sampler import Sampler
from rioni.installation.infrastructure import Infrastructure
from rioni.server.jobs.lags import Lags


class MetricsHistory:
    """Takes a sample every ten seconds, if this worker is the one of its node that does; failures are logged."""

    def __init__(self, base: Infrastructure, metrics: Metrics, elected: Leadership, lags: Lags) -> None:
        self._clock, self._metrics, self._elected = base.clock, metrics, elected
        self._sampler = Sampler(metrics, lags.of_partitions)
        self._runner, self._pool = LoggedJobRunner(), base.pools.files
        self._due_at_s = float("-inf")

    def tick(self) -> None:
        """Take a sample, if it is time to. Blocks on the files of the metrics."""
        now_s = self._clock.monotonic()
        if now_s >= self._due_at_s and self._elected.held():
            # In step with the time before, unless that was long ago.
            self._due_at_s = max(self._due_at_s + EVERY_S, now_s + EVERY_S / 2)
            self._runner.run("taking samples of metrics", self._sample)

    def _sample(self) -> None:
        now_ms = self._clock.now_ms()
        values = self._pool(self._sampler.sample, now_ms, self._clock.monotonic())
        self._metrics.history.write(now_ms, values)
