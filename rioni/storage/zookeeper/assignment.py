"""Assigns a subscription's partitions to sessions, as stored in its node, and applies changes. Pure."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import msgspec

from rioni.domain.errors import Conflict, SubscriptionNotFound
from rioni.domain.ports.coordinator import Assignment, EventTypePartition, Session, Topology
from rioni.domain.streaming.admission import StreamSlots
from rioni.domain.streaming.rebalance import rebalance


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
    """In a constant order; new partitions are appended."""
    sessions: Mapping[str, tuple[EventTypePartition, ...]] = msgspec.field(default_factory=dict)
    """The partitions requested by each stream. Streams without an ephemeral node are dead."""
    reset: str = ""
    """The name of the ephemeral node of a reset in progress."""

    def encoded(self) -> bytes:
        """Return the stored form."""
        return msgspec.json.encode(self)

    def topology(self, epoch: int) -> Topology:
        """Return the topology as defined by the port."""
        return Topology(
            epoch,
            {share.partition: Assignment(share.session, share.next_session) for share in self.shares},
            {name: Session(name, frozenset(requested)) for name, requested in sorted(self.sessions.items())},
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
        ):
            return None
        changed = [pair for pair in zip(self.shares, before.shares, strict=True) if pair[0] != pair[1]]
        names = {name for pair in changed for share in pair for name in (share.session, share.next_session)}
        return (names | (self.sessions.keys() - before.sessions)) - {""}


decode: Callable[[bytes], SubscriptionAssignment] = msgspec.json.Decoder(SubscriptionAssignment).decode


class AssignmentUpdate:
    """Changes of an assignment that are written together, and the ephemeral nodes to create and delete with it."""

    def __init__(
        self, subscription_id: str, plan: SubscriptionAssignment | None, version: int, living: Collection[str]
    ) -> None:
        """Start with the stored assignment, without dead sessions and resets.

        Args:
            subscription_id: id of the subscription.
            plan: the stored assignment; None if there is none.
            version: of the node.
            living: the names of the existing ephemeral nodes, read after the assignment.
        """
        self._id, self._before, self.version = subscription_id, plan, version
        self._plan = plan
        self._rebalance = False
        self._seats: StreamSlots | None = None
        self.created: dict[str, bool] = {}
        """The ephemeral nodes to be created (true) and deleted (false)."""
        if plan is not None and plan.needs() - {*living}:
            sessions = {name: wanted for name, wanted in plan.sessions.items() if name in living}
            reset = plan.reset if plan.reset in living else ""
            self._plan = msgspec.structs.replace(plan, sessions=sessions, reset=reset)
            self._rebalance = True

    def finished(self) -> SubscriptionAssignment | None:
        """Return the assignment to be stored; None if unchanged."""
        if self._plan is None:
            return None
        plan = self._balanced()
        return None if plan == self._before else plan

    @property
    def epoch(self) -> int:
        """The epoch of the assignment after it is stored: that of a new node is 1."""
        return self.version + 2

    def join(self, session: Session) -> None:
        """Start a session; see the port."""
        plan = self._stored()
        if session.id in plan.sessions:
            return  # already started, but the response was lost
        if self._seats is None:
            self._seats = StreamSlots(self._id, plan.topology(self.epoch))
        self._seats.take(session)
        sessions = {**plan.sessions, session.id: tuple(sorted(session.requested))}
        self._change(sessions=sessions)
        self.created[session.id] = True
        self._rebalance = True

    def leave(self, stream_id: str) -> None:
        """End a session; see the port."""
        if self._plan is None or stream_id not in self._plan.sessions:
            return
        self._change(sessions={name: wanted for name, wanted in self._plan.sessions.items() if name != stream_id})
        self._seats = None
        self._end(stream_id)
        self._rebalance = True

    def release(self, stream_id: str, partitions: Collection[EventTypePartition]) -> None:
        """Hand partitions over; see the port."""
        if self._plan is None:
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
        plan = self._stored()
        known = {share.partition for share in plan.shares}
        added = [partition for partition in partitions if partition not in known]
        if added:
            self._change(shares=(*plan.shares, *map(PartitionAssignment, added)))
            self._seats = None
            self._rebalance = True
        return added

    def begin_reset(self, node: str) -> None:
        """Start a reset; see the port."""
        plan = self._stored()
        if plan.reset == node:
            return  # already started, but the response was lost
        if plan.reset:
            raise Conflict("Cursors reset is already in progress for provided subscription")
        self._change(reset=node)
        self._seats = None
        self.created[node] = True

    def end_reset(self, node: str) -> bool:
        """End a reset; return whether it was still this one."""
        if self._plan is None or self._plan.reset != node:
            return False
        self._change(reset="")
        self._seats = None
        self._end(node)
        return True

    def _end(self, node: str) -> None:
        if not self.created.pop(node, False):
            self.created[node] = False

    def _stored(self) -> SubscriptionAssignment:
        if self._plan is None:
            raise SubscriptionNotFound(self._id)
        return self._plan

    def _change(self, **changes: Any) -> None:
        self._plan = msgspec.structs.replace(self._stored(), **changes)

    def _balanced(self) -> SubscriptionAssignment:
        plan = self._stored()
        if self._rebalance:
            self._rebalance = False
            topology = plan.topology(self.epoch)
            after = rebalance(topology.partitions, topology.sessions.values())
            shares = tuple(self._moved(share, after[share.partition]) for share in plan.shares)
            self._plan = plan = msgspec.structs.replace(plan, shares=shares)
        return plan

    def _moved(self, share: PartitionAssignment, to: Assignment) -> PartitionAssignment:
        term = share.term if to.session == share.session else self.epoch
        return PartitionAssignment(share.partition, to.session, to.next_session, term)
