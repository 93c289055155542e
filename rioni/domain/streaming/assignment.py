"""Assignment of partitions: which streams may join, which partitions each gets, and which it may commit."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from rioni.domain.errors import Conflict, Invalid, SubscriptionNotFound
from rioni.domain.ports.coordinator import Assignment, StreamSession, Topology
from rioni.domain.timelines.position import BEGIN, EventTypePartition


# --- Admission rules of a coordinator: which streams may join, and which partitions they may commit ---
#
# Source: reference subscriptions#commit-checks, streams#checks.

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

    def assign(self, session: StreamSession) -> None:
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
    """Check that a session lives and owns the partitions to commit (reference subscriptions#commit-checks).

    Args:
        stream_id: the session.
        cursors: the cursors to commit.
        is_alive: whether it is one of the subscription's.
        owner: the owner of a partition: empty or None if there is no owner, or no such partition.

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
    """Whether each cursor is ahead of the stored offset, and of the cursors before it."""
    ahead: Mapping[EventTypePartition, str]
    """The offsets to store."""
    again: Collection[EventTypePartition]
    """Partitions with repeated commits of the stored offset, which count as heartbeats."""


def compare(stored: Mapping[EventTypePartition, str], cursors: Cursors) -> Comparison:
    """Compare cursors with the stored offsets of their partitions, in order."""
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


# --- Rebalancing: distributes a subscription's partitions over its sessions (reference streams#shares) ---

Assignments = Mapping[EventTypePartition, Assignment]


def rebalance(partitions: Assignments, sessions: Iterable[StreamSession]) -> Assignments:
    """Assign all partitions, moving as few as possible; total: never fails, whatever the sessions request.

    Direct requests always win; of several streams that request the same partition one gets it. The others are shared
    by the automatic sessions, as equally as possible; surplus sessions get none. A partition with a live
    owner is handed over: the owner keeps it until it releases it. Retired sessions keep theirs, and get no more.
    Balanced input is returned unchanged.

    Args:
        partitions: the current assignment, in a stable order.
        sessions: all live ones.
    """
    alive = {session.id: session for session in sessions}
    current = {partition: _without_dead(assignment, alive) for partition, assignment in partitions.items()}
    wanted = _requested(current, alive)
    pool = {partition: assignment for partition, assignment in current.items() if partition not in wanted}
    sharing = (session.id for session in alive.values() if not (session.requested or session.retired))
    wanted |= _shared(pool, sorted(sharing))
    return {
        partition: _moved(assignment, wanted.get(partition, assignment.session))
        for partition, assignment in current.items()
    }


def _without_dead(assignment: Assignment, alive: Mapping[str, StreamSession]) -> Assignment:
    session, next_session = (name if name in alive else "" for name in assignment)
    if next_session and alive[next_session].retired:
        next_session = ""
    return Assignment(session, next_session) if session else Assignment(next_session)


def _moved(assignment: Assignment, target: str) -> Assignment:
    if not assignment.session or assignment.session == target:
        return Assignment(target)
    return Assignment(assignment.session, target)


def _requested(current: Assignments, alive: Mapping[str, StreamSession]) -> dict[EventTypePartition, str]:
    """The sessions of partitions that are not shared."""
    wanted = {key: each.session for key, each in current.items() if each.session and alive[each.session].retired}
    for session in sorted(each for each in alive.values() if not each.retired):
        for partition in session.requested & current.keys():
            if session.id == current[partition].owner:
                wanted[partition] = session.id
            else:
                wanted.setdefault(partition, session.id)
    return wanted


def _shared(pool: Assignments, sessions: list[str]) -> dict[EventTypePartition, str]:
    if not sessions:
        return {}
    held: dict[str, list[EventTypePartition]] = {session: [] for session in sessions}
    free: list[EventTypePartition] = []
    for partition, assignment in pool.items():
        held.get(assignment.owner, free).append(partition)
    each, rest = divmod(len(pool), len(sessions))
    # Sessions with the most partitions keep the remainder: that moves least.
    by_size = sorted(sessions, key=lambda session: -len(held[session]))
    quota = {session: each + (place < rest) for place, session in enumerate(by_size)}
    for session, partitions in held.items():
        # Partitions still being handed over go first, then the last ones.
        partitions.sort(key=lambda partition: bool(pool[partition].next_session))
        free += reversed(partitions[quota[session] :])
        del partitions[quota[session] :]
    order = {partition: place for place, partition in enumerate(pool)}
    for partition in sorted(free, key=order.__getitem__):
        # A stream that still has the partition is the best to have it, for then nothing moves.
        reader = pool[partition].session
        if reader in held and len(held[reader]) < quota[reader]:
            held[reader].append(partition)
            free.remove(partition)
    free.sort(key=order.__getitem__)
    for session in sessions:
        while len(held[session]) < quota[session]:
            held[session].append(free.pop(0))
    return {partition: session for session, partitions in held.items() for partition in partitions}
