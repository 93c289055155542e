"""What happens with time alone: sessions of dead processes end, and events whose retention time is over go."""

import structlog

from rioni.domain.errors import RioniError
from rioni.domain.ports import Clock, Coordinator, EventStore, Registry


RETENTION_EVERY_S = 60.0

_log = structlog.get_logger("rioni.jobs")


class Housekeeper:
    """Does the jobs of one process; every process does them, which harms nobody."""

    def __init__(self, registry: Registry, store: EventStore, coordinator: Coordinator, clock: Clock) -> None:
        self._registry = registry
        self._store = store
        self._coordinator = coordinator
        self._clock = clock
        self._expire_at_s = clock.monotonic() + RETENTION_EVERY_S

    def tick(self) -> None:
        """Do what is due. Blocks on the disk; a job that fails is logged and tried again."""
        try:
            self._coordinator.reap()
            if self._clock.monotonic() >= self._expire_at_s:
                self._expire_at_s = self._clock.monotonic() + RETENTION_EVERY_S
                self.expire()
        except RioniError:
            _log.exception("a job failed")

    def expire(self) -> None:
        """Remove the events whose retention time is over; compacted event types keep theirs."""
        self._registry.refresh()
        for event_type in self._registry.event_types():
            retention_ms = event_type.options.retention_time
            if event_type.cleanup_policy == "compact" or retention_ms is None:
                continue
            for timeline in self._registry.timelines(event_type.name).timelines:
                self._store.expire(timeline.topic, self._clock.now_ms() - retention_ms)
