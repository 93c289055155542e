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
"""How often who waits looks at the timelines, should a notification be lost."""


class TimelineAppender:
    """Stores events of event types where their active timelines say.

    Whether a timeline is active is decided by its store: what comes too late is refused there, and appended to the next
    timeline. So a process may know less than others, and still nothing gets behind the end of a timeline.
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
        """By event type the active timelines whose topics are closed although no switch is under way."""

    def write(self, timeline: Timeline, write: Callable[[EventStore, str], T]) -> T:
        """Append to a timeline, or to the one that is active after it.

        Blocks as `write` does, and as long as timelines are being switched.

        Args:
            timeline: the active one, a moment ago.
            write: given a store and a topic, it calls `EventStore.append`; another time if the topic is closed.

        Raises:
            EventTypeNotFound: the event type is gone, or another one of the same name.
            Unavailable: the switch takes too long; nothing was written.
            RioniError: what `write` raises.
        """
        try:
            return self._write(timeline, write)
        except (TopicClosed, NotFound):
            # Closed, or even cleaned up; or the event type is gone, which the registry knows.
            return self._write_to_next(timeline, write)

    def stores(self, event_type: str, without: EventStore | None = None) -> Sequence[EventStore]:
        """Every store that events of an event type were stored in, without one of them.

        What they know of these events may be needed longer than the events themselves.
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
        """Remember a timeline that would stay closed for ever; `TimelineSwitcher.repair` replaces it.

        No switch leaves that behind, but releases before this one did, and an older log that was restored does. While
        the store was asked a switch may have been completed: then the timeline that refused is not the active one.
        """
        timelines = self._registry.timelines(refused.event_type)
        if timelines.switch is None and timelines.active.id == refused.id:
            self.found_closed[refused.event_type] = refused

    def _after(self, closed: Timeline) -> Timeline:
        timelines = self._registry.timelines(closed.event_type)
        if all(each.id != closed.id for each in timelines.timelines):
            raise EventTypeNotFound(closed.event_type)
        return timelines.active
