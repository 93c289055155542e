"""Dead letters: stores events that consumers never commit, lists them, and publishes them again.

Source: reference streams#dead-letter-handling.
"""

import contextlib
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

import msgspec

from rioni.commands.authorization import AccessPolicy
from rioni.commands.bus import CommandBus
from rioni.commands.context import Context
from rioni.commands.publishing.timeline_appender import TimelineAppender
from rioni.commands.subscriptions.subscriptions import RecordDeadLettersRedriven
from rioni.commands.system.system_event_publisher import SystemEventPublisher
from rioni.commands.system.system_event_types import SystemEventTypes
from rioni.domain.access.authorization import Attribute, Subject
from rioni.domain.errors import EventTypeNotFound, InvalidCursor
from rioni.domain.ports.clock import Clock
from rioni.domain.ports.event_store import Chunk
from rioni.domain.ports.event_stores import EventStores
from rioni.domain.ports.registry import Registry
from rioni.domain.publishing.headers import Headers
from rioni.domain.publishing.idempotency import IdempotencyClaim
from rioni.domain.streaming.batching import Slice
from rioni.domain.streaming.visibility import Visibility
from rioni.domain.subscriptions.dead_letter_policy import DeadLetter, DeadLetterFilter
from rioni.domain.subscriptions.subscription import Subscription
from rioni.domain.system.system_event_types import DEAD_LETTER_QUEUE
from rioni.domain.system.system_events import SystemEvent, derived_eid
from rioni.domain.timelines.position import (
    BEFORE_FIRST,
    Cursor,
    EventTypePartition,
    TimelinePosition,
    parse_offset,
    partition_number,
)
from rioni.domain.timelines.timeline import FIRST_ORDER, Timelines
from rioni.domain.timestamps import rfc3339
from rioni.projections.queries.timeline_reader import read_after


SCAN_BYTES = 1_000_000
"""Bytes of the queue that are read at a time."""
REASONS_MAX = 20
"""How many reasons a preview tells apart; messages may be long."""

_DIGEST = "redriven"
"""Digest of the idempotency claims of all redriven dead letters: the key alone identifies one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveDeadLetters:
    """Publish dead letters of a subscription again, for this subscription alone."""

    subscription_id: str
    wanted: DeadLetterFilter
    limit: int
    """Maximum number of dead letters to publish."""
    force: bool = False
    """Whether to include those that were published again before."""
    after: Cursor | None = None
    """The place in the queue up to which requests before have gone; None begins with the oldest dead letter."""


class Redriven(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of redriven dead letters, by outcome."""

    redriven: int = 0
    already_redriven: int = 0
    without_event_type: int = 0
    """Number of dead letters whose event types were deleted."""
    after: Cursor | msgspec.UnsetType = msgspec.UNSET
    """The place in the queue behind which there may be more; absent where all were looked at."""


class ReasonCount(msgspec.Struct, frozen=True, kw_only=True):
    """Number of dead letters with one reason."""

    reason: str
    count: int


class RedrivePreview(Redriven, frozen=True, kw_only=True):
    """Counts that a redrive would have."""

    more: bool
    """Whether more than the limit would be published again without it."""
    reasons: list[ReasonCount]
    """Of those that would be published again: the most frequent first, of the first `REASONS_MAX` reasons."""


class KeptDeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter in the queue."""

    letter: DeadLetter
    kept_at_ms: int
    owner: Attribute | None
    """The owner of the event; None if it has none."""
    queue_partition: int
    queue_position: TimelinePosition
    redriven: bool | None = None
    """Whether it was published again within the idempotency window; None where that was not asked for."""

    @property
    def cursor(self) -> Cursor:
        """Its place in the queue."""
        return Cursor(partition=str(self.queue_partition), offset=self.queue_position.offset)


class DeadLetterQueue:
    """Writes to the dead letter queue; blocks on event stores."""

    def __init__(self, system_event_types: SystemEventTypes, publisher: SystemEventPublisher, clock: Clock) -> None:
        self._system_event_types, self._publisher, self._clock = system_event_types, publisher, clock

    def keep(self, subscription_id: str, partition: EventTypePartition, event: Slice, sent: int) -> None:
        """Store an event in the queue durably, once.

        Args:
            subscription_id: the subscription whose consumers do not commit it.
            partition: the partition of the event.
            event: a range of this event alone.
            sent: how often it was sent without being committed.

        Raises:
            RioniError: it can't be stored now.
        """
        self._system_event_types.ensure_one(DEAD_LETTER_QUEUE)
        letter = DeadLetter(
            subscription_id=subscription_id,
            event_type=partition.event_type,
            partition=partition.partition,
            offset=event.last.offset,
            error={"message": f"The event was sent {sent} times without being committed"},
            event=msgspec.Raw(event.chunk.cut(event.start, event.stop)),
        )
        kept = SystemEvent(
            eid=derived_eid(UUID(subscription_id), f"dead-letter:{letter.name}"),
            occurred_at=rfc3339(self._clock.now_ms()),
            flow_id="",
            members=msgspec.structs.asdict(letter),
        )
        self._publisher.publish(DEAD_LETTER_QUEUE, [kept], name=letter.name, owner=_owner(event.chunk, event.start))


class DeadLetterRedriver:
    """Lists and redrives the dead letters in the queue; blocks on event stores."""

    def __init__(
        self,
        registry: Registry,
        access: AccessPolicy,
        bus: CommandBus,
        *,
        stores: EventStores,
        timeline: TimelineAppender,
    ) -> None:
        self._registry, self._access, self._bus = registry, access, bus
        self._stores, self._timeline = stores, timeline

    def page(
        self, subscription_id: str, wanted: DeadLetterFilter, limit: int, subject: Subject, *, marked: bool = False
    ) -> list[KeptDeadLetter]:
        """The first dead letters of a subscription that the subject may read.

        With `marked` each says whether it was redriven, for which the stores of its event type are asked.

        Raises:
            SubscriptionNotFound: there is no such subscription.
            Blocked: the application or an event type of the subscription is blocked.
            AccessDenied: the subject does not administer the subscription, or may not read one of its event types.
            Unavailable: a storage can't be used.
        """
        subscription = self._administered(subscription_id, subject)
        for name in subscription.event_types:
            with contextlib.suppress(EventTypeNotFound):
                self._access.event_type(subject, name, "READ")
        reader = self._access.visibility(subject, subscription_id).reader
        page: list[KeptDeadLetter] = []
        for kept in self._scan(subscription_id, wanted, Visibility(reader=reader)):
            page.append(msgspec.structs.replace(kept, redriven=self._is_redriven(kept)) if marked else kept)
            if len(page) == limit:
                break
        return page

    def redrive(self, command: RedriveDeadLetters, context: Context) -> Redriven:
        """Publish dead letters again to their event types, visible to their subscription only.

        They are stored unchanged, in their old partitions where these still exist. Dead letters that were published
        again before are left out, unless their idempotency keys have expired, or the command includes them. It says
        where the limit ended it: requests that go on there pass over the queue once.

        Raises:
            InvalidCursor: the place to go on at is none of the queue.
            SubscriptionNotFound: there is no such subscription.
            Blocked: the application or an event type of the subscription is blocked.
            AccessDenied: the subject does not administer the subscription.
            Unavailable: a storage can't be used; those published by then are recognised as duplicates in a retry.
        """
        self._administered(command.subscription_id, context.subject)
        counts = Counter[str]()
        after: Cursor | msgspec.UnsetType = msgspec.UNSET
        try:
            for kept in self._scan(command.subscription_id, command.wanted, Visibility(), command.after):
                counts[self._redrive(kept, _claim(kept, force=command.force))] += 1
                if counts["redriven"] == command.limit:
                    after = kept.cursor
                    break
        finally:
            # The effect comes first: the audit log only reports what has happened.
            if counts["redriven"]:
                record = RecordDeadLettersRedriven(
                    subscription_id=command.subscription_id,
                    wanted=command.wanted,
                    forced=command.force,
                    redriven=counts["redriven"],
                )
                self._bus.dispatch(record, context)
        return Redriven(**counts, after=after)

    def preview(self, command: RedriveDeadLetters, subject: Subject) -> RedrivePreview:
        """What `redrive` would do now; changes nothing. Raises as it does."""
        self._administered(command.subscription_id, subject)
        counts, reasons, seen, more = Counter[str](), Counter[str](), set[str](), False
        after: Cursor | msgspec.UnsetType = msgspec.UNSET
        for kept in self._scan(command.subscription_id, command.wanted, Visibility(), command.after):
            outcome = self._outcome(kept, _claim(kept, force=command.force), seen)
            if counts["redriven"] < command.limit:
                counts[outcome] += 1
                if outcome == "redriven" and (kept.letter.reason in reasons or len(reasons) < REASONS_MAX):
                    reasons[kept.letter.reason] += 1
                if counts["redriven"] == command.limit:
                    after = kept.cursor
            elif outcome == "redriven":
                more = True
                break
        shown = [ReasonCount(reason=reason, count=count) for reason, count in reasons.most_common()]
        return RedrivePreview(**counts, after=after, more=more, reasons=shown)

    def _administered(self, subscription_id: str, subject: Subject) -> Subscription:
        self._registry.refresh()
        subscription = self._registry.subscription(subscription_id)
        self._access.blacklist("CONSUMER", subject, subscription.event_types, "Application or subscription is blocked")
        self._access.administration(subject, subscription)
        return subscription

    def _is_redriven(self, kept: KeptDeadLetter) -> bool:
        return self._outcome(kept, _claim(kept, force=False), set()) == "already_redriven"

    def _outcome(self, kept: KeptDeadLetter, claim: IdempotencyClaim | None, seen: set[str]) -> str:
        """What `_redrive` would return after those seen before, to which this one is added."""
        name = kept.letter.event_type
        try:
            self._registry.event_type(name)
            known = claim is not None and (claim.id in seen or self._timeline.has_stored(name, claim))
        except EventTypeNotFound:
            return "without_event_type"
        if known:
            return "already_redriven"
        if claim is not None:
            seen.add(claim.id)
        return "redriven"

    def _redrive(self, kept: KeptDeadLetter, claim: IdempotencyClaim | None) -> str:
        """Publish one again; return its outcome for the counts."""
        letter = kept.letter
        try:
            active = self._registry.timelines(letter.event_type).active
            compacted = self._registry.event_type(letter.event_type).cleanup_policy != "delete"
            headers = Headers(
                subscription_id=letter.subscription_id,
                owner=kept.owner,
                # A compaction key of its own: it must not supersede later events with the original key.
                key=f"dead-letter:{letter.name}" if compacted else None,
            )
            batches = {int(letter.partition) % active.partitions: [bytes(letter.event)]}
            headers_by_partition = {number: [headers] for number in batches}
            appended = self._timeline.append(active, batches, headers=headers_by_partition, claim=claim)
        except EventTypeNotFound:
            return "without_event_type"
        return "already_redriven" if appended.duplicates else "redriven"

    def _scan(
        self, subscription_id: str, wanted: DeadLetterFilter, visibility: Visibility, after: Cursor | None = None
    ) -> Iterator[KeptDeadLetter]:
        """The dead letters of a subscription behind a place in the queue, oldest first in each of its partitions."""
        try:
            timelines = self._registry.timelines(DEAD_LETTER_QUEUE)
        except EventTypeNotFound:
            return
        # PERF: most of the queue belongs to other subscriptions, and is not even decoded.
        mark = subscription_id.encode()
        for number, begin in _places(timelines, after):
            place = begin
            while True:
                order, chunks = read_after(timelines, self._stores, number, place, SCAN_BYTES)
                if not chunks:
                    break
                for chunk in chunks:
                    ranges = visibility.ranges(chunk)
                    for start, stop in [(chunk.first, chunk.next)] if ranges is None else ranges:
                        for position in range(start, stop):
                            event = chunk.cut(position, position + 1)
                            if mark not in event:
                                continue
                            letter = _decode(event)
                            if letter.subscription_id == subscription_id and wanted.includes(letter):
                                yield KeptDeadLetter(
                                    letter=letter,
                                    kept_at_ms=chunk.recorded_at_ms,
                                    owner=_owner(chunk, position),
                                    queue_partition=number,
                                    queue_position=TimelinePosition(order, position),
                                )
                place = TimelinePosition(order, chunks[-1].next - 1)
                # Long reads must let other greenlets run.
                time.sleep(0)


def _places(timelines: Timelines, after: Cursor | None) -> Iterator[tuple[int, TimelinePosition]]:
    """The partitions of the queue behind a place in it, and where reading begins in each; raises InvalidCursor."""
    count, first = timelines.active.partitions, 0
    begin = TimelinePosition(timelines.readable[0].order, BEFORE_FIRST)
    if after is not None:
        number = partition_number(after.partition, count)
        if number is None:
            raise InvalidCursor(f"non existing partition {after.partition}")
        yield number, parse_offset(after.offset, partition=after.partition, oldest_order=FIRST_ORDER) or begin
        first = number + 1
    yield from ((number, begin) for number in range(first, count))


def _claim(kept: KeptDeadLetter, *, force: bool) -> IdempotencyClaim | None:
    """By which a dead letter that was published again is recognised; None if that does not count."""
    return None if force else IdempotencyClaim(f"redriven:{kept.letter.name}", _DIGEST)


def _owner(chunk: Chunk, position: int) -> Attribute | None:
    return chunk.headers[position - chunk.first].owner if chunk.headers else None


_decode = msgspec.json.Decoder(DeadLetter).decode
