"""Assigns a subscription's partitions to sessions, as stored in its node, and applies changes. Pure."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import msgspec

from rioni.domain.errors import Conflict, SubscriptionNotFound
from rioni.domain.ports.coordinator import Assignment, StreamSession, Topology
from rioni.domain.streaming.assignment import StreamSlots, rebalance
from rioni.domain.timelines.position import EventTypePartition


class PartitionAssignment(msgspec.Struct, frozen=True, array_like=True):
    """A partition and its sessions."""

    partition: EventTypePartition
    session: str = ""
    next_session: str = ""
    term: int = 0
    """The epoch in which the session got the partition, unique for each assignment of it."""


class SubscriptionAssignment(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of a subscription's node; the version of the node is its epoch."""

    shares: tuple[PartitionAssignment, ...]
    """The assignments of the partitions in a constant order; new partitions are appended."""
    sessions: Mapping[str, tuple[EventTypePartition, ...]] = msgspec.field(default_factory=dict)
    """The partitions requested by each stream. Streams without an ephemeral node are dead."""
    reset: str = ""
    """The name of the ephemeral node of a reset in progress."""
    retired: tuple[str, ...] = ()
    """The streams that give way to the next one, as their clients have gone."""

    def encoded(self) -> bytes:
        """Return the stored form."""
        return msgspec.json.encode(self)

    def topology(self, epoch: int) -> Topology:
        """Return the topology as defined by the port."""
        return Topology(
            epoch,
            {share.partition: Assignment(share.session, share.next_session) for share in self.shares},
            {
                name: StreamSession(name, frozenset(requested), name in self.retired)
                for name, requested in sorted(self.sessions.items())
            },
            bool(self.reset),
        )

    def needs(self) -> set[str]:
        """Return the names of the ephemeral nodes that must exist."""
        return {*self.sessions, *({self.reset} - {""})}

    def concerned(self, before: "SubscriptionAssignment") -> set[str] | None:
        """Return the streams affected by the change from an earlier assignment; None if possibly all."""
        if (
            self.reset != before.reset
            or len(self.shares) != len(before.shares)
            or before.sessions.keys() - self.sessions
            or self.retired != before.retired
        ):
            return None
        changed = [pair for pair in zip(self.shares, before.shares, strict=True) if pair[0] != pair[1]]
        names = {name for pair in changed for share in pair for name in (share.session, share.next_session)}
        return (names | (self.sessions.keys() - before.sessions)) - {""}


decode: Callable[[bytes], SubscriptionAssignment] = msgspec.json.Decoder(SubscriptionAssignment).decode


class AssignmentUpdate:
    """Changes of an assignment that are written together, and the ephemeral nodes to create and delete with it."""

    def __init__(
        self, subscription_id: str, assignment: SubscriptionAssignment | None, version: int, living: Collection[str]
    ) -> None:
        """Start with the stored assignment, without dead sessions and resets.

        Args:
            subscription_id: id of the subscription.
            assignment: the stored assignment, if any.
            version: the version of the node.
            living: the names of the existing ephemeral nodes, read after the assignment.
        """
        self._id, self._before, self.version = subscription_id, assignment, version
        self._assignment = assignment
        self._rebalance = False
        self._stream_slots: StreamSlots | None = None
        self.created: dict[str, bool] = {}
        """The ephemeral nodes to be created (true) and deleted (false)."""
        if assignment is not None and assignment.needs() - {*living}:
            sessions = {name: wanted for name, wanted in assignment.sessions.items() if name in living}
            reset = assignment.reset if assignment.reset in living else ""
            retired = tuple(name for name in assignment.retired if name in living)
            self._assignment = msgspec.structs.replace(assignment, sessions=sessions, reset=reset, retired=retired)
            self._rebalance = True

    def finished(self) -> SubscriptionAssignment | None:
        """Return the assignment to be stored; None if unchanged."""
        if self._assignment is None:
            return None
        assignment = self._balanced()
        return None if assignment == self._before else assignment

    @property
    def epoch(self) -> int:
        """The epoch of the assignment after it is stored: that of a new node is 1."""
        return self.version + 2

    def join(self, session: StreamSession) -> None:
        """Start a session; see the port."""
        assignment = self._stored()
        if session.id in assignment.sessions:
            return  # already started, but the response was lost
        if self._stream_slots is None:
            self._stream_slots = StreamSlots(self._id, assignment.topology(self.epoch))
        self._stream_slots.assign(session)
        sessions = {**assignment.sessions, session.id: tuple(sorted(session.requested))}
        self._change(sessions=sessions)
        self.created[session.id] = True
        self._rebalance = True
        for retired in self._stream_slots.retired:
            self.leave(retired)

    def leave(self, stream_id: str) -> None:
        """End a session; see the port."""
        if self._assignment is None or stream_id not in self._assignment.sessions:
            return
        self._change(
            sessions={name: wanted for name, wanted in self._assignment.sessions.items() if name != stream_id},
            retired=tuple(name for name in self._assignment.retired if name != stream_id),
        )
        self._stream_slots = None
        self._end(stream_id)
        self._rebalance = True

    def retire(self, stream_id: str) -> None:
        """Let a session give way to the next one; see the port."""
        assignment = self._assignment
        if assignment is not None and stream_id in assignment.sessions and stream_id not in assignment.retired:
            self._change(retired=(*assignment.retired, stream_id))
            self._stream_slots = None

    def release(self, stream_id: str, partitions: Collection[EventTypePartition]) -> None:
        """Hand partitions over; see the port."""
        if self._assignment is None:
            return
        given = {*partitions}
        self._change(
            shares=tuple(
                PartitionAssignment(share.partition, share.next_session, "", self.epoch)
                if share.partition in given and share.session == stream_id and share.next_session
                else share
                for share in self._balanced().shares
            )
        )

    def extend(self, partitions: Iterable[EventTypePartition]) -> list[EventTypePartition]:
        """Add missing partitions, and return them."""
        assignment = self._stored()
        known = {share.partition for share in assignment.shares}
        added = [partition for partition in partitions if partition not in known]
        if added:
            self._change(shares=(*assignment.shares, *map(PartitionAssignment, added)))
            self._stream_slots = None
            self._rebalance = True
        return added

    def begin_reset(self, node: str) -> None:
        """Start a reset; see the port."""
        assignment = self._stored()
        if assignment.reset == node:
            return  # already started, but the response was lost
        if assignment.reset:
            raise Conflict("Cursors reset is already in progress for provided subscription")
        self._change(reset=node)
        self._stream_slots = None
        self.created[node] = True

    def end_reset(self, node: str) -> bool:
        """End a reset; return whether it was still this one."""
        if self._assignment is None or self._assignment.reset != node:
            return False
        self._change(reset="")
        self._stream_slots = None
        self._end(node)
        return True

    def _end(self, node: str) -> None:
        if not self.created.pop(node, False):
            self.created[node] = False

    def _stored(self) -> SubscriptionAssignment:
        if self._assignment is None:
            raise SubscriptionNotFound(self._id)
        return self._assignment

    def _change(self, **changes: Any) -> None:
        self._assignment = msgspec.structs.replace(self._stored(), **changes)

    def _balanced(self) -> SubscriptionAssignment:
        assignment = self._stored()
        if self._rebalance:
            self._rebalance = False
            topology = assignment.topology(self.epoch)
            after = rebalance(topology.partitions, topology.sessions.values())
            shares = tuple(self._moved(share, after[share.partition]) for share in assignment.shares)
            self._assignment = assignment = msgspec.structs.replace(assignment, shares=shares)
        return assignment

    def _moved(self, share: PartitionAssignment, to: Assignment) -> PartitionAssignment:
        term = share.term if to.session == share.session else self.epoch
        return PartitionAssignment(share.partition, to.session, to.next_session, term)
