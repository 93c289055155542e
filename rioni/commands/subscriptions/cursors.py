"""Cursors of clients: their specs become positions, and they are committed."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from rioni.commands.authorization import AccessPolicy
from rioni.domain.access.authorization import Subject
from rioni.domain.errors import EventTypeNotFound, Invalid, InvalidCursor, SubscriptionNotFound, UnavailableCursor
from rioni.domain.ports.coordinator import Coordinator
from rioni.domain.ports.event_log import Registry
from rioni.domain.ports.event_store import EventStores
from rioni.domain.subscriptions.cursor_arithmetic import OffsetRanges, begin, end, readable_place, shifted
from rioni.domain.subscriptions.cursor_spec import CursorSpec
from rioni.domain.timelines.position import (
    BEFORE_FIRST,
    EventTypePartition,
    TimelinePosition,
    parse_offset,
    partition_number,
)
from rioni.domain.timelines.timeline import FIRST_ORDER, Timelines
from rioni.domain.timestamps import parsed_ms
from rioni.projections.queries.timeline_reader import offset_ranges_of, position_at_time


# --- Committing cursors: a command without a domain event, for the coordinator keeps the cursors ---
#
# Source: reference subscriptions#commit-checks.


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitCursors:
    """Remember how far a stream has been processed."""

    subscription_id: str
    stream_id: str
    cursors: Sequence[Mapping[str, Any]]
    """Cursors with `event_type`, `partition` and `offset` each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFailureReasons:
    """Remember why a stream's client could not process events."""

    subscription_id: str
    stream_id: str
    failures: Sequence[Mapping[str, Any]]
    """Failures with `event_type`, `partition`, `offset` and `reason` each."""


class CursorCommitter:
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


# --- Resolves client cursor specs (BEGIN, END, timestamp) to positions, across an event type's timelines ---


class CursorResolver:
    """Resolves cursor specs of one event type against a snapshot of its timelines."""

    def __init__(self, timelines: Timelines, stores: EventStores) -> None:
        """Read the offset ranges; may block on the disk.

        Raises:
            NotFound: the event type has been deleted.
            Unavailable: a storage can't be used.
        """
        self._timelines, self._stores = timelines, stores
        self.partitions = offset_ranges_of(timelines, stores)
        """The offset ranges of all partitions, by number."""

    def ranges(self, partition: str | None) -> OffsetRanges:
        """The offset ranges of a partition.

        Raises:
            Invalid: there is no such partition.
        """
        return self.partitions[self._number(partition)]

    def place(self, named: CursorSpec) -> TimelinePosition:
        """The position that a cursor spec names, readable or not; the caller applies its shift.

        Blocks on the disk if the spec is a timestamp.

        Raises:
            Invalid: there is no such partition.
            InvalidCursor: the offset is not valid.
        """
        number = self._number(named.partition)
        ranges = self.partitions[number]
        if named.timestamp is not None:
            at_ms = parsed_ms(named.timestamp)
            assert at_ms is not None, "names are checked when they are read"
            return position_at_time(self._timelines, self._stores, number, ranges, at_ms)
        if named.is_end:
            return end(ranges)
        offset, partition = named.offset or "", named.partition or ""
        return parse_offset(offset, partition=partition, oldest_order=FIRST_ORDER) or begin(ranges)

    def readable(self, named: CursorSpec) -> TimelinePosition:
        """The position that a cursor spec names, which must be readable; blocks as `place` does.

        Raises:
            InvalidCursor: partition or offset can't be read.
            UnavailableCursor: the events after the offset have expired, or the position does not exist yet.
            Invalid: the shifted position is not readable.
        """
        event_type, partition = named.event_type or "", named.partition or ""
        if not named.is_general:
            place = readable_place(event_type, partition, named.offset or "", self.partitions)
        elif partition_number(partition, len(self.partitions)) is None:
            raise InvalidCursor(f"non existing partition {partition}")
        else:
            place = self.place(named)
        return shifted(place, named.shift, self.ranges(partition)) if named.shift else place

    def _number(self, partition: str | None) -> int:
        number = partition_number(partition or "", len(self.partitions))
        if number is None:
            raise Invalid("Partition not found.")
        return number
