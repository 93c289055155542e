"""Records usage metrics: a few microseconds each, and nothing while the feature is off."""

from collections.abc import Callable

from rioni.domain.ports.registry import Registry
from rioni.domain.ports.spool import Spool, Spools
from rioni.domain.system.kpis import BatchPublished, BatchStreamed, Measurement, RequestServed, line_of
from rioni.domain.system.system_event_types import ACCESS_FEATURE, KPI_FEATURE


class UsageRecorder:
    """Keeps what was measured until it is published as KPI events; see `rioni.commands.system.kpi_publisher`."""

    def __init__(self, registry: Registry, spools: Spools, dropped: Callable[[int], None]) -> None:
        """Keep the dependencies.

        Args:
            registry: knows which features are on.
            spools: store the measurements.
            dropped: called with the number of measurements for which there was no room.
        """
        self._registry, self.spools, self.dropped = registry, spools, dropped
        self._stream_ended = False

    @property
    def on(self) -> bool:
        """Whether anything is measured."""
        return KPI_FEATURE in self._registry.settings.features

    @property
    def access_on(self) -> bool:
        """Whether requests are reported: to the server's log, and while it is `on` as KPIs too."""
        return ACCESS_FEATURE in self._registry.settings.features

    def published(self, measurement: BatchPublished) -> None:
        """Record that a batch was stored; check `on` before."""
        self._keep(self.spools.requests, measurement)

    def accessed(self, measurement: RequestServed) -> None:
        """Record that a request was answered; check `on` and `access_on` before."""
        self._keep(self.spools.requests, measurement)

    def streamed(self, measurement: BatchStreamed) -> None:
        """Record that a batch was written to a stream; check `on` before."""
        self._keep(self.spools.streams, measurement)

    def stream_ended(self) -> None:
        """Have the streams reported soon, since one of which something was recorded has ended."""
        self._stream_ended = True

    def take_stream_ended(self) -> bool:
        """Whether such a stream has ended since the last call."""
        ended, self._stream_ended = self._stream_ended, False
        return ended

    def _keep(self, spool: Spool, measurement: Measurement) -> None:
        if not spool.append(line_of(measurement)):
            self.dropped(1)
