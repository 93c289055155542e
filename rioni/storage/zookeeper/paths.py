"""Paths of all nodes in ZooKeeper, below the path of the setting `zookeeper`."""

from rioni.domain.ports.coordinator import EventTypePartition


WORKERS = "/workers"
"""An ephemeral node for each worker process."""

SUBSCRIPTIONS = "/subscriptions"
"""A node for each subscription that was ever read: who reads what."""

SLOTS = "/slots"
"""A node for each kind of thing that clients hold so many of: which worker has how many."""

LEADER = "/leader"
"""The ephemeral node of the worker that does what one alone need do."""

INSTALLATION = "/installation"
"""The node that holds the id of the installation that everything here belongs to."""

ROOTS = (WORKERS, SUBSCRIPTIONS, SLOTS)
"""What has to be there before anything else."""


def plan_path(subscription_id: str) -> str:
    """Of the node that says who reads what."""
    return f"{SUBSCRIPTIONS}/{subscription_id}"


def living_path(subscription_id: str) -> str:
    """Of the node that has an ephemeral child for each stream, and for a reset that is under way."""
    return f"{SUBSCRIPTIONS}/{subscription_id}/living"


def cursors_path(subscription_id: str) -> str:
    """Of the node that has a child for each partition."""
    return f"{SUBSCRIPTIONS}/{subscription_id}/cursors"


def cursor_path(subscription_id: str, partition: EventTypePartition) -> str:
    """Of the node that says how far a partition is processed."""
    return f"{cursors_path(subscription_id)}/{partition.event_type}:{partition.partition}"


def subscription_of(path: str) -> str | None:
    """The subscription that a node belongs to, None where it belongs to none."""
    root, _, rest = path[1:].partition("/")
    return rest.partition("/")[0] if f"/{root}" == SUBSCRIPTIONS else None


def partition_of(path: str) -> EventTypePartition:
    """The partition that the node of a cursor is about."""
    event_type, _, partition = path.rpartition("/")[2].rpartition(":")
    return EventTypePartition(event_type, partition)
