"""Events as they are published and streamed: results, cursors and batches."""

from datetime import datetime
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from rioni.wire.base import Model, note
from rioni.wire.event_types import Offset


PartitionId = Annotated[str, note("The id of the partition.")]
Place = Annotated[str, note("A place in the partition, `BEGIN` for the one before the oldest event, or `END`.")]
EventTypeName = Annotated[str, note("The name of the event type.")]
Moment = Annotated[
    str, note("RFC 3339, instead of an offset: the first event that was stored at that time or later is next.")
]
Token = Annotated[str, note("The text that the broker sent with the cursor; it is required and not compared.")]
Distance64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Shift = Annotated[Distance64, note("The number of events to move by; negative moves back.", default=0)]


class ItemResult(Model):
    """The outcome of one event of a batch that was published."""

    publishing_status: Annotated[
        str,
        note("`aborted`: not stored, because another event of the batch failed.", literal="PublishingStatus"),
    ]
    step: Annotated[str, note("The step that the event reached.", literal="PublishingStep")] = "none"
    detail: Annotated[str, note("The reason; empty if the event itself is not the reason.")] = ""
    eid: Annotated[str | None, note("The `eid` of the event's metadata; absent if it has none.")] = None
    partition: Annotated[
        str | None, note("The id of its partition, once that is known.", nullable=True, required=False)
    ] = None


# --- Cursors ---


class ShiftedCursor(Model):
    """The place of an event in its partition."""

    partition: PartitionId
    offset: Offset


class Cursor(ShiftedCursor):
    """The place of an event in its partition; `BEGIN` and `END` are offsets, too, if the API accepts them.

    Streams of a subscription add the event type and the token.
    """

    event_type: EventTypeName | None = None
    cursor_token: Token | None = None


class CommittedCursor(Cursor):
    """A cursor of a subscription."""

    event_type: EventTypeName
    cursor_token: Token


class InitialCursor(Model):
    """A place where a subscription begins."""

    partition: PartitionId
    offset: Place
    event_type: EventTypeName


class CursorSpecification(Model):
    """A place by offset or by time, for resets and initial cursors; without a partition it means all of them."""

    COMPONENT: ClassVar[str] = "Place"

    event_type: EventTypeName | None = None
    partition: PartitionId | None = None
    offset: Place | None = None
    timestamp: Moment | None = None
    shift: Shift | None = None


class NamedCursor(Model):
    """A place of a partition, by offset or by time."""

    partition: str
    offset: Offset | None = None
    timestamp: str | None = None


class Distance(Model):
    """The number of positions between two cursors of a partition."""

    initial_cursor: Annotated[CursorSpecification, note(answered=NamedCursor)]
    final_cursor: Annotated[CursorSpecification, note(answered=NamedCursor)]
    distance: int


class PairCursor(Model):
    """One of the two cursors whose distance is asked for."""

    partition: PartitionId
    offset: Place | None = None
    timestamp: Moment | None = None


class CursorPair(Model):
    """Two cursors whose distance is asked for."""

    initial_cursor: PairCursor
    final_cursor: PairCursor


class CursorShift(PairCursor):
    """A cursor, and the number of events to move it by."""

    COMPONENT: ClassVar[str] = "Shift"

    shift: Shift | None = None


class Cursors(Model):
    """Cursors to commit."""

    items: list[Cursor]


class Places(Model):
    """Places to reset a subscription to."""

    items: list[CursorSpecification]


class CommitResult(Model):
    """Whether a cursor advanced its partition: `committed`, else `outdated`."""

    cursor: Annotated[Cursor, note(answered=CommittedCursor)]
    result: Annotated[str, note(literal="CommitOutcome")]


# --- Streams ---


class Batch(Model):
    """A batch of a stream: events of one partition; without events it is a keep-alive."""

    cursor: Cursor
    events: Annotated[list[msgspec.Raw], note("The JSON of each event, as it was published.", required=False)] = []
    info: dict[str, Any] | None = None


Number = Annotated[int, Meta(ge=-(2**31) + 1, le=2**31 - 1)]
Positive = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class RequestedPartition(Model):
    """A partition that a stream asks for."""

    event_type: str
    partition: str


class StreamParameters(Model):
    """The parameters of a stream."""

    batch_limit: Annotated[Positive, note("Maximum number of events in a batch.")] = 1
    stream_limit: Annotated[
        Number, note("The number of events after which the stream ends; 0 for never. Not below `batch_limit`.")
    ] = 0
    batch_flush_timeout: Annotated[
        Number, note("Seconds after which a batch is sent even if it is not full; 0 for 30.")
    ] = 30
    stream_timeout: Annotated[
        Number, note("Seconds after which the stream ends; 0 for about an hour, which is the maximum.")
    ] = 0
    stream_keep_alive_limit: Annotated[
        Number, note("The number of empty batches in a row after which the stream ends; 0 for never.")
    ] = 0


class SubscriptionStreamParameters(StreamParameters):
    """The parameters of a stream of a subscription."""

    max_uncommitted_events: Annotated[Positive, note("Maximum number of uncommitted events in flight.")] = 10
    commit_timeout: Annotated[
        int,
        Meta(ge=0, le=60),
        note("Seconds after which the stream ends if a batch is not committed; 0 for the maximum, 60."),
    ] = 60
    batch_timespan: Annotated[
        int,
        Meta(ge=0, le=2**31 - 1),
        note("Maximum time span covered by one batch, in seconds; 0 for no limit."),
    ] = 0
    partitions: Annotated[
        list[RequestedPartition] | None, note("The partitions to read; without it the broker assigns some.")
    ] = None


class SubmittedStreamTicket(Model):
    """The stream that a ticket is for."""

    path: Annotated[str, note("The path of the stream.")]


class StreamTicket(Model):
    """Lets a browser open one stream without a token."""

    ticket: Annotated[
        str,
        note(
            "The value for the parameter `ticket`; it may read what the token of the client may, so it is a secret, "
            "too."
        ),
    ]
    path: Annotated[str, note("The path of the stream, including the path of the broker.")]
    expires_at: Annotated[datetime, note("The time until which a stream may begin with it.")]
