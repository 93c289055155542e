"""Caches subscription state: assignment and progress, and notifies subscribers of changes."""

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from rioni.domain.errors import Unavailable
from rioni.domain.ports.coordinator import CommittedOffsets, DeliveryFailure, Topology
from rioni.domain.timelines.position import EventTypePartition
from rioni.storage.zookeeper import assignment as plans
from rioni.storage.zookeeper.assignment import SubscriptionAssignment
from rioni.storage.zookeeper.node_cache import Node, NodeCache
from rioni.storage.zookeeper.nodes import (
    CommitProgress,
    cursor_path,
    decode_progress,
    living_path,
    partition_of,
    plan_path,
    subscription_of,
)
from rioni.storage.zookeeper.session import ZooKeeperSession


SUBSCRIPTIONS_MAX = 10_000
"""Maximum number of subscriptions cached in the port's form."""

UNKNOWN = Topology(0, {}, {})


class ObservedSubscription(NamedTuple):
    """The assignment of a subscription at one version."""

    version: int
    data: bytes
    assignment: SubscriptionAssignment
    topology: Topology
    terms: Mapping[EventTypePartition, int]


class Standing(NamedTuple):
    """The progress of a partition at one version."""

    version: int
    progress: CommitProgress


class _ReadCursors(NamedTuple):
    """The committed offsets, their nodes, and the epoch of the topology that was read before."""

    nodes: Sequence[Node | None]
    cursors: CommittedOffsets
    epoch: int


class SubscriptionCache:
    """Caches subscriptions by id; reads after `barrier` return all changes made before."""

    def __init__(
        self,
        session: ZooKeeperSession,
        on_change: Callable[[str, Collection[str] | None], None],
        on_outdated: Callable[[str], None] = lambda _subscription_id: None,
    ) -> None:
        """Start empty.

        Args:
            session: sends requests and sets watches.
            on_change: receives each followed subscription that has changed, and the affected streams, None for all;
                must not block.
            on_outdated: receives each cached subscription that has changed, or may have; must not block.
        """
        self._on_change, self._on_outdated = on_change, on_outdated
        self._followers: Counter[str] = Counter()
        self._node_cache = NodeCache(session, self._is_followed, self._changed)
        self._seen: dict[str, ObservedSubscription] = {}
        self._told: dict[str, ObservedSubscription | None] = {}
        self._alive: dict[str, tuple[int, Node | None]] = {}
        self._cursors: dict[str, _ReadCursors] = {}

    def follow(self, subscription_id: str) -> None:
        """Subscribe to changes; blocks until subscribed. Without ZooKeeper: from the next read on."""
        self._followers[subscription_id] += 1
        with contextlib.suppress(Unavailable):
            seen = self.seen(subscription_id)
            self._told.setdefault(subscription_id, seen)
            if seen is not None:
                self._node_cache.nodes(_parts(subscription_id, seen.assignment))

    def unfollow(self, subscription_id: str) -> None:
        """Unsubscribe from changes, unless another stream is subscribed."""
        self._followers[subscription_id] -= 1
        if not self._followers[subscription_id]:
            del self._followers[subscription_id]
            self._told.pop(subscription_id, None)

    # --- Assignments ---

    def topology(self, subscription_id: str) -> Topology:
        """Return sessions and assignments; the same object if nothing has changed."""
        seen = self.seen(subscription_id)
        return seen.topology if seen else UNKNOWN

    def dead(self, subscription_id: str) -> bool:
        """Whether the assignment seems to contain a dead session or reset."""
        seen = self.seen(subscription_id)
        if seen is None:
            return False
        living = self._node_cache.node(living_path(subscription_id) + "/")
        # PERF: hundreds of streams may ask after one change.
        if self._alive.get(subscription_id) == (seen.version, living):
            return False
        dead = not seen.assignment.needs() <= _children(living)
        if not dead:
            if len(self._alive) >= SUBSCRIPTIONS_MAX:
                self._alive.clear()
            self._alive[subscription_id] = seen.version, living
        return dead

    def living(self, subscription_id: str) -> frozenset[str]:
        """Return the names of the ephemeral nodes of streams and resets."""
        return _children(self._node_cache.node(living_path(subscription_id) + "/"))

    def last_topology(self, subscription_id: str) -> Topology | None:
        """Return the last known topology."""
        seen = self._understood(subscription_id, self._node_cache.last_known(plan_path(subscription_id)))
        return seen.topology if seen else None

    def seen(self, subscription_id: str) -> ObservedSubscription | None:
        """Return the current assignment."""
        return self._understood(subscription_id, self._node_cache.node(plan_path(subscription_id)))

    def cached(self, subscription_id: str) -> ObservedSubscription | None:
        """Return the cached, possibly outdated assignment."""
        return self._understood(subscription_id, self._node_cache.cached([plan_path(subscription_id)])[0])

    def _understood(self, subscription_id: str, node: Node | None) -> ObservedSubscription | None:
        if node is None:
            return None
        seen = self._seen.get(subscription_id)
        # The version alone does not suffice: recreated nodes, such as after a loss of all data, start at 0 again.
        if seen is None or (seen.version, seen.data) != (node.version, node.data):
            assignment = plans.decode(node.data)
            terms = {share.partition: share.term for share in assignment.shares}
            seen = ObservedSubscription(
                node.version, node.data, assignment, assignment.topology(node.version + 1), terms
            )
            if len(self._seen) >= SUBSCRIPTIONS_MAX:
                self._seen.clear()
            self._seen[subscription_id] = seen
        return seen

    # --- Progress ---

    def cursors(self, subscription_id: str) -> CommittedOffsets:
        """Return the committed offsets; the same object if nothing has changed."""
        seen = self.seen(subscription_id)
        if seen is None:
            return {}
        keys = [share.partition for share in seen.assignment.shares]
        nodes = self._node_cache.nodes([cursor_path(subscription_id, key) for key in keys])
        known = self._cursors.get(subscription_id)
        if known and len(known.nodes) == len(nodes) and all(a is b for a, b in zip(known.nodes, nodes, strict=True)):
            cursors = known.cursors
        else:
            # A node may be missing because its subscription is being deleted.
            cursors = {key: decode_progress(node.data).offset for key, node in zip(keys, nodes, strict=True) if node}
            if len(self._cursors) >= SUBSCRIPTIONS_MAX:
                self._cursors.clear()
        self._cursors[subscription_id] = _ReadCursors(nodes, cursors, seen.topology.epoch)
        return cursors

    def prefetch(self, subscription_ids: Collection[str]) -> None:
        """Read the assignments and cursors of several subscriptions, all at once."""
        plans_ = self._node_cache.nodes([plan_path(each) for each in subscription_ids])
        found = zip(subscription_ids, plans_, strict=True)
        seen = {each: self._understood(each, node) for each, node in found}
        self._node_cache.nodes(
            [
                cursor_path(each, share.partition)
                for each, observed in seen.items()
                if observed is not None
                for share in observed.assignment.shares
            ]
        )

    def heartbeats(self, subscription_id: str) -> Mapping[EventTypePartition, int]:
        """Return how many commits repeated the committed offset, when the cursors were last read."""
        _, standings = self._last(subscription_id)
        return {key: standing.progress.heartbeats for key, standing in standings.items()}

    def last_cursors(self, subscription_id: str, epoch: int) -> CommittedOffsets | None:
        """Return the offsets when this process last read them; None if that was in another epoch."""
        known = self._cursors.get(subscription_id)
        return known.cursors if known and known.epoch == epoch else None

    def delivery_failures(self, subscription_id: str) -> Mapping[EventTypePartition, DeliveryFailure]:
        """Return the partitions with failed deliveries or a running search, when the cursors were last read."""
        terms, standings = self._last(subscription_id)
        failures = {key: each.progress.delivery_failure(terms[key]) for key, each in standings.items()}
        return {key: failure for key, failure in failures.items() if failure}

    def _last(
        self, subscription_id: str
    ) -> tuple[Mapping[EventTypePartition, int], dict[EventTypePartition, Standing]]:
        """Return the last known terms and progress of partitions."""
        seen = self._understood(subscription_id, self._node_cache.last_known(plan_path(subscription_id)))
        if seen is None:
            return {}, {}
        nodes = [self._node_cache.last_known(cursor_path(subscription_id, key)) for key in seen.terms]
        return seen.terms, _standings(seen.terms.keys(), nodes)

    def standings(
        self, subscription_id: str, keys: Collection[EventTypePartition]
    ) -> dict[EventTypePartition, Standing]:
        """Return the progress of partitions; those that don't exist are missing."""
        return _standings(keys, self._node_cache.nodes([cursor_path(subscription_id, key) for key in keys]))

    def cached_standings(
        self, subscription_id: str, keys: Collection[EventTypePartition]
    ) -> dict[EventTypePartition, Standing]:
        """Return the cached, possibly outdated progress of partitions."""
        return _standings(keys, self._node_cache.cached([cursor_path(subscription_id, key) for key in keys]))

    def wrote(self, subscription_id: str, key: EventTypePartition, standing: Standing) -> None:
        """Cache the writes of this process."""
        node = Node(standing.progress.encoded(), standing.version)
        self._node_cache.wrote(cursor_path(subscription_id, key), node)

    def invalidate_all(self, subscription_id: str, keys: Collection[EventTypePartition]) -> None:
        """Drop the cached writes of partitions, after a conflict."""
        self._node_cache.drop_written([cursor_path(subscription_id, key) for key in keys])

    # --- Notifications ---

    def _is_followed(self, path: str) -> bool:
        return subscription_of(path) in self._followers

    def _changed(self, path: str, known: bool) -> None:  # noqa: FBT001 - as the node cache passes it
        subscription_id = subscription_of(path)
        if subscription_id is None:
            return
        self._on_outdated(subscription_id)
        if subscription_id in self._followers:
            concerned = self._concerned(subscription_id, path) if known else None
            if concerned is None or concerned:
                self._on_change(subscription_id, concerned)

    def _concerned(self, subscription_id: str, path: str) -> Collection[str] | None:
        """Return the streams affected by a change, None for all."""
        seen = self._understood(subscription_id, self._node_cache.last_known(plan_path(subscription_id)))
        if seen is None:
            return None
        if path == plan_path(subscription_id):
            before = self._told.get(subscription_id)
            self._told[subscription_id] = seen
            # There may be new partitions.
            self._node_cache.prefetch(_parts(subscription_id, seen.assignment))
            return seen.assignment.concerned(before.assignment) if before else None
        if path.endswith("/"):
            living = self._node_cache.last_known(path)
            # Regular starts and ends of streams also change the assignment.
            return None if living is None or not seen.assignment.needs() <= living.children else ()
        owner = seen.topology.partitions.get(partition_of(path))
        return {owner.session} - {""} if owner else None


def _children(node: Node | None) -> frozenset[str]:
    return node.children if node else frozenset()


def _parts(subscription_id: str, assignment: SubscriptionAssignment) -> list[str]:
    """Return the paths of all nodes of a subscription except its assignment."""
    cursors = [cursor_path(subscription_id, share.partition) for share in assignment.shares]
    return [living_path(subscription_id) + "/", *cursors]


def _standings(
    keys: Collection[EventTypePartition], nodes: Sequence[Node | None]
) -> dict[EventTypePartition, Standing]:
    return {
        key: Standing(node.version, decode_progress(node.data))
        for key, node in zip(keys, nodes, strict=True)
        if node is not None
    }
