"""Committing cursors: a command without a domain event, for the coordinator keeps the cursors (consumption 7.2)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from rioni.commands.gate import Gate
from rioni.domain.authorization import Subject
from rioni.domain.cursor import BEFORE_FIRST, Place, parse_offset
from rioni.domain.errors import EventTypeNotFound, Invalid, InvalidCursor, UnavailableCursor
from rioni.domain.ports import Coordinator, EventTypePartition, Registry
from rioni.domain.timeline import FIRST_ORDER


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitCursors:
    """Remember how far a stream has been processed."""

    subscription_id: str
    stream_id: str
    cursors: Sequence[Mapping[str, Any]]
    """With `event_type`, `partition` and `offset` each."""


class Committer:
    """Checks and commits cursors; blocks on the coordinator only."""

    def __init__(self, registry: Registry, gate: Gate, coordinator: Coordinator) -> None:
        self._registry = registry
        self._gate = gate
        self._coordinator = coordinator

    def commit(self, command: CommitCursors, subject: Subject) -> Sequence[bool]:
        """Commit cursors, all or none; what is behind the committed one already is left as it is.

        Returns:
            For each cursor whether it advanced its partition.

        Raises:
            Invalid: a cursor can't be read, or does not belong to the stream.
            Blocked: the application or an event type of the subscription is blocked.
            SubscriptionNotFound: there is no such subscription.
            Denied: the subject may not read through it.
            Unavailable: the cursors can't be stored.
        """
        self._registry.refresh()
        places = [
            (EventTypePartition(cursor["event_type"], cursor["partition"]), self._offset(cursor))
            for cursor in command.cursors
        ]
        if not places:
            raise Invalid("Cursors are empty")
        names = {partition.event_type for partition, _ in places}
        self._gate.blacklist("CONSUMER", subject, names, "Application or subscription is blocked")
        self._gate.subscription(subject, command.subscription_id)
        _check_stream_id(command.stream_id)
        return self._coordinator.commit(command.subscription_id, command.stream_id, places)

    def _offset(self, cursor: Mapping[str, Any]) -> str:
        """The canonical form of a cursor's offset."""
        name, partition = cursor["event_type"], cursor["partition"]
        try:
            timelines = self._registry.timelines(name)
        except EventTypeNotFound as ex:
            raise InvalidCursor(str(ex)) from ex
        place = parse_offset(cursor["offset"], partition=partition, oldest_order=FIRST_ORDER)
        if place is None:
            return Place(timelines.timelines[0].order, BEFORE_FIRST).offset
        if all(timeline.order != place.order for timeline in timelines.timelines):
            raise UnavailableCursor(name, partition, cursor["offset"])
        return place.offset


def _check_stream_id(stream_id: str) -> None:
    try:
        UUID(stream_id)
    except ValueError as ex:
        raise Invalid(f"Stream id has to be valid UUID, but `{stream_id} was provided") from ex
