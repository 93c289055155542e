"""Publishes recorded measurements as KPI events, each exactly once.

A spool's file is removed once its events are stored. Any process derives the same events from it, and the event store
deduplicates them. So the crash of a process at any moment neither loses nor duplicates events, and another process
processes its files; only a crash of the machine loses lines that were not yet on the disk.
"""

from collections.abc import Callable
from functools import partial

from rioni.commands.job_runner import LoggedJobRunner
from rioni.commands.system.system_event_publisher import SystemEventPublisher
from rioni.commands.system.system_event_types import SystemEventTypes
from rioni.domain.ports.clock import Clock
from rioni.domain.ports.spool import Spool, SpoolFile, Spools
from rioni.domain.ports.thread_pool import ThreadPool
from rioni.domain.system.kpis import Reports, reports_of


REQUESTS_EVERY_S = 1.0
EVENTS_PER_BATCH = 100


class KpiFeed:
    """Publishes the spools of this process, and of processes that died."""

    def __init__(
        self,
        spools: Spools,
        system_event_types: SystemEventTypes,
        publisher: SystemEventPublisher,
        clock: Clock,
        pool: ThreadPool,
        *,
        salt: str,
        streams_every_s: float,
        dropped: Callable[[int], None],
    ) -> None:
        """Keep the dependencies.

        Args:
            spools: of this process.
            system_event_types: creates the event types.
            publisher: publishes to them.
            clock: for intervals.
            pool: runs file reads.
            salt: for the hashes of names.
            streams_every_s: interval at which streams are reported, one event for each stream and event type.
            dropped: called with the number of unreadable lines.
        """
        self._system_event_types, self._publisher, self._clock, self._pool = (
            system_event_types,
            publisher,
            clock,
            pool,
        )
        self._salt, self._dropped = salt, dropped
        now_s = clock.monotonic()
        self._rounds = {
            "requests": _Round(spools.requests, REQUESTS_EVERY_S, now_s),
            "streams": _Round(spools.streams, streams_every_s, now_s),
        }
        self._runner = LoggedJobRunner()

    def tick(self) -> None:
        """Publish the spools that are due. Failures are logged and retried."""
        now_s = self._clock.monotonic()
        for name, one in self._rounds.items():
            if now_s >= one.due_s:
                one.due_s = now_s + one.every_s
                self._runner.run(f"KPIs of {name}", partial(self._publish, one.spool))

    def _publish(self, spool: Spool) -> None:
        for file in spool.finished(current=True):
            self._publish_file(file)

    def _publish_file(self, file: SpoolFile) -> None:
        reports = self._pool(_reports_of, file, self._salt)
        for event_type, events in reports.events.items():
            self._system_event_types.ensure_one(event_type)
            for begin in range(0, len(events), EVENTS_PER_BATCH):
                some = events[begin : begin + EVENTS_PER_BATCH]
                self._publisher.publish(event_type, some, name=f"{file.id}:{begin}")
        file.remove()
        if reports.unreadable:
            self._dropped(reports.unreadable)


def _reports_of(file: SpoolFile, salt: str) -> Reports:
    return reports_of(file.id, file.lines(), salt)


class _Round:
    """Schedule of a spool: due at once, for files of dead processes, then periodically."""

    def __init__(self, spool: Spool, every_s: float, now_s: float) -> None:
        self.spool, self.every_s, self.due_s = spool, every_s, now_s
