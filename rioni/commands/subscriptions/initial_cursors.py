"""Initial cursors of a subscription's partitions: at its creation, and after a reset.

Source: reference subscriptions#reset, subscriptions#initialisation.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rioni.commands.authorization import AccessPolicy
from rioni.commands.bus import CommandBus
from rioni.commands.subscriptions.cursors import CursorResolver
from rioni.commands.subscriptions.subscriptions import RecordCursorsReset
from rioni.commands.unit_of_work import CommandContext, ErrorCollector
from rioni.domain.errors import Invalid, NotFound
from rioni.domain.ports.coordinator import Coordinator
from rioni.domain.ports.event_log import Registry
from rioni.domain.ports.event_store import EventStores
from rioni.domain.subscriptions.cursor_arithmetic import OffsetRanges, begin, start_places
from rioni.domain.subscriptions.cursor_spec import CursorSpec, for_each_partition
from rioni.domain.subscriptions.subscription import InitialCursor, Subscription
from rioni.domain.timelines.position import EventTypePartition, TimelinePosition
from rioni.projections.queries.timeline_reader import offset_ranges_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetCursors:
    """Reset cursors of a subscription; all of its streams end first."""

    subscription_id: str
    cursors: Sequence[CursorSpec]
    """Cursor specs without violations; the last one for a partition counts."""


class CursorInitializer:
    """Initialises subscriptions and resets their cursors; blocks on stores and streams, but never other greenlets."""

    def __init__(
        self,
        registry: Registry,
        access: AccessPolicy,
        bus: CommandBus,
        *,
        stores: EventStores,
        coordinator: Coordinator,
        reset_timeout_s: float,
    ) -> None:
        self._registry = registry
        self._access = access
        self._bus = bus
        self._stores = stores
        self._coordinator = coordinator
        self._reset_timeout_s = reset_timeout_s

    def initialise(self, subscription: Subscription) -> None:
        """Store the initial cursors of a subscription, once, and add partitions that were created since.

        Raises:
            EventTypeNotFound: an event type of the subscription was deleted.
            Unavailable: the coordinator can't write.
        """
        wanted = [
            EventTypePartition(name, str(number))
            for name in subscription.event_types
            for number in range(self._registry.timelines(name).active.partitions)
        ]
        # PERF: every stream calls this, and nearly always there is nothing to do.
        known = self._coordinator.topology(subscription.id).partitions
        if all(key in known for key in wanted):
            return
        ranges = {name: self._ranges(name) for name in subscription.event_types}
        begins = {key: begin(ranges[key.event_type][int(key.partition)]) for key in wanted}
        starts = start_places(subscription, ranges)
        self._coordinator.initialise(subscription.id, {key: starts[key].offset for key in wanted})
        # New partitions are read from their beginning, wherever the others began: no event may be missed.
        self._coordinator.extend(subscription.id, {key: place.offset for key, place in begins.items()})

    def extend(self, event_type: str | None = None) -> None:
        """Add new partitions to all initialised subscriptions; their streams end.

        Args:
            event_type: only subscriptions to this one; None for all.

        Raises:
            Unavailable: it failed for some subscriptions, which the message names; the others have the partitions.
        """
        errors = ErrorCollector()
        for subscription in self._registry.subscriptions():
            concerned = event_type is None or event_type in subscription.event_types
            # A subscription or event type that is not found was deleted meanwhile.
            with errors.of(f"subscription {subscription.id}"), contextlib.suppress(NotFound):
                if concerned and self._coordinator.topology(subscription.id).epoch:
                    self.initialise(subscription)
        errors.report()

    def reset(self, command: ResetCursors, context: CommandContext) -> None:
        """End all streams, then set cursors, backwards too; without cursors only initialise the subscription.

        Raises:
            SubscriptionNotFound: there is no such subscription.
            Blocked: the application or an event type of the subscription is blocked.
            AccessDenied: the subject does not administer the subscription.
            Invalid: a cursor names nothing that can be read.
            Conflict: another reset is in progress.
            Unavailable: streams do not end in time; nothing has changed then.
        """
        self._registry.refresh()
        subscription = self._registry.subscription(command.subscription_id)
        detail = "Application or subscription is blocked"
        self._access.blacklist("CONSUMER", context.subject, subscription.event_types, detail)
        self._access.administration(context.subject, subscription)
        places = self._places(subscription, command.cursors)
        self.initialise(subscription)
        if not places:
            return
        offsets = {key: place.offset for key, place in places.items()}
        previous = self._coordinator.reset(subscription.id, offsets, self._reset_timeout_s)
        # The effect comes first: the audit log only reports what has happened.
        record = RecordCursorsReset(
            subscription_id=subscription.id, cursors=_cursors(offsets), previous=_cursors(previous)
        )
        self._bus.dispatch(record, context)

    def _ranges(self, name: str) -> Sequence[OffsetRanges]:
        return offset_ranges_of(self._registry.timelines(name), self._stores)

    def _places(
        self, subscription: Subscription, names: Sequence[CursorSpec]
    ) -> Mapping[EventTypePartition, TimelinePosition]:
        foreign = sorted({named.event_type for named in names if named.event_type} - set(subscription.event_types))
        if foreign:
            raise Invalid(f"Event type does not belong to subscription: [{', '.join(foreign)}]")
        if not names:
            return {}
        places = {
            name: CursorResolver(self._registry.timelines(name), self._stores) for name in subscription.event_types
        }
        partitions = {name: len(each.partitions) for name, each in places.items()}
        wanted = dict(for_each_partition(names, partitions))
        return {EventTypePartition(*key): places[key[0]].readable(named) for key, named in wanted.items()}


def _cursors(offsets: Mapping[EventTypePartition, str]) -> tuple[InitialCursor, ...]:
    return tuple(
        InitialCursor(event_type=key.event_type, partition=key.partition, offset=offset)
        for key, offset in offsets.items()
    )
