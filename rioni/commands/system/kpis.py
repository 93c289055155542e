"""KPI events: usage metrics are recorded, which takes a few microseconds each, and published, each exactly once."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from rioni.commands.job_runner import LoggedJobRunner
from rioni.commands.system.system_events import SystemEventPublisher, SystemEventTypes
from rioni.domain.kpis import BatchPublished, BatchStreamed, Measurement, RequestServed, line_of, reports_of
from rioni.domain.ports.event_log import Registry
from rioni.domain.ports.host import Clock, Spool, SpoolFile, Spools, ThreadPool
from rioni.domain.system.system_events import ACCESS_FEATURE, KPI_FEATURE


# --- Records usage metrics: a few microseconds each, and nothing while the feature is off ---


class UsageRecorder:
    """Keeps what was measured until it is published as KPI events; see `rioni.commands.system.kpis`."""

    def __init__(self, registry: Registry, spools: Spools, dropped: Callable[[int], None]) -> None:
        """Keep the dependencies.

        Args:
            registry: lists the features that are on.
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
        """Have the streams reported soon, since one with recorded measurements has ended."""
        self._stream_ended = True

    def take_stream_ended(self) -> bool:
        """Whether such a stream has ended since the last call."""
        ended, self._stream_ended = self._stream_ended, False
        return ended

    def _keep(self, spool: Spool, measurement: Measurement) -> None:
        if not spool.append(line_of(measurement)):
            self.dropped(1)


# --- Publishes recorded measurements as KPI events, each exactly once ---
#
# A spool's file is removed once its events are stored. Any process derives the same events from it, and the event store
# deduplicates them. So the crash of a process at any moment neither loses nor duplicates events, and another process
# processes its files; only a crash of the machine loses lines that were not yet on the disk.

REQUESTS_EVERY_S = 1.0
EVENTS_PER_BATCH = 100
EARLY_EVENTS_PER_S = 100
"""Bound on events that are reported early: streams that end often must not have all others reported each second."""


class KpiFeed:
    """Publishes the spools of this process, and of processes that died."""

    def __init__(
        self,
        usage: UsageRecorder,
        system_event_types: SystemEventTypes,
        publisher: SystemEventPublisher,
        clock: Clock,
        pool: ThreadPool,
        *,
        salt: str,
        streams_every_s: float,
    ) -> None:
        """Keep the dependencies.

        Args:
            usage: has the spools of this process.
            system_event_types: creates the event types.
            publisher: publishes to them.
            clock: for intervals.
            pool: runs file reads.
            salt: for the hashes of names.
            streams_every_s: interval at which streams are reported, one event for each stream and event type.
        """
        self._system_event_types, self._publisher = system_event_types, publisher
        self._clock, self._pool, self._salt, self._usage = clock, pool, salt, usage
        now_s = clock.monotonic()
        self._rounds = {
            "requests": _Round(usage.spools.requests, REQUESTS_EVERY_S, now_s, now_s),
            "streams": _Round(usage.spools.streams, streams_every_s, now_s, now_s),
        }
        self._runner = LoggedJobRunner()

    def tick(self) -> None:
        """Publish the spools that are due. Failures are logged and retried."""
        now_s = self._clock.monotonic()
        streams = self._rounds["streams"]
        streams.early |= self._usage.take_stream_ended()
        if streams.early and now_s >= streams.early_from_s:
            streams.due_s = now_s
        for name, one in self._rounds.items():
            if now_s >= one.due_s:
                one.due_s, one.early = now_s + one.every_s, False
                self._runner.run(f"KPIs of {name}", partial(self._publish, one))

    def _publish(self, one: "_Round") -> None:
        events = sum([self._publish_file(file) for file in one.spool.finished(current=True)])
        one.early_from_s = self._clock.monotonic() + max(REQUESTS_EVERY_S, events / EARLY_EVENTS_PER_S)

    def _publish_file(self, file: SpoolFile) -> int:
        reports = self._pool(lambda: reports_of(file.id, file.lines(), self._salt))
        for event_type, events in reports.events.items():
            self._system_event_types.ensure_one(event_type)
            for begin in range(0, len(events), EVENTS_PER_BATCH):
                some = events[begin : begin + EVENTS_PER_BATCH]
                self._publisher.publish(event_type, some, name=f"{file.id}:{begin}")
        file.remove()
        if reports.unreadable:
            self._usage.dropped(reports.unreadable)
        return sum(map(len, reports.events.values()))


@dataclass(slots=True)
class _Round:
    """Schedule of a spool: due at once, for files of dead processes, then periodically."""

    spool: Spool
    every_s: float
    due_s: float
    early_from_s: float
    early: bool = False
    """Whether it is wanted before `due_s`."""
