"""Dead letters: a subscription's policy for events that consumers never commit, and the search for such an event."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from rioni.domain.timelines.position import EventTypePartition, TimelinePosition


# Source: reference streams#dead-letter-handling.

SEND_COUNT = "nakadi.zalando.org/subscription-max-event-send-count"
"""The annotation with the maximum number of deliveries of an uncommitted event."""
POLICY = "nakadi.zalando.org/subscription-unprocessable-event-policy"
"""The annotation that selects the treatment of the event then."""
SKIP_EVENT, DEAD_LETTER_QUEUE = "SKIP_EVENT", "DEAD_LETTER_QUEUE"

SEND_COUNT_MIN, SEND_COUNT_MAX = 2, 10


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letter policy of a subscription."""

    send_count: int
    """Number of failures that make an event a dead letter."""
    keeps: bool
    """Whether a dead letter is kept in the dead letter queue; otherwise it is only skipped."""


def policy_of(annotations: Mapping[str, str]) -> Policy | None:
    """The policy in the annotations of a subscription; None if they are absent or not valid."""
    count, policy = annotations.get(SEND_COUNT, ""), annotations.get(POLICY)
    if policy not in {SKIP_EVENT, DEAD_LETTER_QUEUE} or not _is_send_count(count):
        return None
    return Policy(send_count=int(count), keeps=policy == DEAD_LETTER_QUEUE)


def policy_error(annotations: Mapping[str, str]) -> str | None:
    """The error of the two annotations; None if they are valid."""
    if (SEND_COUNT in annotations) != (POLICY in annotations):
        missing, given = (POLICY, SEND_COUNT) if SEND_COUNT in annotations else (SEND_COUNT, POLICY)
        return f"The annotation {given} needs {missing} beside it; give both of them or none"
    if POLICY not in annotations:
        return None
    if not _is_send_count(annotations[SEND_COUNT]):
        return f"The annotation {SEND_COUNT} must be an integer from {SEND_COUNT_MIN} to {SEND_COUNT_MAX}"
    if annotations[POLICY] not in {SKIP_EVENT, DEAD_LETTER_QUEUE}:
        return f"The annotation {POLICY} must be {SKIP_EVENT} or {DEAD_LETTER_QUEUE}"
    return None


def _is_send_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 2 and SEND_COUNT_MIN <= int(text) <= SEND_COUNT_MAX  # noqa: PLR2004


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """An event that no consumer of a subscription has ever committed, as it is kept.

    Source: reference system-event-types#kpi-event-types.
    """

    subscription_id: str
    event_type: str
    partition: str
    offset: str
    """The offset of the event in its own partition."""
    error: Mapping[str, str]
    """`message` explains why the event is here; `reason` is the one that its consumer gave, if it did."""
    event: msgspec.Raw
    """The event itself, byte by byte."""

    @property
    def name(self) -> str:
        """The unique name of the dead letter."""
        return f"{self.subscription_id}:{self.event_type}:{self.partition}:{self.offset}"

    @property
    def reason(self) -> str:
        """Why it is here, in the words of its consumer if it gave any; empty if that is not known."""
        return self.error.get("reason") or self.error.get("message", "")


LIST_DEFAULT, LIST_MAX = 20, 1_000
"""How many dead letters one request lists."""


class DeadLetterFilter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Selects dead letters of a subscription; None selects all."""

    event_type: str | None = None
    partition: str | None = None
    from_offset: str | None = None
    """The first one, in canonical form."""
    to_offset: str | None = None
    """The last one, in canonical form."""
    reason: str | None = None
    """Exactly this one."""

    def includes(self, letter: DeadLetter) -> bool:
        """Whether a dead letter is selected."""
        return (
            self.event_type in {None, letter.event_type}
            and self.partition in {None, letter.partition}
            and self.reason in {None, letter.reason}
            and (self.from_offset is None or letter.offset >= self.from_offset)
            and (self.to_offset is None or letter.offset <= self.to_offset)
        )


# --- Poison event search: finds an event that consumers never commit (reference streams#dead-letter-handling) ---
#
# Whenever a stream ends, or hands a partition over, with events that were sent and not committed, the partition has
# failed; any commit that advances it resets its failures. After too many of them the partition is searched: its events
# are sent one at a time, the next one only when the one before is committed, up to the size of a batch. An event that
# has failed that often when sent alone is a dead letter.


class Failures(NamedTuple):
    """Failures of a partition when a stream gets it."""

    times: int = 0
    """The number of failures since the last commit that advanced it."""
    failed: TimelinePosition | None = None
    """The last event of those that were sent last."""
    search_until: TimelinePosition | None = None
    """The position up to which events are sent one at a time; None if they are not."""


NONE = Failures()


class PoisonSearch:
    """Poison event search of one stream in one partition."""

    def __init__(self, failures: Failures, committed: TimelinePosition, policy: Policy, batch_limit: int) -> None:
        """Begin to read a partition.

        Args:
            failures: at the time when the stream gets the partition.
            committed: the start position.
            policy: the policy of the subscription.
            batch_limit: maximum number of events to search.
        """
        self.until = failures.search_until
        """Events up to here are sent one at a time."""
        self.suspect: TimelinePosition | None = None
        """The suspect: an event that is a dead letter if it is the next one."""
        self.restarts = False
        """Whether the next attempt begins the search, and resets all failures."""
        self._recorded: TimelinePosition | None = None
        if self.until is not None and committed >= self.until:
            self.until = None
        if failures.times >= policy.send_count:
            if self.until is None:
                self.until = TimelinePosition(committed.order, committed.position + batch_limit)
                self.restarts = True
            else:
                self.suspect = failures.failed

    def clear(self) -> None:
        """Clear the suspect, which does not exist any more: the event in its place has not failed yet."""
        self.suspect = None
        self.restarts = True

    def must_record(self, committed: TimelinePosition) -> bool:
        """Whether the sending of events still has to be recorded."""
        return self.restarts or self._recorded is None or self._recorded <= committed

    def record(self, place: TimelinePosition) -> TimelinePosition | None:
        """Record that events up to a position are being sent; return how far to search, None for no change."""
        self._recorded = place
        restarts, self.restarts = self.restarts, False
        return self.until if restarts else None

    def commit(self, place: TimelinePosition) -> None:
        """Take note of a committed place."""
        if self.until is not None and place >= self.until:
            self.until = None
        if self.suspect is not None and place >= self.suspect:
            self.suspect = None


def tracking(failures: Mapping[EventTypePartition, Failures]) -> str:
    """Debug texts of streams about their partitions (reference streams#json-batches)."""
    each = (
        f"{{{key.event_type}:{key.partition} failedCommitsCount={found.times} "
        f"lastDeadLetterOffset={found.search_until.offset if found.search_until else 'null'}}}"
        for key, found in failures.items()
    )
    return f"Auto DLQ failed commits tracking: {', '.join(each)}"
