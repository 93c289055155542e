"""Defines the paths of all nodes in ZooKeeper, below the path of the setting `zookeeper`."""

from rioni.domain.timelines.position import EventTypePartition


WORKERS = "/workers"
"""Parent of an ephemeral node for each worker process."""

SUBSCRIPTIONS = "/subscriptions"
"""Parent of a node for each subscription that was ever read, which contains its assignment."""

SLOTS = "/slots"
"""Parent of a node for each kind of slot, which contains the count of each worker."""

LEADER = "/leader"
"""The ephemeral node of the leading worker."""

INSTALLATION = "/installation"
"""The node with the id of the installation that owns the path."""

ROOTS = (WORKERS, SUBSCRIPTIONS, SLOTS)
"""Nodes that must exist before all others."""


def plan_path(subscription_id: str) -> str:
    """Return the path of a subscription's assignment."""
    return f"{SUBSCRIPTIONS}/{subscription_id}"


def living_path(subscription_id: str) -> str:
    """Return the path of the parent of ephemeral nodes for each stream, and for a reset in progress."""
    return f"{SUBSCRIPTIONS}/{subscription_id}/living"


def cursors_path(subscription_id: str) -> str:
    """Return the path of the parent of a node for each partition."""
    return f"{SUBSCRIPTIONS}/{subscription_id}/cursors"


def cursor_path(subscription_id: str, partition: EventTypePartition) -> str:
    """Return the path of a partition's progress."""
    return f"{cursors_path(subscription_id)}/{partition.event_type}:{partition.partition}"


def subscription_of(path: str) -> str | None:
    """Return the subscription that a node belongs to, None if it belongs to none."""
    root, _, rest = path[1:].partition("/")
    return rest.partition("/")[0] if f"/{root}" == SUBSCRIPTIONS else None


def partition_of(path: str) -> EventTypePartition:
    """Return the partition of a progress node."""
    event_type, _, partition = path.rpartition("/")[2].rpartition(":")
    return EventTypePartition(event_type, partition)
