"""Where the partitions of a subscription are read from: at the beginning, and after a reset (consumption 7.3, 7.4)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rioni.commands.bus import Bus
from rioni.commands.context import Context
from rioni.commands.gate import Gate
from rioni.commands.subscriptions import RecordCursorsReset
from rioni.domain.cursor import Place, parse_offset
from rioni.domain.errors import Invalid, InvalidCursor, UnavailableCursor
from rioni.domain.ports import Bounds, Coordinator, EventStore, EventTypePartition, Offload, Registry
from rioni.domain.subscription import InitialCursor, Subscription
from rioni.domain.timeline import FIRST_ORDER, Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetCursors:
    """Go on reading somewhere else; all streams of the subscription end first."""

    subscription_id: str
    cursors: Sequence[Mapping[str, Any]]
    """With `event_type`, `partition` and `offset` each."""


class Positions:
    """Initialises subscriptions and resets their cursors; blocks on stores and streams, but never other greenlets."""

    def __init__(
        self,
        registry: Registry,
        gate: Gate,
        bus: Bus,
        *,
        store: EventStore,
        coordinator: Coordinator,
        offload: Offload,
        reset_timeout_s: float,
    ) -> None:
        self._registry = registry
        self._gate = gate
        self._bus = bus
        self._store = store
        self._coordinator = coordinator
        self._offload = offload
        self._reset_timeout_s = reset_timeout_s

    def initialise(self, subscription: Subscription) -> None:
        """Lay down where reading begins, unless that was done before.

        Raises:
            EventTypeNotFound: an event type of the subscription is gone.
            Unavailable: nothing can be stored.
        """
        given = {
            EventTypePartition(each.event_type, each.partition): each.offset for each in subscription.initial_cursors
        }
        cursors = {}
        for name in subscription.event_types:
            timeline, bounds = self._timeline(name)
            for number, (oldest, newest) in enumerate(bounds):
                key = EventTypePartition(name, str(number))
                place = Place(timeline.order, newest if subscription.read_from == "end" else oldest - 1)
                if key in given:
                    place = parse_offset(given[key], partition=key.partition, oldest_order=FIRST_ORDER) or place
                cursors[key] = place.offset
        self._coordinator.initialise(subscription.id, cursors)

    def reset(self, command: ResetCursors, context: Context) -> None:
        """Let all streams end, then set cursors, backwards too; without cursors the subscription is only initialised.

        Raises:
            SubscriptionNotFound: there is no such subscription.
            Blocked: the application or an event type of the subscription is blocked.
            Denied: the subject does not administer the subscription.
            Invalid: a cursor names nothing that can be read.
            Conflict: another reset is under way.
            Unavailable: streams do not end in time; nothing has changed then.
        """
        self._registry.refresh()
        subscription = self._registry.subscription(command.subscription_id)
        detail = "Application or subscription is blocked"
        self._gate.blacklist("CONSUMER", context.subject, subscription.event_types, detail)
        self._gate.administration(context.subject, subscription)
        self._check_event_types(subscription, command.cursors)
        places = {
            EventTypePartition(cursor["event_type"], cursor["partition"]): self._place(cursor)
            for cursor in command.cursors
        }
        self.initialise(subscription)
        if not places:
            return
        self._coordinator.reset(
            subscription.id, {key: place.offset for key, place in places.items()}, self._reset_timeout_s
        )
        # The effect comes first: what the audit log tells has happened.
        cursors = tuple(
            InitialCursor(event_type=key.event_type, partition=key.partition, offset=place.offset)
            for key, place in places.items()
        )
        self._offload(self._bus.dispatch, RecordCursorsReset(subscription_id=subscription.id, cursors=cursors), context)

    def _timeline(self, name: str) -> tuple[Timeline, Sequence[Bounds]]:
        timeline = self._registry.timelines(name).active
        return timeline, self._store.bounds(timeline.topic)

    @staticmethod
    def _check_event_types(subscription: Subscription, cursors: Iterable[Mapping[str, Any]]) -> None:
        foreign = sorted({cursor["event_type"] for cursor in cursors} - set(subscription.event_types))
        if foreign:
            raise Invalid(f"Event type does not belong to subscription: [{', '.join(foreign)}]")

    def _place(self, cursor: Mapping[str, Any]) -> Place:
        name = cursor["event_type"]
        timeline, bounds = self._timeline(name)
        return readable_place(name, cursor["partition"], cursor["offset"], timeline.order, bounds)


def readable_place(event_type: str, partition: str, offset: str, order: int, bounds: Sequence[Bounds]) -> Place:
    """The place that a cursor names, which must be readable (consumption contract 2.3).

    Args:
        event_type: named in the error.
        partition: as the client names it.
        offset: in any accepted form.
        order: of the timeline that is read.
        bounds: of all its partitions, by number.

    Raises:
        InvalidCursor: partition or offset can't be read.
        UnavailableCursor: the position has expired, or does not exist yet.
    """
    numbers = {str(number): number for number in range(len(bounds))}
    if partition not in numbers:
        raise InvalidCursor(f"non existing partition {partition}")
    oldest, newest = bounds[numbers[partition]]
    place = parse_offset(offset, partition=partition, oldest_order=FIRST_ORDER)
    if place is None:
        return Place(order, oldest - 1)
    if place.order != order or not oldest - 1 <= place.position <= newest:
        raise UnavailableCursor(event_type, partition, offset)
    return place
