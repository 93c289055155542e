"""Retention and compaction: deletes expired events and removes superseded ones.

Source: reference event-types#cleanup-policy, timelines#cleanup.
"""

from contextlib import suppress

import structlog

from rioni.commands.bus import CommandBus
from rioni.commands.context import Context
from rioni.commands.timelines.timelines import CleanUpTimeline
from rioni.config.failures import FailureLog
from rioni.domain.errors import EventTypeNotFound, NotFound, ReadOnly, Unavailable
from rioni.domain.event_types.event_type import EventType
from rioni.domain.ports.clock import Clock
from rioni.domain.ports.event_stores import EventStores
from rioni.domain.ports.registry import Registry
from rioni.domain.timestamps import milliseconds


_log = structlog.get_logger("rioni.retention")
_failures = FailureLog(_log)

_NOT_DELETED = "could not delete expired events"
_NOT_COMPACTED = "a timeline could not be compacted"
_NOT_EXPIRED = "could not expire idempotency keys"


UNDER_WAY_MS = 300_000
"""A batch that was checked before a change of its event type is stored within this time, or not at all."""


class Retention:
    """Removes events, and closed timelines as a whole; blocks on stores and database, but never other greenlets."""

    def __init__(
        self,
        registry: Registry,
        stores: EventStores,
        bus: CommandBus,
        clock: Clock,
        *,
        idempotency_window_s: int,
        compaction_lag_s: int,
        every_s: int,
    ) -> None:
        self._registry = registry
        self._stores = stores
        self._bus = bus
        self._clock = clock
        self.every_s = every_s
        """Interval at which to call it."""
        self._idempotency_window_ms = 1_000 * idempotency_window_s
        self._compaction_lag_ms = 1_000 * compaction_lag_s

    def expire(self, context: Context) -> None:
        """Delete expired events; a timeline where that fails is logged and retried in the next run."""
        self._registry.refresh()
        every = [self._registry.timelines(event_type.name) for event_type in self._registry.event_types()]
        places = [(each.event_type, timeline.order) for each in every for timeline in each.readable]
        with _failures.round(_NOT_DELETED) as attempt:
            for name, order in places:
                # Deleted a moment ago; or paused until writing is allowed again (reference
                # settings-and-storages#feature-effects).
                with attempt(event_type=name, order=order), suppress(EventTypeNotFound, ReadOnly):
                    self._expire(name, order, context)

    def compact(self) -> None:
        """Remove superseded events of compacted event types after their retention; handles failures as `expire` does.

        Source: reference event-types#cleanup-policy.
        """
        self._registry.refresh()
        before_ms = self._clock.now_ms() - self._compaction_lag_ms
        with _failures.round(_NOT_COMPACTED) as attempt:
            for event_type in self._registry.event_types():
                if event_type.cleanup_policy != "delete":
                    for timeline in self._registry.timelines(event_type.name).readable:
                        with attempt(event_type=event_type.name):
                            store = self._stores.of(timeline.storage_id)
                            store.compact(timeline.topic, before_ms, _keyed_since_ms(event_type))

    def expire_ids(self) -> None:
        """Delete idempotency keys older than the deduplication window."""
        timelines = (self._registry.timelines(event_type.name) for event_type in self._registry.event_types())
        # Keys outlive the events of timelines that were cleaned up.
        storage_ids = {timeline.storage_id for each in timelines for timeline in each.timelines}
        before_ms = self._clock.now_ms() - self._idempotency_window_ms
        with _failures.round(_NOT_EXPIRED) as attempt:
            for storage_id in storage_ids:
                with attempt(storage_id=storage_id):
                    if self._registry.storage(storage_id) is not None:
                        self._stores.of(storage_id).expire_ids(before_ms)

    def _expire(self, name: str, order: int, context: Context) -> None:
        # A round may be long, and the retention time may have been raised meanwhile.
        self._registry.refresh()
        timelines, retention_ms = self._registry.timelines(name), self._registry.event_type(name).retention_ms
        timeline = next((each for each in timelines.readable if each.order == order), None)
        if timeline is None or retention_ms is None:
            return
        now_ms = self._clock.now_ms()
        over = timelines.is_over(timeline, retention_ms, now_ms)
        try:
            store = self._stores.of(timeline.storage_id)
            # Of a retention time longer than the epoch; stores take no times before it.
            store.delete_before(timeline.topic, max(0, now_ms - retention_ms))
            # The switch that closed it may have taken long, so events may be younger than its start.
            over = over and all(bounds.newest < bounds.oldest for bounds in store.bounds(timeline.topic))
        except (NotFound, Unavailable):
            if not over:
                raise
        if over:
            command = CleanUpTimeline(event_type=name, order=order, now_ms=now_ms)
            self._bus.dispatch(command, context)


def _keyed_since_ms(event_type: EventType) -> int:
    """The time since which all events of a compacted event type certainly have a key.

    Before the last update of the event type its cleanup policy may have been different.
    """
    if event_type.cleanup_policy == "compact" or event_type.updated_at == event_type.created_at:
        return 0
    return milliseconds(event_type.updated_at) + UNDER_WAY_MS
