"""Subscriptions, their statistics and dead letters."""

from datetime import datetime
from typing import Any, ClassVar, Self, TypeVar

import msgspec

from rioni.wire.access import SubscriptionAuthorization
from rioni.wire.base import Model
from rioni.wire.events import Cursor, CursorSpecification


DEAD_LETTER_POLICY = "nakadi.zalando.org/subscription-unprocessable-event-policy"
DEAD_LETTER_SENDS = "nakadi.zalando.org/subscription-max-event-send-count"

T = TypeVar("T")


class PartitionStatistics(Model):
    """The reader and the lag of a partition."""

    partition: str
    state: str
    """`unassigned`, `assigned` or `reassigning`."""
    stream_id: str = ""
    """The id of the stream that reads the partition; empty if there is none."""
    unconsumed_events: int | None = None
    """None until the subscription was first streamed, unless that was asked for with `show_initial_lag`."""
    consumer_lag_seconds: int | None = None
    """Age of the first unconsumed event, if it was asked for."""
    assignment_type: str | None = None
    cursor_error: str | None = None


class SubscriptionStatistics(Model):
    """The partitions of one event type of a subscription."""

    event_type: str
    partitions: list[PartitionStatistics] = []


class Subscription(Model):
    """A subscription. The broker never has two with the same owning application, consumer group and event types."""

    NOT_SENT: ClassVar[frozenset[str]] = frozenset(("id", "created_at", "updated_at", "status"))

    owning_application: str
    event_types: list[str]
    consumer_group: str = "default"
    read_from: str = "end"
    """`begin`, `end` or `cursors`."""
    initial_cursors: list[CursorSpecification] = []
    authorization: SubscriptionAuthorization | None = None
    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}
    filter: str | None = None
    """A CEL expression over `event`; only events that match are delivered."""
    id: str = ""
    created_at: datetime | None = None
    updated_at: datetime | None = None
    status: list[SubscriptionStatistics] | None = None
    """The statistics; only in lists that were asked for them."""

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


class EndedStreams(Model):
    """The number of streams of a client that ended for one reason."""

    client: str
    reason: str
    """`commit_timeout` or another name of the table in reference/streams."""
    count: int
    first_at: datetime
    last_at: datetime
    realm: str | None = None
    """The realm in which the name is unique; None if it has no realm."""


class DeadLetterError(Model, omit_defaults=True):
    """The reason why an event became a dead letter."""

    message: str = ""
    reason: str = ""
    """The reason that its consumer gave; empty if it gave none. Of Rioni only."""


class FailureReason(Model):
    """The reason why an event of a stream could not be processed."""

    event_type: str
    partition: str
    offset: str
    """The offset of the event."""
    reason: str
    """1 to 1,000 characters."""


class DeadLetter(Model):
    """An event that a subscription never committed."""

    event_type: str
    partition: str
    offset: str
    event: dict[str, Any]
    error: DeadLetterError
    kept_at: datetime | None = None
    redriven: bool | None = None
    """Whether it was published again within the idempotency window of the broker; None if that was not asked for."""

    def data(self, kind: type[T]) -> T:
        """The event as a msgspec struct or whatever else msgspec converts to; raises msgspec.ValidationError."""
        return msgspec.convert(self.event, kind)


class Redriven(Model):
    """The number of dead letters that were published again."""

    redriven: int
    already_redriven: int = 0
    without_event_type: int = 0
    after: Cursor | None = None
    """The cursor after which the next request continues; None if all dead letters were examined."""


class ReasonCount(Model):
    """The number of dead letters that have one reason."""

    reason: str
    count: int


class RedrivePreview(Redriven):
    """The number of dead letters that would be published again."""

    more: bool = False
    """Whether there are more than the limit of the request."""
    reasons: list[ReasonCount] = []
    """The reasons of dead letters that would be published again, the most frequent first; 20 at most."""


class FilterPart(Model):
    """A part of a filter, and its value for an event; None if it has no value by itself."""

    expression: str
    value: bool | None = None
    failure: str | None = None
    """The reason why it could not be evaluated."""


class FilterEvaluation(Model):
    """Whether an event matches a filter, and why."""

    matches: bool
    parts: list[FilterPart] = []
    failure: str | None = None
    """The reason why the filter could not be evaluated; None if it could."""
