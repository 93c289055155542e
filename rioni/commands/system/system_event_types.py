"""Creates the system event types, with ordinary commands.

Source: reference system-event-types#audit-log.
"""

import contextlib
from collections.abc import Callable, Sequence
from uuid import uuid4

from rioni.commands.bus import CommandBus
from rioni.commands.context import Context
from rioni.commands.event_types import CreateEventType
from rioni.domain.access.authorization import BROKER
from rioni.domain.errors import Conflict, EventTypeNotFound
from rioni.domain.events import Origin
from rioni.domain.ports.registry import Registry
from rioni.domain.subscriptions.subscription import Subscription
from rioni.domain.system.system_event_types import DEAD_LETTER_QUEUE, SystemEventType, wants_dead_letters


class SystemEventTypes:
    """Knows the required system event types, and creates missing ones."""

    def __init__(
        self, own: Sequence[SystemEventType], registry: Registry, bus: CommandBus, now: Callable[[], str]
    ) -> None:
        """Keep the dependencies.

        Args:
            own: all system event types.
            registry: knows which exist.
            bus: runs the commands.
            now: returns the time, RFC 3339 with milliseconds.
        """
        self._own = {each.name: each for each in own}
        self._registry, self._bus, self._now = registry, bus, now

    def ensure(self) -> None:
        """Create those that enabled features require; raises as `ensure_one`. Cheap if none is missing."""
        self._registry.refresh()
        features = self._registry.settings.features
        for name, own in self._own.items():
            if own.feature in features:
                self.ensure_one(name)

    def ensure_for(self, subscription: Subscription) -> None:
        """Create those that a subscription requires; raises as `ensure_one`."""
        if wants_dead_letters(subscription):
            self.ensure_one(DEAD_LETTER_QUEUE)

    def ensure_one(self, name: str) -> None:
        """Create one of them if it is missing.

        Raises:
            ReadOnly: it is missing, and writing is switched off.
        """
        self._registry.refresh()
        try:
            self._registry.event_type(name)
        except EventTypeNotFound:
            # Another process may be faster.
            with contextlib.suppress(Conflict):
                self._bus.dispatch(CreateEventType(spec=self._own[name].spec), self._context())
            self._registry.refresh()

    def _context(self) -> Context:
        origin = Origin(actor=BROKER.name, client="", flow_id="", command_id=str(uuid4()), recorded_at=self._now())
        return Context(subject=BROKER, origin=origin)
