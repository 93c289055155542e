"""Inputs and outputs of a stream's state machine, and the reasons for which a stream ends."""

from collections.abc import Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

from rioni.domain.ports.event_store import Chunk
from rioni.domain.streaming.batching import Slice, Visibility
from rioni.domain.subscriptions.dead_letters import NONE, Failures
from rioni.domain.timelines.position import EventTypePartition, TimelinePosition


class Reason(Enum):
    """Why a stream ends (reference streams#end-reasons). Names are kept with client activity, and must not change."""

    STREAM_TIMEOUT = "Stream timeout reached"
    STREAM_LIMIT = "Stream limit in events reached: {count}"
    KEEP_ALIVE_LIMIT = "Keep-alive limit reached"
    COMMIT_TIMEOUT = "Commit timeout reached"
    NO_PARTITION = "No partition was assigned for too long"
    BEYOND_END = "A committed cursor is beyond the last event"
    RESET = "Resetting subscription cursors"
    BLOCKED = "Consumption is blocked"
    UNAUTHORIZED = "Access denied"
    TOKEN_EXPIRED = "Token is no longer valid"  # noqa: S105 - the message for clients
    EVENT_TYPE_DELETED = "Event type deleted"
    SUBSCRIPTION_DELETED = "Subscription deleted"
    SESSION_ENDED = "Session ended"
    SHUTDOWN = "Server is shutting down"
    FAILURE = "Internal error"
    CLIENT_GONE = ""

    @property
    def label(self) -> str:
        """The name in the API and in logs."""
        return self.name.lower()

    @property
    def waits(self) -> bool:
        """Whether the session stays for a while, so that sent events can still be committed."""
        return self in _WAITING

    @property
    def orderly(self) -> bool:
        """Whether the session is still alive and the end is a regular one."""
        return self not in _DISORDERLY

    @property
    def silent_at_low_level(self) -> bool:
        """Whether a low-level stream ends without saying why: its client asked for it."""
        return self in _WISHED


_WISHED = {Reason.STREAM_TIMEOUT, Reason.STREAM_LIMIT, Reason.KEEP_ALIVE_LIMIT, Reason.CLIENT_GONE}
_WAITING = _WISHED | {Reason.NO_PARTITION, Reason.BEYOND_END, Reason.RESET, Reason.BLOCKED, Reason.TOKEN_EXPIRED}
_DISORDERLY = {Reason.SUBSCRIPTION_DELETED, Reason.SESSION_ENDED, Reason.FAILURE}


# --- Input ---


class Tick(NamedTuple):
    """Time has passed."""


class NewEvents(NamedTuple):
    """The last events that were seen in partitions."""

    newest: Mapping[EventTypePartition, TimelinePosition]
    left_out: Mapping[EventTypePartition, tuple[TimelinePosition, int]] = MappingProxyType({})
    """Events that are not read: for each partition the place of the last one, and their number."""


class Run(NamedTuple):
    """The answer to one `Fetch`."""

    fetch: "Fetch"
    order: int
    """The order of the timeline that the chunks are from."""
    chunks: Sequence[Chunk]
    """The events that were read; empty if nothing follows."""
    expired_unread: int = 0
    """How many events of earlier timelines lay between that are gone."""


class Fetched(NamedTuple):
    """The answers to all `Fetch`es of a step together, so that partitions are served round-robin."""

    runs: Sequence[Run]


class PartitionOwnership(NamedTuple):
    """A partition that the stream owns, as the coordinator sees it."""

    committed: TimelinePosition
    requested_by_other: bool
    """Whether another stream waits for it."""
    failures: Failures = NONE
    """Failures at the time when the stream gets the partition; ignored later."""
    heartbeats: int = 0
    """Grows with each repeated commit of the client, which counts as a heartbeat."""


class Coordinated(NamedTuple):
    """All partitions that the stream owns now."""

    ownership: Mapping[EventTypePartition, PartitionOwnership]


class End(NamedTuple):
    """Something outside demands that the stream ends."""

    reason: Reason
    detail: str = ""
    """Text for the client that replaces the reason's own."""


class VisibilityChanged(NamedTuple):
    """The visibility of events has changed."""

    visibility: Visibility


Input = Tick | NewEvents | Fetched | Coordinated | VisibilityChanged | End


# --- Output ---


class Fetch(NamedTuple):
    """Read the events after a position."""

    partition: EventTypePartition
    after: TimelinePosition
    bytes_max: int


class Send(NamedTuple):
    """Send a batch; without slices it is a keep-alive."""

    partition: EventTypePartition
    place: TimelinePosition
    """The place of the last event of the batch, or of the last one sent before."""
    slices: Sequence[Slice]
    info: str
    """A text for humans; empty for none."""
    left_out: int = 0
    """How many events of the partition were left out since its last batch."""


class Commit(NamedTuple):
    """Commit events that are not delivered, for the client."""

    cursors: Sequence[tuple[EventTypePartition, TimelinePosition]]


class RecordDeliveryAttempt(NamedTuple):
    """Note, before they are sent, that events up to a place are to be committed now."""

    partition: EventTypePartition
    place: TimelinePosition
    search_until: TimelinePosition | None
    """Begin to search, and reset all failures; None to leave these as they are."""


class SendToDeadLetterQueue(NamedTuple):
    """Apply the dead letter policy to an event, then commit it for the client."""

    partition: EventTypePartition
    event: Slice
    """A range that contains this event alone."""


class Release(NamedTuple):
    """Hand a partition over to the stream that waits for it."""

    partition: EventTypePartition


class Close(NamedTuple):
    """End the response and the session; nothing comes after this."""

    reason: Reason


Output = Fetch | Send | Commit | RecordDeliveryAttempt | SendToDeadLetterQueue | Release | Close
