"""Switches to a new timeline, and recovers switches whose process died (reference timelines#switch-steps).

There is no barrier that all processes have to reach, and so none that a hanging process could hold up. Instead the
store closes the old topic for all processes at once: an append is either stored before that, or rejected and repeated
on the next topic.
"""

import contextlib
from collections.abc import Callable, MutableMapping

import structlog

from rioni.commands.bus import CommandBus
from rioni.commands.timelines.timelines import INITIATOR_DIED, AbortSwitch, CloseTimeline, StartSwitch
from rioni.commands.unit_of_work import CommandContext, ErrorCollector
from rioni.domain.errors import EventTypeNotFound
from rioni.domain.ports.event_log import Registry
from rioni.domain.ports.host import LOG_KEY, Clock, Notifier
from rioni.domain.timelines.timeline import Switch, Timeline


RETRY_S = 10.0
"""Retry interval of a switch that could not be completed; each attempt may wait for the storage's time-out."""

_log = structlog.get_logger("rioni.switching")


class TimelineSwitcher:
    """Switches timelines; blocks on database and stores, but never other greenlets."""

    def __init__(
        self,
        registry: Registry,
        bus: CommandBus,
        signals: Notifier,
        clock: Clock,
        found_closed: MutableMapping[str, Timeline] | None = None,
    ) -> None:
        """Keep the dependencies; `found_closed` is that of `TimelineAppender`, and emptied here."""
        self._registry = registry
        self._bus = bus
        self._signals = signals
        self._clock = clock
        self._retry_at_s: dict[str, float] = {}
        """The time of the next attempt for each timeline that could not be switched to."""
        self._found_closed = {} if found_closed is None else found_closed

    def switch(self, command: StartSwitch, context: CommandContext) -> None:
        """Close the active timeline and store events in a new one.

        Raises:
            AdminOnly: the subject does not administer the broker.
            RioniError: as raised by `start_switch` and the following steps. Nothing has happened then, unless the old
            topic could not be closed: the switch is completed as soon as it can be.
        """
        try:
            self._bus.dispatch(command, context)
        finally:
            self._signals.notify(LOG_KEY)

    def repair(self, context: Callable[[], CommandContext]) -> None:
        """Complete or abort switches whose process died. Cheap without such switches.

        An active timeline that publishers have found closed is replaced by a new one in the same storage: no topic is
        opened again.

        Args:
            context: makes the context of a command. Each command needs its own: the ids of the new timeline and its
                topic are derived from the command's id.

        Raises:
            Unavailable: names the event types for which that failed; the others are done.
        """
        errors = ErrorCollector()
        every = [self._registry.timelines(event_type.name) for event_type in self._registry.event_types()]
        unfinished = {each.switch.timeline.id: (each.switch, each.active.storage_id) for each in every if each.switch}
        self._retry_at_s = {key: at_s for key, at_s in self._retry_at_s.items() if key in unfinished}
        silent = set()
        for key, (switch, storage_id) in unfinished.items():
            if storage_id in silent or self._clock.monotonic() < self._retry_at_s.get(key, 0.0):
                continue
            with errors.of(f"event type {switch.timeline.event_type}"):
                if not self._bus.is_running(switch.worker, switch.timeline.topic):
                    self._retry_at_s[key] = self._clock.monotonic() + RETRY_S
                    silent.add(storage_id)  # a failure may be slow; its others come in the next rounds
                    self._repair(switch, context())
                    silent.discard(storage_id)
        for name in list(self._found_closed):
            closed = self._found_closed.pop(name)
            with errors.of(f"event type {name}"), contextlib.suppress(EventTypeNotFound):
                timelines = self._registry.timelines(name)
                # The publisher may have been rejected because of a switch that its registry did not show yet.
                if timelines.switch is None and timelines.active.id == closed.id:
                    _log.warning("the active timeline is closed; replacing it", event_type=name, topic=closed.topic)
                    replace = StartSwitch(event_type=name, storage_id=closed.storage_id, replaces=closed.id)
                    self.switch(replace, context())
        errors.report()

    def _repair(self, switch: Switch, context: CommandContext) -> None:
        name, following = switch.timeline.event_type, switch.timeline
        complete = CloseTimeline(event_type=name, timeline=following)
        abort = AbortSwitch(event_type=name, timeline=following, reason=INITIATOR_DIED)
        try:
            self._bus.dispatch(complete if switch.closing else abort, context)
        finally:
            self._signals.notify(LOG_KEY)
