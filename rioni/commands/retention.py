"""What becomes of events with time: they go when they are too old, or superseded (registry 3.4, consumption 11.6)."""

from collections.abc import Iterator

import structlog

from rioni.commands.bus import Bus
from rioni.commands.context import Context
from rioni.commands.timelines import CleanUpTimeline
from rioni.domain.errors import ReadOnly, RioniError
from rioni.domain.event_type import EventType
from rioni.domain.ports import Clock, EventStores, Offload
from rioni.domain.registry_ports import Registry
from rioni.domain.timeline import Timeline
from rioni.domain.timestamps import milliseconds


_log = structlog.get_logger("rioni.retention")


UNDER_WAY_MS = 300_000
"""What was checked before an event type was changed is stored within this time, or not at all."""


class Retention:
    """Removes events, and closed timelines as a whole; blocks on stores and database, but never other greenlets."""

    def __init__(
        self,
        registry: Registry,
        stores: EventStores,
        bus: Bus,
        clock: Clock,
        offload: Offload,
        *,
        idempotency_window_s: int,
        compaction_lag_s: int,
    ) -> None:
        self._registry = registry
        self._stores = stores
        self._bus = bus
        self._clock = clock
        self._offload = offload
        self._idempotency_window_ms = 1_000 * idempotency_window_s
        self._compaction_lag_ms = 1_000 * compaction_lag_s

    def expire(self, context: Context) -> None:
        """Remove what is too old; a timeline where that fails is logged and left for the next time."""
        self._registry.refresh()
        for timeline, before_ms in list(self._timelines()):
            try:
                self._expire(timeline, before_ms, context)
            except ReadOnly:
                pass  # cleaning up is paused, and goes on when writing does (consumption contract 13.4)
            except RioniError:
                _log.exception("events could not be removed", event_type=timeline.event_type, order=timeline.order)

    def compact(self) -> None:
        """Remove from compacted event types what was superseded long enough ago (registry 3.4); fails as `expire`."""
        self._registry.refresh()
        before_ms = self._clock.now_ms() - self._compaction_lag_ms
        for event_type in self._registry.event_types():
            if event_type.cleanup_policy != "delete":
                for timeline in self._registry.timelines(event_type.name).readable:
                    try:
                        store = self._stores.of(timeline.storage_id)
                        store.compact(timeline.topic, before_ms, _keyed_since_ms(event_type))
                    except RioniError:
                        _log.exception("a timeline could not be compacted", event_type=event_type.name)

    def forget(self) -> None:
        """Forget the names under which batches were stored so long ago that nobody sends them again."""
        timelines = (self._registry.timelines(event_type.name) for event_type in self._registry.event_types())
        # Names outlive the events of timelines that were cleaned up.
        for storage_id in {timeline.storage_id for each in timelines for timeline in each.timelines}:
            if self._registry.storage(storage_id) is not None:
                try:
                    self._stores.of(storage_id).forget_ids(self._clock.now_ms() - self._idempotency_window_ms)
                except RioniError:
                    _log.exception("names could not be forgotten", storage_id=storage_id)

    def _timelines(self) -> Iterator[tuple[Timeline, int]]:
        """All timelines, each with the time before which its events are too old; compacted event types keep theirs."""
        for event_type in self._registry.event_types():
            retention_ms = event_type.options.retention_time
            if event_type.cleanup_policy != "compact" and retention_ms is not None:
                for timeline in self._registry.timelines(event_type.name).readable:
                    yield timeline, self._clock.now_ms() - retention_ms

    def _expire(self, timeline: Timeline, before_ms: int, context: Context) -> None:
        store = self._stores.of(timeline.storage_id)
        closed_at = self._registry.timelines(timeline.event_type).closed_at(timeline)
        if closed_at is not None and milliseconds(closed_at) < before_ms:
            command = CleanUpTimeline(event_type=timeline.event_type, order=timeline.order)
            self._offload(self._bus.dispatch, command, context)
        else:
            store.expire(timeline.topic, before_ms)


def _keyed_since_ms(event_type: EventType) -> int:
    """Since when all events of a compacted event type surely have a key.

    Until it was changed for the last time, its policy may have been another one.
    """
    if event_type.cleanup_policy == "compact" or event_type.updated_at == event_type.created_at:
        return 0
    return milliseconds(event_type.updated_at) + UNDER_WAY_MS
