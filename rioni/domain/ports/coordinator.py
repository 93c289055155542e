"""The port to the coordinator of subscriptions: sessions, assignments and committed cursors."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec


class EventTypePartition(NamedTuple):
    """A partition of an event type, as clients name it."""

    event_type: str
    partition: str


class Assignment(NamedTuple):
    """Who reads a partition of a subscription; the empty string is nobody."""

    session: str = ""
    """The stream that reads the partition, and alone may commit it."""
    next_session: str = ""
    """The stream that gets it as soon as `session` releases it."""

    @property
    def owner(self) -> str:
        """Who has the partition when all that is under way is done."""
        return self.next_session or self.session

    @property
    def state(self) -> str:
        """The word of the API: unassigned, reassigning or assigned."""
        if not self.session:
            return "unassigned"
        return "reassigning" if self.next_session else "assigned"


class Session(NamedTuple):
    """A stream of a subscription."""

    id: str
    requested: frozenset[EventTypePartition] = frozenset()
    """The partitions that it insists on; empty where it takes what it is given."""


class Topology(msgspec.Struct, frozen=True):
    """Who reads which partition of a subscription."""

    epoch: int
    """Grows with every change; 0 where the subscription was never initialised."""
    partitions: Mapping[EventTypePartition, Assignment]
    """All partitions, in an order that never changes."""
    sessions: Mapping[str, Session]
    resetting: bool = False
    """Cursors are being reset: all streams have to end."""


class DeliveryFailure(NamedTuple):
    """What is known of a partition whose streams have ended with uncommitted events.

    Source: reference streams#dead-letter-handling.
    """

    failures: int
    """How often that was so since the last commit that advanced it."""
    failed: str
    """The offset up to which events were sent last; empty where that is not known."""
    search_until: str
    """The offset up to which events are sent one at a time; empty for none."""


class Coordinator(Protocol):
    """Sessions, assignments and committed cursors of subscriptions, shared by all workers, and which of these live.

    A session lives as long as the process that let it join. What a commit, a join or a release changes for a stream
    wakes who watches `stream:<id>` and `subscription:<id>`; everything else wakes the watchers of the latter alone.
    Offsets are canonical text. Calls block on the disk, but never other greenlets; all raise Unavailable where nothing
    can be stored or read.
    """

    def initialise(self, subscription_id: str, cursors: Mapping[EventTypePartition, str]) -> None:
        """Lay down the partitions and where reading begins, unless that was done before.

        Source: reference subscriptions#initialisation.
        """

    def extend(self, subscription_id: str, cursors: Mapping[EventTypePartition, str]) -> None:
        """Add partitions to an initialised subscription, behind those that it has, and rebalance.

        Partitions that it has already stay as they are. Streams that do not know the new ones are expected to end.

        Raises:
            SubscriptionNotFound: it is not initialised, or was forgotten.
        """

    def join(self, subscription_id: str, stream_id: str, requested: Collection[EventTypePartition] = ()) -> None:
        """Begin a session and rebalance (reference streams#checks, streams#shares).

        Args:
            subscription_id: an initialised subscription.
            stream_id: a new UUID.
            requested: the partitions that the stream insists on; empty for as many as others have.

        Raises:
            Conflict: no slot is free, a partition is requested by another stream, or cursors are being reset.
            SubscriptionNotFound: it is not initialised, or was forgotten.
        """

    def leave(self, subscription_id: str, stream_id: str) -> None:
        """End a session at once and rebalance; what it has not committed is delivered again. Unknown ones: nothing."""

    def release(self, subscription_id: str, stream_id: str, *partitions: EventTypePartition) -> None:
        """Hand partitions over to the streams that wait for them; nothing if none waits or another one owns it."""

    def topology(self, subscription_id: str) -> Topology:
        """Who reads what. Cheap: the same object as before where nothing has changed."""

    def cursors(self, subscription_id: str) -> Mapping[EventTypePartition, str]:
        """The committed offsets, in topology order; empty where the subscription was never initialised.

        Read after `topology` they hold everything that previous owners could commit. Cheap, as `topology`: the same
        object as before where nothing was committed, nor committed again.
        """

    def committed(self, subscription_id: str) -> Mapping[EventTypePartition, str]:
        """The same, with everything that was committed anywhere before; may wait for it, for a session timeout or two.

        `cursors` may be older while others can't be heard, as the streams of this process must not wait.
        """

    def heartbeats(self, subscription_id: str) -> Mapping[EventTypePartition, int]:
        """For each partition a number that grows whenever its owner commits what is committed; read after `cursors`."""

    def commit(
        self, subscription_id: str, stream_id: str, cursors: Sequence[tuple[EventTypePartition, str]]
    ) -> Sequence[bool]:
        """Commit offsets durably, in order, all in one transaction (reference subscriptions#commit-checks).

        Returns:
            For each cursor whether it advanced its partition; what is not ahead changes nothing but heartbeats.

        Raises:
            Invalid: the session does not live, or does not own a partition; nothing was written.
        """

    def attempt(
        self,
        subscription_id: str,
        stream_id: str,
        partition: EventTypePartition,
        offset: str,
        search_until: str | None = None,
    ) -> None:
        """Note durably that a stream is about to send events up to an offset (reference streams#dead-letter-handling).

        If its session ends, or it hands the partition over, or its process dies, before they are committed, the
        partition has failed once more. Nothing happens if the stream does not own the partition.

        Args:
            subscription_id: an initialised subscription.
            stream_id: the session.
            partition: what the stream owns.
            offset: of the last event to be sent.
            search_until: forget all failures, and remember this offset; None to leave both as they are.
        """

    def troubles(self, subscription_id: str) -> Mapping[EventTypePartition, DeliveryFailure]:
        """The partitions that have failed since they last advanced, or are being searched.

        Read after `topology` it holds the failures of all previous owners.
        """

    def reset(
        self, subscription_id: str, cursors: Mapping[EventTypePartition, str], timeout_s: float
    ) -> Mapping[EventTypePartition, str]:
        """Let all streams end, then set offsets, backwards too; without cursors nothing happens.

        Source: reference subscriptions#reset.

        What is known of failures of these partitions is forgotten.

        Returns:
            The offsets that were committed before, of the same partitions.

        Raises:
            Conflict: another reset is under way.
            Unavailable: streams were still there after `timeout_s`; nothing was written.
        """

    def initialised(self) -> Collection[str]:
        """The ids of all subscriptions that are."""

    def forget(self, subscription_id: str) -> None:
        """Remove sessions, assignments and cursors of a deleted subscription."""

    def holds(self, stream_id: str) -> bool:
        """Whether no other process can have taken over what a stream owns that joined here. Cheap, never blocks."""

    @property
    def worker(self) -> str:
        """The name of this process; no other one ever has it."""

    def lives(self, worker: str) -> bool:
        """Whether a process lives; once it does not it never will again."""

    def reap(self) -> None:
        """Remove the sessions of processes that have died and rebalance. Cheap; call it now and then."""

    def close(self) -> None:
        """End all sessions of this process and let go of all files."""
