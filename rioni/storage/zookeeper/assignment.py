"""Assignment of a subscription's partitions to sessions, as its node stores it, and its changes. Pure."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import msgspec

from rioni.domain.errors import Conflict, SubscriptionNotFound
from rioni.domain.ports.coordinator import Assignment, EventTypePartition, Session, Topology
from rioni.domain.streaming.admission import StreamSlots
from rioni.domain.streaming.rebalance import rebalance


class PartitionAssignment(msgspec.Struct, frozen=True, array_like=True):
    """A partition, and who reads it."""

    partition: EventTypePartition
    session: str = ""
    next_session: str = ""
    term: int = 0
    """The epoch in which the session got the partition: it tells this time from every other."""


class SubscriptionAssignment(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the node of a subscription holds; the version of the node is its epoch."""

    shares: tuple[PartitionAssignment, ...]
    """In an order that never changes; what is new comes last."""
    sessions: Mapping[str, tuple[EventTypePartition, ...]] = msgspec.field(default_factory=dict)
    """What each stream insists on. Those without a node of their own have died."""
    reset: str = ""
    """The name of the node that marks a reset in progress."""

    def encoded(self) -> bytes:
        """As it is stored."""
        return msgspec.json.encode(self)

    def topology(self, epoch: int) -> Topology:
        """As the port shows it."""
        return Topology(
            epoch,
            {share.partition: Assignment(share.session, share.next_session) for share in self.shares},
            {name: Session(name, frozenset(requested)) for name, requested in sorted(self.sessions.items())},
            bool(self.reset),
        )

    def needs(self) -> set[str]:
        """The names of the nodes of everything that has to live."""
        return {*self.sessions, *({self.reset} - {""})}

    def concerned(self, before: "SubscriptionAssignment") -> set[str] | None:
        """The streams for which this plan differs from an earlier one, None where it may be all of them."""
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
    """Changes of a plan that are written together, and what is to be written with it."""

    def __init__(
        self, subscription_id: str, plan: SubscriptionAssignment | None, version: int, living: Collection[str]
    ) -> None:
        """Begin with what is stored; whatever has died is left out.

        Args:
            subscription_id: whose plan it is.
            plan: as it is stored; None where there is none.
            version: of the node.
            living: the names of the nodes of what lives, read after the plan.
        """
        self._id, self._before, self.version = subscription_id, plan, version
        self._plan = plan
        self._rebalance = False
        self._seats: StreamSlots | None = None
        self.created: dict[str, bool] = {}
        """The nodes of what begins (true) and ends (false)."""
        if plan is not None and plan.needs() - {*living}:
            sessions = {name: wanted for name, wanted in plan.sessions.items() if name in living}
            reset = plan.reset if plan.reset in living else ""
            self._plan = msgspec.structs.replace(plan, sessions=sessions, reset=reset)
            self._rebalance = True

    def finished(self) -> SubscriptionAssignment | None:
        """What is to be stored; None where nothing has changed."""
        if self._plan is None:
            return None
        plan = self._balanced()
        return None if plan == self._before else plan

    @property
    def epoch(self) -> int:
        """The epoch of what will be stored: that of a new node is 1."""
        return self.version + 2

    def join(self, session: Session) -> None:
        """Let a session begin; see the port."""
        plan = self._stored()
        if session.id in plan.sessions:
            return  # begun already, though the answer was lost
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
        """Add the partitions that are not there yet, and return them."""
        plan = self._stored()
        known = {share.partition for share in plan.shares}
        added = [partition for partition in partitions if partition not in known]
        if added:
            self._change(shares=(*plan.shares, *map(PartitionAssignment, added)))
            self._seats = None
            self._rebalance = True
        return added

    def begin_reset(self, node: str) -> None:
        """Begin a reset; see the port."""
        plan = self._stored()
        if plan.reset == node:
            return  # begun already, though the answer was lost
        if plan.reset:
            raise Conflict("Cursors reset is already in progress for provided subscription")
        self._change(reset=node)
        self._seats = None
        self.created[node] = True

    def end_reset(self, node: str) -> bool:
        """End a reset; say whether it was still this one."""
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
