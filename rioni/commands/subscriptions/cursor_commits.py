"""Committing cursors: a command without a domain event, for the coordinator keeps the cursors.

Source: reference subscriptions#commit-checks.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from rioni.commands.authorization import AccessPolicy
from rioni.domain.access.authorization import Subject
from rioni.domain.errors import EventTypeNotFound, Invalid, InvalidCursor, SubscriptionNotFound, UnavailableCursor
from rioni.domain.ports.coordinator import Coordinator
from rioni.domain.ports.registry import Registry
from rioni.domain.timelines.position import BEFORE_FIRST, EventTypePartition, TimelinePosition, parse_offset
from rioni.domain.timelines.timeline import FIRST_ORDER


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitCursors:
    """Remember how far a stream has been processed."""

    subscription_id: str
    stream_id: str
    cursors: Sequence[Mapping[str, Any]]
    """With `event_type`, `partition` and `offset` each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFailureReasons:
    """Remember why a stream's client could not process events."""

    subscription_id: str
    stream_id: str
    failures: Sequence[Mapping[str, Any]]
    """With `event_type`, `partition`, `offset` and `reason` each."""


class Committer:
    """Checks and commits cursors, and the reasons why others are not committed; blocks on the coordinator only."""

    def __init__(self, registry: Registry, access: AccessPolicy, coordinator: Coordinator) -> None:
        self._registry = registry
        self._access = access
        self._coordinator = coordinator

    def commit(self, command: CommitCursors, subject: Subject) -> Sequence[bool]:
        """Commit cursors, all or none; those that are not ahead of the committed ones change nothing.

        Returns:
            For each cursor whether it advanced its partition.

        Raises:
            Invalid: a cursor can't be read, or does not belong to the stream.
            Blocked: the application or an event type of the subscription is blocked.
            SubscriptionNotFound: there is no such subscription.
            AccessDenied: the subject may not read through it.
            Unavailable: the cursors can't be stored.
        """
        offsets = self._checked(command.subscription_id, command.stream_id, command.cursors, subject)
        return self._coordinator.commit(command.subscription_id, command.stream_id, offsets)

    def record_failure_reasons(self, command: RecordFailureReasons, subject: Subject) -> None:
        """Record why events could not be processed, all or none; those of committed events change nothing.

        Raises as `commit` does.
        """
        offsets = self._checked(command.subscription_id, command.stream_id, command.failures, subject)
        reasons = [(*place, each["reason"]) for place, each in zip(offsets, command.failures, strict=True)]
        self._coordinator.record_failure_reasons(command.subscription_id, command.stream_id, reasons)

    def _checked(
        self, subscription_id: str, stream_id: str, cursors: Sequence[Mapping[str, Any]], subject: Subject
    ) -> Sequence[tuple[EventTypePartition, str]]:
        """The offsets that cursors name; raises as `commit` does."""
        self._registry.refresh()
        places = [
            (EventTypePartition(cursor["event_type"], cursor["partition"]), self._place(cursor)) for cursor in cursors
        ]
        if not places:
            raise Invalid("Cursors are empty")
        names = {partition.event_type for partition, _ in places}
        with contextlib.suppress(SubscriptionNotFound):
            names.update(self._registry.subscription(subscription_id).event_types)
        self._access.blacklist("CONSUMER", subject, names, "Application or subscription is blocked")
        self._access.subscription(subject, subscription_id)
        for partition, place in places:
            self._check_available(partition, place)
        _check_stream_id(stream_id)
        return [(partition, place.offset) for partition, place in places]

    def _place(self, cursor: Mapping[str, Any]) -> TimelinePosition:
        """The position that a cursor names, in an existing or former timeline."""
        name, partition = cursor["event_type"], cursor["partition"]
        try:
            timelines = self._registry.timelines(name)
        except EventTypeNotFound as ex:
            raise InvalidCursor(str(ex)) from ex
        place = parse_offset(cursor["offset"], partition=partition, oldest_order=FIRST_ORDER)
        if place is None:
            return TimelinePosition(timelines.readable[0].order, BEFORE_FIRST)
        if place.order != timelines.active.order and place.order not in [each.order for each in timelines.timelines]:
            raise UnavailableCursor(name, partition, str(place.position))
        return place

    def _check_available(self, partition: EventTypePartition, place: TimelinePosition) -> None:
        """Reject positions in timelines that have been cleaned up."""
        timelines = self._registry.timelines(partition.event_type)
        # PERF: nearly all cursors are of the active timeline.
        if place.order != timelines.active.order and place.order not in [each.order for each in timelines.readable]:
            raise UnavailableCursor(*partition, str(place.position))


def _check_stream_id(stream_id: str) -> None:
    try:
        UUID(stream_id)
    except ValueError as ex:
        raise Invalid(f"Stream id has to be valid UUID, but `{stream_id} was provided") from ex
