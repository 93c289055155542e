"""The switch to a new timeline, and what is left of one whose process has died (consumption contract 11.3).

There is no barrier that all processes have to reach, and so none that a sick one could hold up. The store closes the
old topic instead, for all processes at once: an append comes before that, and counts, or it is refused and goes to the
next topic.
"""

import threading

import structlog

from rioni.commands.bus import Bus
from rioni.commands.context import Context
from rioni.commands.failures import Failures
from rioni.commands.timelines import INITIATOR_DIED, AbortSwitch, CompleteSwitch, StartSwitch
from rioni.domain.coordination_ports import Coordinator
from rioni.domain.errors import RioniError
from rioni.domain.ports import LOG_KEY, EventStores, Offload, Signals
from rioni.domain.registry_ports import Registry
from rioni.domain.timeline import Timeline


_log = structlog.get_logger("rioni.switching")


class Switcher:
    """Switches timelines; blocks on database and stores, but never other greenlets."""

    def __init__(
        self,
        registry: Registry,
        bus: Bus,
        stores: EventStores,
        *,
        coordinator: Coordinator,
        signals: Signals,
        offload: Offload,
    ) -> None:
        self._registry = registry
        self._bus = bus
        self._stores = stores
        self._coordinator = coordinator
        self._signals = signals
        self._offload = offload
        self._lock = threading.Lock()
        self._running: set[str] = set()

    def switch(self, command: StartSwitch, context: Context) -> None:
        """Close the active timeline and store events in a new one; if this fails nothing has happened.

        Raises:
            AdminOnly: the subject does not administer the broker.
            RioniError: as `start_switch` and `complete_switch` say.
        """
        timeline_id = context.derive_id("timeline")
        with self._lock:
            self._running.add(timeline_id)
        try:
            self._offload(self._switch, command, context)
        finally:
            with self._lock:
                self._running.discard(timeline_id)
            self._signals.notify(LOG_KEY)

    def repair(self, context: Context) -> None:
        """Abort the switches whose processes have died. Cheap where there are none.

        Raises:
            Unavailable: names the event types whose switches can't be aborted now; the others are.
        """
        failures = Failures()
        for event_type in self._registry.event_types():
            switch = self._registry.timelines(event_type.name).switch
            if switch is not None and not self._is_running(switch.worker, switch.timeline.id):
                with failures.of(f"event type {event_type.name}"):
                    self._offload(self._abort, switch.timeline, INITIATOR_DIED, context)
        failures.report()

    def _switch(self, command: StartSwitch, context: Context) -> None:
        timeline = self._bus.dispatch(command, context)
        name = timeline.event_type
        try:
            self._stores.of(timeline.storage_id).create_topic(timeline.topic, timeline.partitions)
            self._bus.dispatch(CompleteSwitch(event_type=name, timeline=timeline), context)
        except BaseException as ex:
            try:
                self._abort(timeline, str(ex) or type(ex).__name__, context)
            except RioniError:
                _log.exception("a switch could not be aborted; the housekeeper will", event_type=name)
            raise

    def _abort(self, timeline: Timeline, reason: str, context: Context) -> None:
        self._bus.dispatch(AbortSwitch(event_type=timeline.event_type, timeline=timeline, reason=reason), context)
        self._signals.notify(LOG_KEY)

    def _is_running(self, worker: str, timeline_id: str) -> bool:
        if worker != self._coordinator.worker:
            return self._coordinator.lives(worker)
        with self._lock:
            return timeline_id in self._running
