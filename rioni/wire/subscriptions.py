"""Subscriptions, their statistics and dead letters."""

from datetime import datetime
from typing import Annotated, Any, ClassVar, Self, TypeVar

import msgspec
from msgspec import Meta

from rioni.wire.access import SubscriptionAuthorization
from rioni.wire.administration import Realm
from rioni.wire.base import Model, note
from rioni.wire.events import (
    Cursor,
    CursorSpecification,
    EventTypeName,
    InitialCursor,
    PartitionId,
    Place,
    ShiftedCursor,
)


DEAD_LETTER_POLICY = "nakadi.zalando.org/subscription-unprocessable-event-policy"
DEAD_LETTER_SENDS = "nakadi.zalando.org/subscription-max-event-send-count"

FAILURES_MAX = 100
"""Maximum number of failures that a request explains."""
REASON_CHARACTERS_MAX = 1_000
REDRIVE_MAX = 1_000
"""Maximum, and default, number of dead letters that a request publishes again."""

T = TypeVar("T")


# --- Subscriptions and their statistics ---


class PartitionStatistics(Model):
    """The reader and the lag of a partition."""

    COMPONENT: ClassVar[str] = "AssignedPartition"

    partition: str
    state: Annotated[str, note(literal="AssignmentState")]
    stream_id: Annotated[str, note("The id of the stream that reads the partition; empty if there is none.")] = ""
    unconsumed_events: Annotated[
        int | None,
        note("Absent until the subscription was first streamed, unless `show_initial_lag` is true."),
    ] = None
    consumer_lag_seconds: Annotated[
        int | None, note("The age of the first unconsumed event in seconds, if it was asked for.")
    ] = None
    assignment_type: Annotated[
        str | None, note("Whether the stream asked for the partition: `direct`, else `auto`.", literal="AssignmentType")
    ] = None
    cursor_error: Annotated[str | None, note("The reason why the lag is unknown; absent if there is none.")] = None


class SubscriptionStatistics(Model):
    """The partitions of one event type of a subscription."""

    COMPONENT: ClassVar[str] = "Assignments"

    event_type: str
    partitions: list[PartitionStatistics] = []


class Subscription(Model):
    """A subscription. The broker never has two with the same owning application, consumer group and event types."""

    NOT_SENT: ClassVar[frozenset[str]] = frozenset(("id", "created_at", "updated_at", "status"))

    owning_application: Annotated[str, note("The application that consumes.")]
    event_types: Annotated[list[str], note("The names of the event types to read.", minItems=1)]
    consumer_group: Annotated[
        str,
        note("Distinguishes subscriptions of the same application to the same event types."),
    ] = "default"
    read_from: Annotated[
        str,
        note(
            "The place to begin at: the oldest event, new events, or `initial_cursors`.",
            literal="ReadFrom",
        ),
    ] = "end"
    initial_cursors: Annotated[
        list[CursorSpecification],
        note("For `read_from: cursors` the place in every partition.", answered=list[InitialCursor]),
    ] = []
    authorization: Annotated[
        SubscriptionAuthorization | None,
        note("The clients that may administer the subscription and read through it.", nullable=True),
    ] = None
    annotations: Annotated[dict[str, str], note("Free-form notes, not searchable.")] = {}
    labels: Annotated[dict[str, str], note("Short searchable values.")] = {}
    filter: Annotated[
        str | None,
        note(
            "A CEL expression over `event` and `metadata`: only events that match are delivered, the others count as "
            "consumed."
        ),
    ] = None
    id: Annotated[str, note("A UUID, given by the broker.", format="uuid")] = ""
    created_at: Annotated[datetime | None, note(required=True)] = None
    updated_at: Annotated[datetime | None, note(required=True)] = None
    status: Annotated[
        list[SubscriptionStatistics] | None,
        note("The statistics; only in lists that were asked for them.", in_body=False),
    ] = None

    @property
    def dead_letter_policy(self) -> str | None:
        """The broker's treatment of events that are never committed: `DEAD_LETTER_QUEUE`, `SKIP_EVENT`, or None."""
        return self.annotations.get(DEAD_LETTER_POLICY)

    def with_dead_letters(self, policy: str = "DEAD_LETTER_QUEUE", *, sends: int = 3) -> Self:
        """A copy with a dead-letter policy, to create or to update the subscription with.

        Args:
            policy: for an event that is never committed: `DEAD_LETTER_QUEUE` or `SKIP_EVENT`.
            sends: how often it is sent before; 2 to 10.
        """
        policies = {DEAD_LETTER_POLICY: policy, DEAD_LETTER_SENDS: str(sends)}
        return msgspec.structs.replace(self, annotations={**self.annotations, **policies})

    def members(self) -> dict[str, Any]:
        """The members that are sent, without the members of cursors that are not set."""
        return super().members() | {"initial_cursors": [cursor.members() for cursor in self.initial_cursors]}


class ListedSubscription(Subscription):
    """A subscription in a list."""

    status: Annotated[list[SubscriptionStatistics] | None, note("With `show_status` only.")] = None


class EndedStreams(Model):
    """The number of streams of a client that ended for one reason."""

    client: str
    reason: Annotated[str, note("A name of the table in reference/streams.", literal="EndReason")]
    count: Annotated[int, note("The number since the first one.")]
    first_at: datetime
    last_at: datetime
    realm: Realm = None


# --- Failures and dead letters ---


class FailureReason(Model):
    """The reason why an event of a stream could not be processed."""

    COMPONENT: ClassVar[str] = "Failure"

    event_type: EventTypeName
    partition: PartitionId
    offset: Place
    reason: Annotated[str, Meta(max_length=REASON_CHARACTERS_MAX)]


class Failures(Model):
    """Reasons of failures."""

    items: Annotated[list[FailureReason], Meta(min_length=1, max_length=FAILURES_MAX)]


class DeadLetterError(Model, omit_defaults=True):
    """The reason why an event became a dead letter."""

    message: str = ""
    reason: Annotated[str, note("The reason that its consumer gave; absent if it gave none.", required=False)] = ""


class DeadLetter(Model):
    """An event that a subscription never committed."""

    event_type: str
    partition: str
    offset: Annotated[str, note("The place of the event in its partition.")]
    event: Annotated[dict[str, Any], note("The event as it was published.")]
    error: DeadLetterError
    kept_at: Annotated[datetime | None, note(required=True)] = None
    redriven: Annotated[
        bool | None,
        note("Whether it was published again within the idempotency window; with `show_redriven`."),
    ] = None

    def data(self, kind: type[T]) -> T:
        """The event as a msgspec struct or whatever else msgspec converts to; raises msgspec.ValidationError."""
        return msgspec.convert(self.event, kind)


class DeadLetterPlace(ShiftedCursor):
    """A place in a queue of dead letters."""

    offset: str


class SubmittedAfter(Model):
    """The place after which a redrive continues."""

    partition: PartitionId
    offset: Place


class SubmittedRedrive(Model):
    """The dead letters to publish again; all of them without members."""

    event_type: str | None = None
    partition: str | None = None
    from_offset: str | None = None
    to_offset: str | None = None
    reason: str | None = None
    limit: Annotated[
        Annotated[int, Meta(ge=1, le=REDRIVE_MAX)] | None, note("Maximum number of dead letters to publish.")
    ] = None
    force: Annotated[bool | None, note("Whether to publish also those that were published again before.")] = None
    after: Annotated[
        SubmittedAfter | None, note("The place to continue at: `after` of the answer to the same request before.")
    ] = None


class Redriven(Model):
    """The number of dead letters that were published again."""

    COMPONENT: ClassVar[str] = "Redrive"

    redriven: int
    already_redriven: int = 0
    without_event_type: int = 0
    after: Annotated[
        Cursor | None,
        note(
            "The place after which the next request continues; absent if all dead letters were examined.",
            answered=DeadLetterPlace,
        ),
    ] = None


class ReasonCount(Model):
    """The number of dead letters that have one reason."""

    reason: str
    count: int


class RedrivePreview(Redriven):
    """The number of dead letters that would be published again."""

    COMPONENT: ClassVar[str] = "RedrivePreview"

    more: Annotated[bool, note("Whether there are more than the limit of the request.")] = False
    reasons: Annotated[
        list[ReasonCount],
        note("The reasons of dead letters that would be published again, the most frequent first; at most 20."),
    ] = []


# --- Filters ---

Failed = Annotated[str | None, note("The reason why the evaluation failed; absent if it did not.")]


class FilterPart(Model):
    """A part of a filter, and its value for an event; None if it has no value by itself."""

    expression: str
    value: Annotated[bool | None, note("Null if the part has no value by itself.", nullable=True)] = None
    failure: Failed = None


class FilterEvaluation(Model):
    """Whether an event matches a filter, and why."""

    matches: bool
    parts: list[FilterPart] = []
    failure: Failed = None


class FilterEvaluations(Model):
    """The evaluation of a filter for each event."""

    items: list[FilterEvaluation]
    warnings: list[str] = []


class SubmittedFilterEvaluation(Model):
    """A filter and the events to evaluate it for: at most 20 events and 100 event types."""

    filter: str
    events: list[dict[str, Any]]
    event_types: list[str] | None = None
