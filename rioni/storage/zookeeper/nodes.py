"""The nodes in ZooKeeper, below the path of the setting `zookeeper`: their paths, and the progress of a partition."""

from collections.abc import Callable

import msgspec

from rioni.domain.ports.coordinator import DeliveryFailure
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


# --- Tracks the committed progress of a subscription's partition, as stored in its node. Pure ---


class CommitProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of a partition's node."""

    offset: str
    """The last committed offset."""
    failures: int = 0
    """Owners that ended with uncommitted events since it advanced; without the last one: see `settled`."""
    sent: str = ""
    """Recorded offset up to which events were sent."""
    term: int = 0
    """The term of the owner that awaits their commit; 0 if none does."""
    search_until: str = ""
    """Offset up to which events are sent one at a time."""
    heartbeats: int = 0
    """How many commits repeated the committed offset."""
    reason_offset: str = ""
    """Offset of the uncommitted event that `reason` is about; empty for none."""
    reason: str = ""
    """Why its consumer could not process it."""

    def encoded(self) -> bytes:
        """Return the stored form."""
        return msgspec.json.encode(self)

    def settled(self, term: int) -> "CommitProgress":
        """Return the progress including the failure of an owner that has ended.

        Nothing is written when a stream ends: the next owner detects that the partition is in another term.
        """
        if not self.term or self.term == term:
            return self
        return msgspec.structs.replace(self, failures=self.failures + (self.sent > self.offset), term=0)

    def advanced(self, offset: str, term: int) -> "CommitProgress":
        """Return the progress with an advanced offset, committed by the owner of a term."""
        advanced = msgspec.structs.replace(self.settled(term), offset=offset, failures=0)
        return (
            msgspec.structs.replace(advanced, reason_offset="", reason="") if self.reason_offset <= offset else advanced
        )

    def confirmed(self) -> "CommitProgress":
        """Return the progress after the committed offset was committed again."""
        return msgspec.structs.replace(self, heartbeats=self.heartbeats + 1)

    def explained(self, offset: str, reason: str) -> "CommitProgress":
        """Return the progress with why an event could not be processed, unless it is committed."""
        return msgspec.structs.replace(self, reason_offset=offset, reason=reason) if offset > self.offset else self

    def attempted(self, offset: str, term: int, search_until: str | None) -> "CommitProgress":
        """Return the progress with the delivery attempt that the owner of a term is about to make."""
        known = self.settled(term)
        if search_until is None:
            return msgspec.structs.replace(known, sent=offset, term=term)
        return msgspec.structs.replace(known, failures=0, sent=offset, term=term, search_until=search_until)

    def delivery_failure(self, term: int) -> DeliveryFailure | None:
        """Return the delivery failure as defined by the port; None without a failure."""
        known = self.settled(term)
        if known.failures > 0 or known.search_until > known.offset:
            return DeliveryFailure(known.failures, known.sent, known.search_until, known.reason_offset, known.reason)
        return None


decode_progress: Callable[[bytes], CommitProgress] = msgspec.json.Decoder(CommitProgress).decode
