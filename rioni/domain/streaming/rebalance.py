"""Rebalancing: distributes a subscription's partitions over its sessions (reference streams#shares)."""

from collections.abc import Iterable, Mapping

from rioni.domain.ports.coordinator import Assignment, Session
from rioni.domain.timelines.position import EventTypePartition


Assignments = Mapping[EventTypePartition, Assignment]


def rebalance(partitions: Assignments, sessions: Iterable[Session]) -> Assignments:
    """Assign all partitions, moving as few as possible; total: never fails, whatever the sessions request.

    Direct requests always win; of several streams that request the same partition one gets it. The others are shared
    by the automatic sessions, in equal numbers as far as possible; surplus sessions get none. A partition with a live
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


def _without_dead(assignment: Assignment, alive: Mapping[str, Session]) -> Assignment:
    session, next_session = (name if name in alive else "" for name in assignment)
    if next_session and alive[next_session].retired:
        next_session = ""
    return Assignment(session, next_session) if session else Assignment(next_session)


def _moved(assignment: Assignment, target: str) -> Assignment:
    if not assignment.session or assignment.session == target:
        return Assignment(target)
    return Assignment(assignment.session, target)


def _requested(current: Assignments, alive: Mapping[str, Session]) -> dict[EventTypePartition, str]:
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
        # Those still under way go first, then the last ones.
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
