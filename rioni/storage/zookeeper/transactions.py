"""Concurrent requests for one subscription share a transaction: changes of its assignment, and commits of cursors."""

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

from rioni.domain.errors import Invalid, Overloaded, RioniError, Unavailable
from rioni.domain.ports.coordinator import Topology
from rioni.domain.ports.host import Clock, direct
from rioni.domain.streaming.assignment import Cursors, check_commit, compare
from rioni.domain.timelines.position import EventTypePartition
from rioni.storage.group_commit import GroupCommit, WriteJob, no_follow_up
from rioni.storage.zookeeper import assignment as plans
from rioni.storage.zookeeper.assignment import AssignmentUpdate
from rioni.storage.zookeeper.driver import REFUSALS, Interrupted, Operation, begin, check, delete, put
from rioni.storage.zookeeper.nodes import CommitProgress, cursor_path, living_path, plan_path
from rioni.storage.zookeeper.session import ZooKeeperSession
from rioni.storage.zookeeper.subscriptions import UNKNOWN, ObservedSubscription, Standing, SubscriptionCache


# --- Applies assignment changes: concurrent changes of one subscription are written as one transaction ---

CHANGE_TIMEOUT_S = 30.0
"""A change not accepted by ZooKeeper by then is answered with 503."""


class _Job(WriteJob):
    """A pending write for one subscription."""

    def __init__(self, subscription_id: str, size: int = 0) -> None:
        super().__init__(size)
        self.subscription_id = subscription_id


J = TypeVar("J", bound=_Job)


def _by_subscription(jobs: Sequence[J]) -> dict[str, list[J]]:
    found: dict[str, list[J]] = {}
    for job in jobs:
        found.setdefault(job.subscription_id, []).append(job)
    return found


class _Change(_Job):
    """An assignment change waiting to be written."""

    def __init__(self, subscription_id: str, apply: Callable[[AssignmentUpdate], object]) -> None:
        super().__init__(subscription_id)
        self.apply = apply


class AssignmentWriter:
    """Writes assignments with optimistic concurrency control."""

    def __init__(self, session: ZooKeeperSession, clock: Clock) -> None:
        self._session, self._clock = session, clock
        self._group: GroupCommit[_Change] = GroupCommit(self._write, direct)

    def make(self, subscription_id: str, apply: Callable[[AssignmentUpdate], object]) -> None:
        """Change an assignment, and remove dead sessions.

        Args:
            subscription_id: id of the subscription.
            apply: changes an update, repeatedly after conflicts; a returned list contains operations of the same
                transaction.

        Raises:
            RioniError: `apply` raises it.
            Unavailable: ZooKeeper does not accept the change.
        """
        self._group.submit(_Change(subscription_id, apply), CHANGE_TIMEOUT_S)

    def close(self) -> None:
        """Write pending changes."""
        self._group.close()

    def _write(self, changes: Sequence[_Change]) -> Callable[[], None]:
        """Write changes; those of one subscription in one transaction."""
        by_subscription = _by_subscription(changes)
        deadline_s = self._clock.monotonic() + CHANGE_TIMEOUT_S
        while by_subscription and self._clock.monotonic() < deadline_s:
            drafts = self._drafts(by_subscription)
            requests = {}
            for subscription_id, draft in drafts.items():
                operations = self._operations(draft, subscription_id, by_subscription[subscription_id])
                if operations:
                    requests[subscription_id] = operations
            written = self._session.transactions(list(requests.values()))
            conflicts = {name for name, done in zip(requests, written, strict=True) if not done}
            by_subscription = {name: by_subscription[name] for name in conflicts}
        for waiting in by_subscription.values():
            for change in waiting:
                change.error = Overloaded("The ZooKeeper transaction failed after repeated conflicts. Try again later.")
        return no_follow_up

    def _drafts(self, subscription_ids: Collection[str]) -> dict[str, AssignmentUpdate]:
        requests = []
        for subscription_id in subscription_ids:
            path, living = plan_path(subscription_id), living_path(subscription_id)
            # In this order, and on one connection: the nodes used by the assignment were created before it.
            requests.append(lambda client, path=path: client.get_async(path))
            requests.append(lambda client, living=living: client.get_children_async(living))
        answers = iter(self._session.request_with_retry(*requests))
        drafts = {}
        for subscription_id, stored, living in zip(subscription_ids, answers, answers, strict=True):
            if isinstance(stored, REFUSALS) or isinstance(living, REFUSALS):
                drafts[subscription_id] = AssignmentUpdate(subscription_id, None, -1, ())
            else:
                data, stat = stored
                drafts[subscription_id] = AssignmentUpdate(subscription_id, plans.decode(data), stat.version, living)
        return drafts

    def _operations(self, draft: AssignmentUpdate, subscription_id: str, changes: Sequence[_Change]) -> list[Operation]:
        operations: list[Operation] = []
        for change in changes:
            try:
                change.error = None
                made = change.apply(draft)
                operations += made if isinstance(made, list) else ()
            except RioniError as ex:
                change.error = ex
        assignment = draft.finished()
        if assignment is None:
            return operations
        path, living = plan_path(subscription_id), living_path(subscription_id)
        operations.insert(0, put(path, assignment.encoded(), draft.version))
        for node, begins in draft.created.items():
            operations.append(begin(f"{living}/{node}") if begins else delete(f"{living}/{node}"))
        return operations


# --- Commits cursors: concurrent commits of one subscription share a transaction ---

COMMIT_TIMEOUT_S = 30.0
"""A commit not accepted by ZooKeeper by then is answered with 503."""

Stand = Mapping[EventTypePartition, CommitProgress]
Terms = Mapping[EventTypePartition, int]


Changes = Callable[[Topology, Terms, Stand], Stand]
"""Returns the new values; raises Invalid if the owner may not write them, Unavailable if the outcome is unknown."""


class _Write(_Job):
    """A pending write by the owner of partitions."""

    def __init__(
        self, subscription_id: str, stream_id: str, keys: Collection[EventTypePartition], changes: Changes | None = None
    ) -> None:
        super().__init__(subscription_id, len(keys))
        self.stream_id, self.keys, self._changes = stream_id, keys, changes
        self.unanswered = False
        """Whether an earlier attempt had an unknown outcome."""

    def changes(self, topology: Topology, terms: Terms, stand: Stand) -> Stand:
        """The new values; see `Changes`."""
        assert self._changes is not None
        return self._changes(topology, terms, stand)


class _Commit(_Write):
    def __init__(self, subscription_id: str, stream_id: str, cursors: Sequence[tuple[EventTypePartition, str]]) -> None:
        super().__init__(subscription_id, stream_id, {key for key, _ in cursors})
        self._cursors = cursors
        self.advanced: Sequence[bool] = [False] * len(cursors)

    def changes(self, topology: Topology, terms: Terms, stand: Stand) -> Stand:
        """The offsets that are ahead of the stored ones; see `Changes`."""
        try:
            _check(self.stream_id, self._cursors, topology, stand)
        except Invalid:
            if not self.unanswered or any(
                key not in stand or stand[key].offset < offset for key, offset in self._cursors
            ):
                raise
            if all(stand[key].offset == offset for key, offset in self._cursors):
                # It was committed before the session ended; only the response was lost.
                return {}
            raise Unavailable("Commit outcome unknown: the cursor has since been advanced.") from None
        stored = {key: stand[key].offset for key in self.keys}
        result = compare(stored, self._cursors)
        # The stored offset may come from this very commit, if the response to a first attempt was lost.
        self.advanced = [
            now or (before and stored[key] >= offset)
            for now, before, (key, offset) in zip(result.advanced, self.advanced, self._cursors, strict=True)
        ]
        again = {key: stand[key].confirmed() for key in result.again}
        ahead = {key: stand[key].advanced(offset, terms[key]) for key, offset in result.ahead.items()}
        return again | ahead


def _check(stream_id: str, cursors: Cursors, topology: Topology, stand: Stand) -> None:
    """Raise Invalid if a stream may not commit cursors."""
    owners = topology.partitions
    check_commit(
        stream_id,
        cursors,
        is_alive=stream_id in topology.sessions,
        # A partition without a stored offset is just being added or deleted.
        owner=lambda key: owners[key].session if key in owners and key in stand else None,
    )


class Commits:
    """Writes commits and delivery attempts of owners, checking ownership in the same transaction."""

    def __init__(self, session: ZooKeeperSession, cache: SubscriptionCache, clock: Clock) -> None:
        self._session, self._cache, self._clock = session, cache, clock
        self._group: GroupCommit[_Write] = GroupCommit(self._write, direct)

    def commit(
        self, subscription_id: str, stream_id: str, cursors: Sequence[tuple[EventTypePartition, str]]
    ) -> Sequence[bool]:
        """Commit offsets durably; see the port `Coordinator`."""
        commit = _Commit(subscription_id, stream_id, cursors)
        self._group.submit(commit, COMMIT_TIMEOUT_S)
        return commit.advanced

    def record_delivery_attempt(
        self, subscription_id: str, stream_id: str, partition: EventTypePartition, offset: str, until: str | None
    ) -> None:
        """Record the delivery attempt that is about to begin; see the port `Coordinator`."""

        def attempt(topology: Topology, terms: Terms, stand: Stand) -> Stand:
            owner = topology.partitions.get(partition)
            if owner is None or owner.session != stream_id or partition not in stand:
                return {}
            return {partition: stand[partition].attempted(offset, terms[partition], until)}

        self._group.submit(_Write(subscription_id, stream_id, {partition}, attempt), COMMIT_TIMEOUT_S)

    def record_failure_reasons(
        self, subscription_id: str, stream_id: str, reasons: Sequence[tuple[EventTypePartition, str, str]]
    ) -> None:
        """Record why events could not be processed; see the port `Coordinator`."""
        cursors = [(key, offset) for key, offset, _ in reasons]

        def explain(topology: Topology, _terms: Terms, stand: Stand) -> Stand:
            _check(stream_id, cursors, topology, stand)
            changed: dict[EventTypePartition, CommitProgress] = {}
            for key, offset, reason in reasons:
                changed[key] = changed.get(key, stand[key]).explained(offset, reason)
            return {key: progress for key, progress in changed.items() if progress != stand[key]}

        self._group.submit(_Write(subscription_id, stream_id, {*dict(cursors)}, explain), COMMIT_TIMEOUT_S)

    def close(self) -> None:
        """Write pending commits."""
        self._group.close()

    def _write(self, writes: Sequence[_Write]) -> Callable[[], None]:
        groups: Mapping[str, Sequence[_Write]] = _by_subscription(writes)
        deadline_s = self._clock.monotonic() + COMMIT_TIMEOUT_S
        sure = False
        while groups and self._clock.monotonic() < deadline_s:
            with contextlib.suppress(Interrupted):
                groups = self._try(groups, sure=sure)
            sure = True
        for group in groups.values():
            for write in group:
                write.error = Overloaded(
                    "The commit failed after repeated conflicts in ZooKeeper; nothing was committed. Retry later."
                )
        return no_follow_up

    def _try(self, groups: Mapping[str, Sequence[_Write]], *, sure: bool) -> dict[str, Sequence[_Write]]:
        """Write for all subscriptions at once; return those that have to be retried."""
        if sure:
            self._session.barrier(patient=True)
        prepared = {name: _Group(self._cache, name, group, sure=sure) for name, group in groups.items()}
        ready = [each for each in prepared.values() if each.operations]
        written = self._session.transactions([each.operations for each in ready])
        again = {each.subscription_id for each in prepared.values() if each.doubtful}
        for each, done in zip(ready, written, strict=True):
            each.note(written=done)
            if not done:
                again.add(each.subscription_id)
        return {name: groups[name] for name in again}


class _Group:
    """The writes for one subscription in one transaction."""

    def __init__(self, cache: SubscriptionCache, subscription_id: str, writes: Sequence[_Write], *, sure: bool) -> None:
        """Prepare the transaction.

        Args:
            cache: the subscription cache of this process.
            subscription_id: id of the subscription.
            writes: the owners' writes.
            sure: whether the cache is up to date. Otherwise rejections are doubtful.
        """
        self.subscription_id, self._cache, self._writes = subscription_id, cache, writes
        self.operations: list[Operation] = []
        self.doubtful = False
        seen = cache.seen(subscription_id) if sure else cache.cached(subscription_id)
        keys = {key for write in writes for key in write.keys}
        keys &= seen.terms.keys() if seen else set()
        self._standings = (cache.standings if sure else cache.cached_standings)(subscription_id, keys)
        topology = seen.topology if seen else UNKNOWN
        if sure and seen:
            topology = _without_dead(topology, cache.living(subscription_id))
        self._changed: dict[EventTypePartition, CommitProgress] = {}
        streams: set[str] = set()
        stand = {key: each.progress for key, each in self._standings.items()}
        for write in writes:
            write.error = None
            try:
                changes = write.changes(topology, seen.terms if seen else {}, stand)
            except (Invalid, Unavailable) as ex:
                write.error = ex
                changes = {}
            if changes:
                streams.add(write.stream_id)
                stand |= changes
                self._changed |= changes
            elif not sure:
                # A rejection, or a write without changes, could be due to outdated data.
                self.doubtful = True
        if self._changed and seen and not self.doubtful:
            self._build(seen, streams)

    def note(self, *, written: bool | None) -> None:
        """Record the outcome; None if unknown."""
        if not written:
            for write in self._writes:
                write.unanswered |= written is None
            self._cache.invalidate_all(self.subscription_id, self._changed)
            return
        for key, progress in self._changed.items():
            self._cache.wrote(self.subscription_id, key, Standing(self._standings[key].version + 1, progress))

    def _build(self, seen: ObservedSubscription, streams: Collection[str]) -> None:
        name = self.subscription_id
        self.operations.append(check(plan_path(name), seen.version))
        self.operations += [check(f"{living_path(name)}/{stream_id}") for stream_id in streams]
        self.operations += [
            put(cursor_path(name, key), progress.encoded(), self._standings[key].version)
            for key, progress in self._changed.items()
        ]


def _without_dead(topology: Topology, living: Collection[str]) -> Topology:
    if topology.sessions.keys() <= {*living}:
        return topology
    sessions = {name: session for name, session in topology.sessions.items() if name in living}
    return Topology(topology.epoch, topology.partitions, sessions, topology.resetting)
