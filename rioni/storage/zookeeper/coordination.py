"""Coordinates the streams of a cluster: sessions, assignments and committed cursors in ZooKeeper.

The assignment of each subscription is stored in one node, written only with the version last seen; the progress of each
partition is stored in a separate node. Every stream has an ephemeral node, which ends with the ZooKeeper session of its
process. A commit is written only if the assignment is the one that it was checked against, and the node of its stream
exists: a stream that has lost a partition can not commit it, however late it notices.
"""

import threading  # threads: greenlets only: events with deadlines, locks for changes in memory
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TypeVar
from uuid import uuid4

from rioni.domain.errors import OutcomeUnknown, Unavailable
from rioni.domain.ports.coordinator import (
    CommittedOffsets,
    DeliveryFailure,
    StreamSession,
    Topology,
    wait_for_streams_to_end,
)
from rioni.domain.ports.host import SUBSCRIPTION, Clock, Health, Waiter
from rioni.domain.streaming.assignment import session_not_found
from rioni.domain.timelines.position import EventTypePartition
from rioni.storage.threads import HubThread, run_on_hub
from rioni.storage.zookeeper import assignment as plans
from rioni.storage.zookeeper.assignment import AssignmentUpdate
from rioni.storage.zookeeper.driver import REFUSALS, UNREACHABLE, Interrupted, Operation, create, delete, put
from rioni.storage.zookeeper.nodes import (
    SUBSCRIPTIONS,
    WORKERS,
    CommitProgress,
    cursor_path,
    cursors_path,
    living_path,
    plan_path,
)
from rioni.storage.zookeeper.session import ZooKeeperSession
from rioni.storage.zookeeper.subscriptions import SubscriptionCache
from rioni.storage.zookeeper.transactions import CHANGE_TIMEOUT_S, AssignmentWriter, Commits


T = TypeVar("T")


class ZooKeeperCoordinator:
    """The port `Coordinator` on ZooKeeper."""

    def __init__(
        self,
        session: ZooKeeperSession,
        cache: SubscriptionCache,
        *,
        clock: Clock,
        watch: Callable[[Sequence[str]], Waiter],
    ) -> None:
        """Start without sessions.

        Args:
            session: the ZooKeeper session, closed with the coordinator.
            cache: the subscription cache of this process.
            clock: used for deadlines.
            watch: waits for notifications, including those of `cache`.
        """
        self.hub_thread: HubThread = session.hub_thread
        self._session, self._cache, self._clock, self._watch = session, cache, clock, watch
        self._writer = AssignmentWriter(session, clock)
        self._commits = Commits(session, cache, clock)
        self._own: dict[str, str] = {}
        self._leaving: set[str] = set()
        """Ended streams whose end is not written to ZooKeeper yet."""
        self._unfinished: list[Callable[[], object]] = []
        self._closed = threading.Event()

    # --- Sessions ---

    @run_on_hub
    def initialise(self, subscription_id: str, cursors: CommittedOffsets) -> None:
        """Create the partitions with their initial offsets; see the port."""
        if self.cursors(subscription_id):
            return
        assignment = plans.SubscriptionAssignment(tuple(plans.PartitionAssignment(key) for key in cursors))
        parents = (living_path(subscription_id), cursors_path(subscription_id))
        operations = [create(plan_path(subscription_id), assignment.encoded()), *map(create, parents)]
        self._session.transaction(*operations, *_created(subscription_id, cursors))

    @run_on_hub
    def extend(self, subscription_id: str, cursors: CommittedOffsets) -> None:
        """Add partitions and rebalance; see the port."""

        def extend(draft: AssignmentUpdate) -> list[Operation]:
            added = draft.extend(cursors)
            return _created(subscription_id, {key: cursors[key] for key in added})

        if not cursors.keys() <= self.cursors(subscription_id).keys():
            self._writer.make(subscription_id, extend)

    @run_on_hub
    def join(self, subscription_id: str, stream_id: str, requested: Collection[EventTypePartition] = ()) -> None:
        """Start a session and rebalance; see the port."""
        session = StreamSession(stream_id, frozenset(requested))
        # Should the ZooKeeper session end meanwhile, the stream counts as started in the old one: the safe assumption.
        self._own[stream_id] = self.worker
        try:
            self._writer.make(subscription_id, lambda draft: draft.join(session))
        except BaseException as ex:
            del self._own[stream_id]
            if isinstance(ex, Unavailable):
                # The change may still have been written: a stream that never started must not remain an owner.
                self._unfinished.append(partial(self.leave, subscription_id, stream_id))
            raise

    @run_on_hub
    def leave(self, subscription_id: str, stream_id: str) -> None:
        """End a session and rebalance; see the port."""
        self._leaving.add(stream_id)
        self._finish(partial(self._leave, subscription_id, stream_id))
        self._own.pop(stream_id, None)

    def _leave(self, subscription_id: str, stream_id: str) -> None:
        self._writer.make(subscription_id, lambda draft: draft.leave(stream_id))
        self._leaving.discard(stream_id)

    @run_on_hub
    def retire(self, subscription_id: str, stream_id: str) -> None:
        """Let a session give way to the next one; see the port."""
        self._writer.make(subscription_id, lambda draft: draft.retire(stream_id))

    @run_on_hub
    def release(self, subscription_id: str, stream_id: str, *partitions: EventTypePartition) -> None:
        """Hand partitions over in one transaction; see the port."""
        self._writer.make(subscription_id, lambda draft: draft.release(stream_id, partitions))

    @run_on_hub
    def topology(self, subscription_id: str) -> Topology:
        """Return sessions and assignments; see the port.

        Without ZooKeeper, returns the last known state while no other process can have taken over the partitions of
        this process's streams; after that, without these streams.
        """
        try:
            return self._present(subscription_id)
        except Unavailable:
            last = self._cache.last_topology(subscription_id)
            if last is None or not self._streams(last):
                return self._with_retry(self._present, subscription_id)
            return self._without_dead(last)

    def _present(self, subscription_id: str) -> Topology:
        self._session.barrier()
        topology = self._cache.topology(subscription_id)
        while self._cache.dead(subscription_id):
            self._writer.make(subscription_id, _no_change)
            self._session.barrier()
            topology = self._cache.topology(subscription_id)
        return topology

    def _streams(self, topology: Topology) -> bool:
        """Whether streams of this process are affected, which can't wait."""
        return not self._own.keys().isdisjoint(topology.sessions)

    def _without_dead(self, topology: Topology) -> Topology:
        """Remove the streams of this process that others may consider dead."""
        worker = self.worker if self._session.is_session_safe() else ""
        dead = {name for name in topology.sessions if self._own.get(name, worker) != worker}
        if not dead:
            return topology
        others = {name: session for name, session in topology.sessions.items() if name not in dead}
        return Topology(topology.epoch, topology.partitions, others, topology.resetting)

    # --- Cursors ---

    @run_on_hub
    def cursors(self, subscription_id: str) -> CommittedOffsets:
        """Return the committed offsets; see the port. Without ZooKeeper, the last known ones.

        But not after a partition was reassigned: events committed by its previous owner would be sent again.
        """
        try:
            return self._present_cursors(subscription_id)
        except Unavailable:
            topology = self._cache.last_topology(subscription_id)
            last = self._cache.last_cursors(subscription_id, topology.epoch) if topology else None
            if last is None or topology is None or not self._streams(topology):
                return self._with_retry(self._present_cursors, subscription_id)
            return last

    @run_on_hub
    def committed(self, subscription_id: str) -> CommittedOffsets:
        """Return the committed offsets, never outdated ones; see the port."""
        return self._with_retry(self._cache.cursors, subscription_id)

    @run_on_hub
    def cursors_of(self, subscription_ids: Collection[str]) -> Mapping[str, CommittedOffsets]:
        """Return the committed offsets of several subscriptions; see the port."""
        self._session.barrier(patient=True)
        self._cache.prefetch(subscription_ids)
        return {each: self._cache.cursors(each) for each in subscription_ids}

    def _present_cursors(self, subscription_id: str) -> CommittedOffsets:
        self._session.barrier()
        return self._cache.cursors(subscription_id)

    def _with_retry(self, read: Callable[[str], T], subscription_id: str) -> T:
        """Read as soon as there is a connection that lasts long enough."""
        deadline_s = self._clock.monotonic() + self._session.timeout_s
        while True:
            try:
                self._session.barrier(patient=True)
                return read(subscription_id)
            except Unavailable:
                if self._clock.monotonic() > deadline_s or self._closed.is_set():
                    raise

    @run_on_hub
    def heartbeats(self, subscription_id: str) -> Mapping[EventTypePartition, int]:
        """Return how many commits repeated the committed offset, as last read with the cursors; see the port."""
        return self._cache.heartbeats(subscription_id)

    @run_on_hub
    def commit(
        self, subscription_id: str, stream_id: str, cursors: Sequence[tuple[EventTypePartition, str]]
    ) -> Sequence[bool]:
        """Commit offsets durably; see the port. Commits made while ZooKeeper is busy share the next transaction."""
        if stream_id in self._leaving:
            raise session_not_found(stream_id)
        return self._commits.commit(subscription_id, stream_id, cursors)

    @run_on_hub
    def record_delivery_attempt(
        self,
        subscription_id: str,
        stream_id: str,
        partition: EventTypePartition,
        offset: str,
        search_until: str | None = None,
    ) -> None:
        """Record the delivery attempt that is about to begin; see the port."""
        self._commits.record_delivery_attempt(subscription_id, stream_id, partition, offset, search_until)

    @run_on_hub
    def record_failure_reasons(
        self, subscription_id: str, stream_id: str, reasons: Sequence[tuple[EventTypePartition, str, str]]
    ) -> None:
        """Record why events could not be processed; see the port."""
        if stream_id in self._leaving:
            raise session_not_found(stream_id)
        self._commits.record_failure_reasons(subscription_id, stream_id, reasons)

    @run_on_hub
    def delivery_failures(self, subscription_id: str) -> Mapping[EventTypePartition, DeliveryFailure]:
        """Return the partitions with failed deliveries or a running search; see the port."""
        self.topology(subscription_id)  # so that no dead session counts as an owner
        self.cursors(subscription_id)
        return self._cache.delivery_failures(subscription_id)

    @run_on_hub
    def reset(self, subscription_id: str, cursors: CommittedOffsets, timeout_s: float) -> CommittedOffsets:
        """End all streams, then set offsets; see the port."""
        if not cursors:
            return {}
        node = f"reset-{uuid4()}"
        waiter = self._watch([SUBSCRIPTION + subscription_id])
        previous: dict[EventTypePartition, str] = {}
        try:
            self._writer.make(subscription_id, lambda draft: draft.begin_reset(node))
            # Not the last known topology: streams unreachable for this process may still commit through other nodes.
            topology = partial(self._with_retry, self._present, subscription_id)
            ended = wait_for_streams_to_end(topology, waiter, self._clock, timeout_s)
            if ended:
                # Without streams there are no further commits: these offsets are final.
                stored = self._with_retry(self._present_cursors, subscription_id)
                previous = {key: stored[key] for key in cursors if key in stored}
                written = {key: cursors[key] for key in previous}
                self._writer.make(subscription_id, partial(_end_reset, subscription_id, node, written))
        finally:
            waiter.close()
            self._finish(partial(self._writer.make, subscription_id, lambda draft: draft.end_reset(node)))
        if not ended:
            raise Unavailable("Timeout resetting cursors")
        return previous

    @run_on_hub
    def initialised(self) -> Collection[str]:
        """Return the ids of all initialised subscriptions; see the port."""
        self._session.barrier(patient=True)
        return list(self._session.request_with_retry(lambda client: client.get_children_async(SUBSCRIPTIONS))[0])

    @run_on_hub
    def delete(self, subscription_id: str) -> None:
        """Delete sessions, assignments and cursors; see the port."""
        self._finish(partial(self._delete, subscription_id))

    def _delete(self, subscription_id: str) -> None:
        path, living, cursors = plan_path(subscription_id), living_path(subscription_id), cursors_path(subscription_id)
        deadline_s = self._clock.monotonic() + CHANGE_TIMEOUT_S
        while self._clock.monotonic() < deadline_s:
            found = self._session.request(
                lambda client: client.get_children_async(cursors),
                lambda client: client.get_children_async(living),
            )
            if isinstance(found[0], REFUSALS):
                return
            nodes = [f"{cursors}/{name}" for name in found[0]] + [f"{living}/{name}" for name in found[1]]
            paths = [*nodes, cursors, living, path]
            try:
                if self._session.transaction(*map(delete, paths)) is not None:
                    return
            except Interrupted:
                continue
        raise Unavailable("Deleting the subscription's state failed after repeated conflicts. Retry the request.")

    # --- Processes ---

    def owns(self, stream_id: str) -> bool:
        """Whether no other stream can have taken over the partitions of this one; see the port."""
        return self._own.get(stream_id) == self.worker and self._session.is_session_safe() and not self._closed.is_set()

    @property
    def worker(self) -> str:
        """The id of this process's ZooKeeper session; see the port."""
        return self._session.worker

    @run_on_hub
    def announce(self, about: bytes) -> None:
        """Show the other processes the state of this one; see the port."""
        self._session.announce(about)

    @run_on_hub
    def announced(self) -> Mapping[str, bytes]:
        """Return the last state that each living process showed; see the port."""
        return self._session.announced()

    @run_on_hub
    def is_alive(self, worker: str) -> bool:
        """Whether a process is alive; see the port."""
        path = f"{WORKERS}/{worker}"
        found = self._session.request(lambda client: client.sync_async(path), lambda client: client.exists_async(path))[
            1
        ]
        return found is not None

    @run_on_hub
    def expire_dead_sessions(self) -> None:
        """Finish changes that were postponed while ZooKeeper was unreachable.

        Dead sessions need no action: ZooKeeper ends them and notifies, and the next reader rebalances.
        """
        unfinished, self._unfinished = self._unfinished, []
        for finish in unfinished:
            self._finish(finish)

    def _finish(self, finish: Callable[[], object]) -> None:
        """Apply a mandatory change: now, or else as soon as there is a connection."""
        try:
            if not self._session.connected:
                raise Interrupted(UNREACHABLE)
            finish()
        except Unavailable:
            self._unfinished.append(finish)

    def health(self) -> Health:
        """Check whether ZooKeeper responds; see the port `Examined`."""
        if self._session.connected and self._session.is_session_safe():
            return Health()
        streams = f"end in {left_s:.1f} s" if (left_s := self._session.safe_for_s()) > 0 else "have ended"
        return Health(reason=f"No ZooKeeper server responds. Without one, streams of subscriptions {streams}.")

    @run_on_hub
    def close(self) -> None:
        """End all sessions of this process, and its ZooKeeper session; see the port."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._commits.close()
        self._writer.close()
        self._session.close()


def _created(subscription_id: str, cursors: CommittedOffsets) -> list[Operation]:
    return [
        create(cursor_path(subscription_id, key), CommitProgress(offset).encoded()) for key, offset in cursors.items()
    ]


def _end_reset(subscription_id: str, node: str, cursors: CommittedOffsets, draft: AssignmentUpdate) -> list[Operation]:
    if not draft.end_reset(node):
        raise OutcomeUnknown(
            "The connection to ZooKeeper was lost during the reset; its outcome is unknown. Try again."
        )
    return [put(cursor_path(subscription_id, key), CommitProgress(offset).encoded()) for key, offset in cursors.items()]


def _no_change(_draft: AssignmentUpdate) -> None:
    """Change nothing, except removing dead sessions."""
