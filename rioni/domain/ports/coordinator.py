"""The port to the coordinator of subscriptions: sessions, assignments and committed cursors."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from rioni.domain.ports.host import Clock, Waiter
from rioni.domain.timelines.position import EventTypePartition


CommittedOffsets = Mapping[EventTypePartition, str]
"""Committed offsets by partition, in canonical text."""


class Assignment(NamedTuple):
    """Assignment of a partition of a subscription to sessions; the empty string means none."""

    session: str = ""
    """The stream that reads the partition; only it may commit."""
    next_session: str = ""
    """The stream that gets it as soon as `session` releases it."""

    @property
    def owner(self) -> str:
        """The owner after pending hand-overs are done."""
        return self.next_session or self.session

    @property
    def state(self) -> str:
        """The API's state: unassigned, reassigning or assigned."""
        if not self.session:
            return "unassigned"
        return "reassigning" if self.next_session else "assigned"


class StreamSession(NamedTuple):
    """A stream of a subscription."""

    id: str
    requested: frozenset[EventTypePartition] = frozenset()
    """The requested partitions; empty for automatic assignment."""
    retired: bool = False
    """Whether its client has gone: it may still commit, and gives way to the next stream."""


class Topology(msgspec.Struct, frozen=True):
    """The assignment of all partitions of a subscription."""

    epoch: int
    """Grows with every change; 0 if the subscription was never initialised."""
    partitions: Mapping[EventTypePartition, Assignment]
    """All partitions, in a stable order."""
    sessions: Mapping[str, StreamSession]
    resetting: bool = False
    """Whether cursors are being reset: all streams have to end."""


class DeliveryFailure(NamedTuple):
    """Delivery failures of a partition: its streams ended with uncommitted events.

    Source: reference streams#dead-letter-handling.
    """

    failures: int
    """Number of failures since the last commit that advanced it."""
    failed: str
    """The offset up to which events were sent last; empty if unknown."""
    search_until: str
    """The offset up to which events are sent one at a time; empty for none."""
    reason_offset: str = ""
    """The offset of the uncommitted event that a consumer gave a reason for last; empty for none."""
    reason: str = ""
    """Why the consumer could not process that event, in its own words."""

    def reason_for(self, offset: str) -> str:
        """Why the event at an offset could not be processed; empty if no consumer has given a reason."""
        return self.reason if offset == self.reason_offset else ""


class Coordinator(Protocol):
    """Sessions, assignments and committed cursors of subscriptions, shared by all workers, and the liveness of workers.

    A session lives as long as the process in which it joined. Changes of a stream by a commit, a join or a release
    notify the keys `stream:<id>` and `subscription:<id>`; all other changes notify the latter only. Offsets are
    canonical text. Calls block on the disk, but never other greenlets; all raise Unavailable if nothing can be stored
    or read.
    """

    def initialise(self, subscription_id: str, cursors: CommittedOffsets) -> None:
        """Store the partitions and their initial cursors, once.

        Source: reference subscriptions#initialisation.
        """

    def extend(self, subscription_id: str, cursors: CommittedOffsets) -> None:
        """Append partitions to an initialised subscription, and rebalance.

        Partitions that it has already are unchanged. Streams that do not know the new ones are expected to end.

        Raises:
            SubscriptionNotFound: it is not initialised, or was deleted.
        """

    def join(self, subscription_id: str, stream_id: str, requested: Collection[EventTypePartition] = ()) -> None:
        """Begin a session and rebalance (reference streams#checks, streams#shares); ends the retired sessions.

        Args:
            subscription_id: an initialised subscription.
            stream_id: a new UUID.
            requested: the partitions that the stream requests; empty for an equal share.

        Raises:
            Conflict: no slot is free, a partition is requested by another stream, or cursors are being reset.
            SubscriptionNotFound: it is not initialised, or was deleted.
        """

    def leave(self, subscription_id: str, stream_id: str) -> None:
        """End a session at once and rebalance; uncommitted events are delivered again. No-op for unknown sessions."""

    def retire(self, subscription_id: str, stream_id: str) -> None:
        """Keep a session whose client has gone for its commits alone: it holds no slot, and ends when another joins.

        No-op for unknown sessions.
        """

    def release(self, subscription_id: str, stream_id: str, *partitions: EventTypePartition) -> None:
        """Hand partitions over to the streams that wait for them; no-op if none waits or another stream owns them."""

    def topology(self, subscription_id: str) -> Topology:
        """The current assignment. Cheap: the identical object while nothing has changed."""

    def cursors(self, subscription_id: str) -> CommittedOffsets:
        """The committed offsets, in topology order; empty if the subscription was never initialised.

        Read after `topology` they include all commits of previous owners. Cheap, as `topology`: the identical object
        unless something was committed, or committed again.
        """

    def committed(self, subscription_id: str) -> CommittedOffsets:
        """The committed offsets, read consistently over all processes; may block for one or two session timeouts.

        `cursors` may be stale while other processes can't be reached, as the streams of this process must not wait.
        """

    def cursors_of(self, subscription_ids: Collection[str]) -> Mapping[str, CommittedOffsets]:
        """The committed offsets of several subscriptions, not older than the call; changes since then notify.

        Cheap for those that have not changed since the last call. A later change of the cursors of one of them raises
        its flag; see `ports.host`.
        """

    def heartbeats(self, subscription_id: str) -> Mapping[EventTypePartition, int]:
        """For each partition, a number that grows with every repeated commit by its owner; read after `cursors`."""

    def commit(
        self, subscription_id: str, stream_id: str, cursors: Sequence[tuple[EventTypePartition, str]]
    ) -> Sequence[bool]:
        """Commit offsets durably, in order, all in one transaction (reference subscriptions#commit-checks).

        Returns:
            For each cursor whether it advanced its partition; others change nothing but heartbeats.

        Raises:
            Invalid: the session has ended, or does not own a partition; nothing was written.
        """

    def record_delivery_attempt(
        self,
        subscription_id: str,
        stream_id: str,
        partition: EventTypePartition,
        offset: str,
        search_until: str | None = None,
    ) -> None:
        """Record durably that a stream is about to send events up to an offset.

        Source: reference streams#dead-letter-handling.

        If its session ends, or it hands the partition over, or its process dies before they are committed, that counts
        as a failure of the partition. No-op if the stream does not own the partition.

        Args:
            subscription_id: an initialised subscription.
            stream_id: the session.
            partition: one that the stream owns.
            offset: the offset of the last event to be sent.
            search_until: reset the failures, and store this offset; None to leave both unchanged.
        """

    def record_failure_reasons(
        self, subscription_id: str, stream_id: str, reasons: Sequence[tuple[EventTypePartition, str, str]]
    ) -> None:
        """Record durably why a stream could not process events, all in one transaction.

        Each partition has the last reason only. It is cleared by a commit that reaches its event, and by a reset.

        Args:
            subscription_id: an initialised subscription.
            stream_id: the session.
            reasons: partition, offset of the event, and text of each; those of committed events change nothing.

        Raises:
            Invalid: the session has ended, or does not own a partition; nothing was written.
        """

    def delivery_failures(self, subscription_id: str) -> Mapping[EventTypePartition, DeliveryFailure]:
        """The failures of partitions since they last advanced, and the searched partitions.

        Read after `topology` it includes the failures of all previous owners.
        """

    def reset(self, subscription_id: str, cursors: CommittedOffsets, timeout_s: float) -> CommittedOffsets:
        """End all streams, then set offsets, backwards too; no-op without cursors.

        Source: reference subscriptions#reset.

        The failures of these partitions are reset.

        Returns:
            The previously committed offsets of the same partitions.

        Raises:
            Conflict: another reset is in progress.
            Unavailable: streams had not ended after `timeout_s`; nothing was written.
        """

    def initialised(self) -> Collection[str]:
        """The ids of all initialised subscriptions."""

    def delete(self, subscription_id: str) -> None:
        """Remove sessions, assignments and cursors of a deleted subscription."""

    def owns(self, stream_id: str) -> bool:
        """Whether a stream that joined here certainly still owns its partitions. Cheap, never blocks."""

    @property
    def worker(self) -> str:
        """The name of this process, never reused."""

    def announce(self, about: bytes) -> None:
        """Publish the state of this process to the others, replacing the state that it published before.

        Args:
            about: a JSON object.
        """

    def announced(self) -> Mapping[str, bytes]:
        """The last state that each living process published, by process name; those that published none are missing."""

    def is_alive(self, worker: str) -> bool:
        """Whether a process is alive; once dead it stays dead."""

    def expire_dead_sessions(self) -> None:
        """Remove the sessions of dead processes and rebalance. Cheap; call it periodically."""

    def close(self) -> None:
        """End all sessions of this process and close all files."""


STREAMS_POLL_S = 1.0
"""Polling interval, in case a notification is lost."""


def wait_for_streams_to_end(topology: Callable[[], Topology], waiter: Waiter, clock: Clock, timeout_s: float) -> bool:
    """Wait until there are no sessions; return whether that happened before the timeout. Blocks."""
    deadline_s = clock.monotonic() + timeout_s
    while topology().sessions:
        left_s = deadline_s - clock.monotonic()
        if left_s <= 0:
            return False
        waiter.wait(min(left_s, STREAMS_POLL_S))
    return True
