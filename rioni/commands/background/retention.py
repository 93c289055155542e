"""Retention and compaction: deletes expired events and removes superseded ones.

Source: reference event-types#cleanup-policy, timelines#cleanup.
"""

import structlog

from rioni.commands.bus import CommandBus
from rioni.commands.context import Context
from rioni.commands.timelines.timelines import CleanUpTimeline
from rioni.domain.errors import EventTypeNotFound, NotFound, ReadOnly, RioniError, Unavailable
from rioni.domain.event_types.event_type import EventType
from rioni.domain.ports.clock import Clock
from rioni.domain.ports.event_stores import EventStores
from rioni.domain.ports.registry import Registry
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
        """How often it is to be asked."""
        self._idempotency_window_ms = 1_000 * idempotency_window_s
        self._compaction_lag_ms = 1_000 * compaction_lag_s

    def expire(self, context: Context) -> None:
        """Remove what is too old; a timeline where that fails is logged and left for the next time."""
        self._registry.refresh()
        every = [self._registry.timelines(event_type.name) for event_type in self._registry.event_types()]
        for name, order in [(each.event_type, timeline.order) for each in every for timeline in each.readable]:
            try:
                self._expire(name, order, context)
            except EventTypeNotFound:
                pass  # a moment ago
            except ReadOnly:
                # Paused until writing is allowed again (reference settings-and-storages#feature-effects).
                pass
            except RioniError as ex:
                _tell("could not delete expired events", ex, event_type=name, order=order)

    def compact(self) -> None:
        """Remove from compacted event types what was superseded long enough ago; fails as `expire`.

        Source: reference event-types#cleanup-policy.
        """
        self._registry.refresh()
        before_ms = self._clock.now_ms() - self._compaction_lag_ms
        for event_type in self._registry.event_types():
            if event_type.cleanup_policy != "delete":
                for timeline in self._registry.timelines(event_type.name).readable:
                    try:
                        store = self._stores.of(timeline.storage_id)
                        store.compact(timeline.topic, before_ms, _keyed_since_ms(event_type))
                    except RioniError as ex:
                        _tell("a timeline could not be compacted", ex, event_type=event_type.name)

    def forget(self) -> None:
        """Delete idempotency keys older than the deduplication window."""
        timelines = (self._registry.timelines(event_type.name) for event_type in self._registry.event_types())
        # Names outlive the events of timelines that were cleaned up.
        for storage_id in {timeline.storage_id for each in timelines for timeline in each.timelines}:
            if self._registry.storage(storage_id) is not None:
                try:
                    self._stores.of(storage_id).forget_ids(self._clock.now_ms() - self._idempotency_window_ms)
                except RioniError as ex:
                    _tell("could not expire idempotency keys", ex, storage_id=storage_id)

    def _expire(self, name: str, order: int, context: Context) -> None:
        # A round may be long: what was told to stay meanwhile stays.
        self._registry.refresh()
        timelines, kept_ms = self._registry.timelines(name), self._registry.event_type(name).kept_ms
        timeline = next((each for each in timelines.readable if each.order == order), None)
        if timeline is None or kept_ms is None:
            return
        now_ms = self._clock.now_ms()
        over = timelines.is_over(timeline, kept_ms, now_ms)
        try:
            store = self._stores.of(timeline.storage_id)
            store.expire(timeline.topic, now_ms - kept_ms)
            # The switch that closed it may have taken long, and events be younger than its beginning.
            over = over and all(bounds.newest < bounds.oldest for bounds in store.bounds(timeline.topic))
        except (NotFound, Unavailable):
            if not over:
                raise
        if over:
            command = CleanUpTimeline(event_type=name, order=order, now_ms=now_ms)
            self._bus.dispatch(command, context)


def _keyed_since_ms(event_type: EventType) -> int:
    """Since when all events of a compacted event type surely have a key.

    Until it was changed for the last time, its policy may have been another one.
    """
    if event_type.cleanup_policy == "compact" or event_type.updated_at == event_type.created_at:
        return 0
    return milliseconds(event_type.updated_at) + UNDER_WAY_MS


def _tell(what: str, ex: RioniError, **where: object) -> None:
    """Log a failure; what is merely not available now says so in a sentence."""
    _log.error(what, reason=str(ex), exc_info=not isinstance(ex, Unavailable), **where)
