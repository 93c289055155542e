"""Admission rules of a coordinator: which streams may join, and which partitions they may commit.

Source: reference subscriptions#commit-checks, streams#checks.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from rioni.domain.errors import Conflict, Invalid, SubscriptionNotFound
from rioni.domain.ports.coordinator import Session, Topology
from rioni.domain.timelines.position import BEGIN, EventTypePartition


Cursors = Sequence[tuple[EventTypePartition, str]]


class StreamSlots:
    """Stream slots of a subscription."""

    def __init__(self, subscription_id: str, topology: Topology) -> None:
        """Start with the present streams; retired ones have no slot.

        Raises:
            SubscriptionNotFound: it is not initialised.
        """
        if not topology.epoch:
            raise SubscriptionNotFound(subscription_id)
        self._subscription_id, self._resetting = subscription_id, topology.resetting
        self._total = len(topology.partitions)
        sessions = [session for session in topology.sessions.values() if not session.retired]
        self.retired = [session.id for session in topology.sessions.values() if session.retired]
        """The sessions that must end when another one begins."""
        self._requested = {partition for session in sessions for partition in session.requested}
        self._automatic = sum(not session.requested for session in sessions)

    def assign(self, session: Session) -> None:
        """Assign a slot to a session.

        Raises:
            Conflict: no slot is free, a partition is requested by another stream, or cursors are being reset.
        """
        if taken := session.requested & self._requested:
            named = ", ".join(
                f"EventTypePartition{{eventType='{event_type}', partition='{partition}'}}"
                for event_type, partition in sorted(taken)
            )
            raise Conflict(
                f"The following partitions are already requested by other stream(s) of this subscription: {named}"
            )
        if not session.requested and self._automatic >= self._total - len(self._requested):
            raise Conflict(
                f"No free slots for streaming available for subscription {self._subscription_id}. "
                f"Total slots: {self._total}"
            )
        if self._resetting:
            raise Conflict("Resetting subscription cursors request is still in progress")
        self._requested |= session.requested
        self._automatic += not session.requested


def check_commit(
    stream_id: str, cursors: Cursors, *, is_alive: bool, owner: Callable[[EventTypePartition], str | None]
) -> None:
    """Check that a session lives and owns what it wants to commit (reference subscriptions#commit-checks).

    Args:
        stream_id: the session.
        cursors: what it wants to commit.
        is_alive: whether it is one of the subscription's.
        owner: of a partition: empty or None if there is no owner, or no such partition.

    Raises:
        Invalid: it has ended, or does not own a partition.
    """
    if not is_alive:
        raise session_not_found(stream_id)
    for key, offset in cursors:
        if not (found := owner(key)):
            raise Invalid(f"non existing partition {key.partition}")
        if found != stream_id:
            cursor = f"{{partition='{key.partition}', offset='{offset}', event_type='{key.event_type}'}}"
            raise Invalid(f"Cursor {cursor} cannot be committed with stream id {stream_id}")


def session_not_found(stream_id: str) -> Invalid:
    """The error for commits to a stream that has ended, or never existed."""
    return Invalid(f"Session with stream id {stream_id} not found")


class Comparison(NamedTuple):
    """Cursors, compared with the stored offsets of their partitions."""

    advanced: Sequence[bool]
    """For each cursor whether it is ahead of the stored offset, and of the cursors before it."""
    ahead: Mapping[EventTypePartition, str]
    """The offsets to store."""
    again: Collection[EventTypePartition]
    """Partitions with repeated commits of the stored offset, which count as heartbeats."""


def compare(stored: Mapping[EventTypePartition, str], cursors: Cursors) -> Comparison:
    """Compare cursors with the stored offsets of their partitions, one after the other."""
    advanced: list[bool] = []
    ahead: dict[EventTypePartition, str] = {}
    again: set[EventTypePartition] = set()
    for key, offset in cursors:
        advanced.append(offset > ahead.get(key, stored[key]) and offset != BEGIN)
        if advanced[-1]:
            ahead[key] = offset
        elif offset == stored[key]:
            again.add(key)
    return Comparison(advanced, ahead, again)
