"""Appends to the active timeline, and waits while a switch to a new one is in progress.

Source: reference timelines#switch-steps.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from rioni.domain.errors import EventTypeNotFound, NotFound, TopicClosed, Unavailable
from rioni.domain.ports.clock import Clock
from rioni.domain.ports.event_store import EventStore
from rioni.domain.ports.event_stores import EventStores
from rioni.domain.ports.notifier import LOG_KEY, Notifier
from rioni.domain.ports.registry import Registry
from rioni.domain.timelines.timeline import Timeline


T = TypeVar("T")

LOOK_EVERY_S = 1.0
"""How often a waiter checks the timelines, should a notification be lost."""


class TimelineAppender:
    """Appends events to the active timelines of their event types.

    Whether a timeline is active is decided by its store: a late append is rejected there, and goes to the next
    timeline. So a process with a stale registry still never appends behind the end of a timeline.
    """

    def __init__(
        self, registry: Registry, stores: EventStores, signals: Notifier, clock: Clock, *, wait_max_s: float
    ) -> None:
        self._registry = registry
        self._stores = stores
        self._signals = signals
        self._clock = clock
        self._wait_max_s = wait_max_s
        self.found_closed: dict[str, Timeline] = {}
        """By event type, the active timelines whose topics are closed although no switch is in progress."""

    def write(self, timeline: Timeline, write: Callable[[EventStore, str], T]) -> T:
        """Append to a timeline, or to its successor if it is being closed.

        Blocks as `write` does, and as long as timelines are being switched.

        Args:
            timeline: the active one, as last known.
            write: given a store and a topic, calls `EventStore.append`; called again if the topic is closed.

        Raises:
            EventTypeNotFound: the event type was deleted, or recreated under the same name.
            Unavailable: timed out waiting for the switch; nothing was written.
            RioniError: what `write` raises.
        """
        try:
            return self._write(timeline, write)
        except (TopicClosed, NotFound):
            # Closed, or even cleaned up; or the event type was deleted, which the registry knows.
            return self._write_to_next(timeline, write)

    def stores(self, event_type: str, without: EventStore | None = None) -> Sequence[EventStore]:
        """All stores that hold or held events of an event type, except the given one.

        Their idempotency keys and ids may be needed longer than the events themselves.
        """
        storages = {timeline.storage_id for timeline in self._registry.timelines(event_type).timelines}
        there = [self._stores.of(each) for each in storages if self._registry.storage(each) is not None]
        return [store for store in there if store is not without]

    def _write(self, timeline: Timeline, write: Callable[[EventStore, str], T]) -> T:
        return write(self._stores.of(timeline.storage_id), timeline.topic)

    def _write_to_next(self, closed: Timeline, write: Callable[[EventStore, str], T]) -> T:
        deadline_s = self._clock.monotonic() + self._wait_max_s
        watch = self._signals.watch([LOG_KEY])
        try:
            while True:
                self._registry.refresh()
                active = self._after(closed)
                try:
                    return self._write(active, write)
                except TopicClosed as ex:
                    self._note_closed(active)
                    left_s = deadline_s - self._clock.monotonic()
                    if left_s <= 0:
                        raise Unavailable(
                            f"Event type {closed.event_type} is currently in maintenance, please repeat request"
                        ) from ex
                watch.wait(min(left_s, LOOK_EVERY_S))
        finally:
            watch.close()

    def _note_closed(self, refused: Timeline) -> None:
        """Record a timeline that would stay closed for ever; `TimelineSwitcher.repair` replaces it.

        No switch leaves one behind, but earlier releases did, and a restored older log does. A switch may have been
        completed during the call to the store: then the timeline that rejected the append is not the active one.
        """
        timelines = self._registry.timelines(refused.event_type)
        if timelines.switch is None and timelines.active.id == refused.id:
            self.found_closed[refused.event_type] = refused

    def _after(self, closed: Timeline) -> Timeline:
        timelines = self._registry.timelines(closed.event_type)
        if all(each.id != closed.id for each in timelines.timelines):
            raise EventTypeNotFound(closed.event_type)
        return timelines.active
