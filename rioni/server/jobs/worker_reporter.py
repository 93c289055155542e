"""Has a worker tell the others about itself, for `GET /nodes`."""

import os
import socket

from rioni import __version__
from rioni.commands.job_runner import LoggedJobRunner
from rioni.domain.system.worker_reports import WorkerReport, encoded
from rioni.http.metrics.collectors import Metrics, total
from rioni.installation.infrastructure import Infrastructure


class WorkerReporter:
    """Tells through the coordinator what this process does; failures are logged."""

    def __init__(self, base: Infrastructure, metrics: Metrics) -> None:
        self._base, self._metrics = base, metrics
        self._started_ms, self._at_s = base.clock.now_ms(), base.clock.monotonic()
        self._requests = total(metrics.requests)
        self._runner = LoggedJobRunner()

    def report(self, number: int, port: int) -> None:
        """Tell the others; call it every `EVERY_S` of `rioni.domain.system.worker_reports`. Blocks on the coordinator.

        Args:
            number: of this worker among those of its node.
            port: where the node is served.
        """
        self._runner.run("telling other workers about this one", lambda: self._tell(number, port))

    def _tell(self, number: int, port: int) -> None:
        base, metrics = self._base, self._metrics
        before, before_s = self._requests, self._at_s
        self._requests, self._at_s = total(metrics.requests), base.clock.monotonic()
        report = WorkerReport(
            node=base.directory.broker,
            host=socket.gethostname(),
            port=port,
            version=__version__,
            workers=base.config.workers,
            number=number,
            pid=os.getpid(),
            started_ms=self._started_ms,
            reported_ms=base.clock.now_ms(),
            log_position=base.registry.position,
            connections=int(total(metrics.connections)),
            streams=int(total(metrics.streams)),
            requests_per_s=round((self._requests - before) / max(self._at_s - before_s, 1.0), 3),
        )
        base.adapters.coordinator.announce(encoded(report))
