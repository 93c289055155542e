"""Lists the dead letters of a subscription, and publishes them again.

Source: reference streams#dead-letter-handling.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from rioni.commands.authorization import AccessPolicy
from rioni.commands.bus import CommandBus
from rioni.commands.subscriptions.dead_letter_queue import KeptDeadLetter, letters_in, places_behind
from rioni.commands.subscriptions.subscriptions import RecordDeadLettersRedriven
from rioni.commands.timeline_appender import TimelineAppender
from rioni.commands.unit_of_work import CommandContext
from rioni.domain.access.authorization import Subject
from rioni.domain.errors import EventTypeNotFound, Invalid, QuotaExceeded
from rioni.domain.ports.event_log import Registry
from rioni.domain.ports.event_store import EventStores
from rioni.domain.ports.host import Charge, ThreadPool, direct
from rioni.domain.publishing.headers import Headers, IdempotencyClaim, stored_key
from rioni.domain.streaming.batching import Visibility
from rioni.domain.subscriptions.cursor_arithmetic import newest
from rioni.domain.subscriptions.dead_letters import DeadLetterFilter
from rioni.domain.system.system_events import DEAD_LETTER_QUEUE
from rioni.domain.texts import proposal
from rioni.domain.timelines.position import Cursor, TimelinePosition, partition_number
from rioni.projections.queries.timeline_reader import offset_ranges_of, read_after


SCAN_BYTES = 1_000_000
"""Bytes of the queue that are read at a time."""
PAGE_BYTES = 4_000_000
"""A page of the list ends once it has this many bytes of events."""
REASONS_MAX = 20
"""The number of different reasons in a preview; messages may be long."""

FORCED_MAX = 10
"""How often a dead letter can be published again within the idempotency window, if the command forces repetitions."""

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
    """The place in the queue after which there may be more; absent if all were checked."""


class ReasonCount(msgspec.Struct, frozen=True, kw_only=True):
    """Number of dead letters with one reason."""

    reason: str
    count: int


class RedrivePreview(Redriven, frozen=True, kw_only=True):
    """Counts that a redrive would have."""

    more: bool
    """Whether more than the limit would be published again without it."""
    reasons: list[ReasonCount]
    """The reasons of those that would be published again, the most frequent first; at most `REASONS_MAX` reasons."""


class DeadLetterPage(NamedTuple):
    """Some of the dead letters of a subscription."""

    items: Sequence[KeptDeadLetter]
    after: Cursor | None = None
    """The place in the queue after which there may be more; None if all were checked."""


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
        compute: ThreadPool = direct,
    ) -> None:
        self._registry, self._access, self._bus = registry, access, bus
        self._stores, self._timeline, self._compute = stores, timeline, compute

    def page(
        self,
        subscription_id: str,
        wanted: DeadLetterFilter,
        limit: int,
        subject: Subject,
        *,
        after: Cursor | None = None,
        marked: bool = False,
        only_open: bool = False,
    ) -> DeadLetterPage:
        """The first dead letters of a subscription after a place in the queue that the subject may read.

        With `marked` each is marked as redriven or not, which takes a query to the stores of its event type; with
        `only_open` those that were redriven are left out. The page ends at `limit`, or with the event that makes it
        longer than `PAGE_BYTES`.

        Raises:
            InvalidCursor: the place is not in the queue.
            Invalid: nothing is selected, and the subscription has no such event type or partition.
            SubscriptionNotFound: there is no such subscription.
            Blocked: the application or an event type of the subscription is blocked.
            AccessDenied: the subject does not administer the subscription, or may not read one of its event types.
            Unavailable: a storage can't be used.
        """
        self._registry.refresh()
        self._access.dead_letters(subject, subscription_id)
        page: list[KeptDeadLetter] = []
        size = 0
        kept: KeptDeadLetter | None = None
        for kept in self._scan(subscription_id, wanted, self._visible(subject, subscription_id), after):
            redriven = None
            if marked or only_open:
                redriven = self._outcome(kept, _claims(kept, force=False), set()) == "already_redriven"
            if redriven and only_open:
                continue
            page.append(msgspec.structs.replace(kept, redriven=redriven) if marked else kept)
            size += memoryview(kept.letter.event).nbytes
            if len(page) == limit or size > PAGE_BYTES:
                return DeadLetterPage(page, kept.cursor)
        if kept is None and after is None:
            self._check_exists(subscription_id, wanted)
        return DeadLetterPage(page)

    def redrive(self, command: RedriveDeadLetters, context: CommandContext, charge: Charge | None = None) -> Redriven:
        """Publish dead letters again to their event types, visible to their subscription only.

        They are stored unchanged, in their old partitions if these still exist. Dead letters that were published again
        before are left out, unless their idempotency keys have expired, or the command includes them. The result has
        the place at which the limit, or `charge`, ended it: requests that continue there read the queue only once.

        Raises:
            InvalidCursor: the place to continue at is not in the queue.
            Invalid: nothing is selected, and the subscription has no such event type or partition.
            SubscriptionNotFound: there is no such subscription.
            Blocked: the application or an event type of the subscription may not consume, or not publish.
            AccessDenied: the subject does not administer the subscription, or may not read one of its event types.
            ReadOnly: writing is switched off.
            QuotaExceeded: `charge` raises it for the first one.
            Unavailable: a storage can't be used; those published by then are recognised as duplicates in a retry.
        """
        self._registry.refresh()
        self._access.redrive(context.subject, command.subscription_id)
        counts = Counter[str]()
        last: Cursor | None = None
        after: Cursor | msgspec.UnsetType = msgspec.UNSET
        try:
            for kept in self._redrivable(command, context.subject):
                try:
                    counts[self._charged(kept, _claims(kept, force=command.force), charge)] += 1
                except QuotaExceeded:
                    if last is None:
                        raise
                    after = last
                    break
                last = kept.cursor
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
        if not counts and command.after is None:
            self._check_exists(command.subscription_id, command.wanted)
        return Redriven(**counts, after=after)

    def preview(self, command: RedriveDeadLetters, subject: Subject) -> RedrivePreview:
        """Count the outcomes that `redrive` would have now; changes nothing. Raises as `redrive` does."""
        self._registry.refresh()
        self._access.redrive(subject, command.subscription_id)
        counts, reasons, seen, more = Counter[str](), Counter[str](), set[str](), False
        after: Cursor | msgspec.UnsetType = msgspec.UNSET
        for kept in self._redrivable(command, subject):
            outcome = self._outcome(kept, _claims(kept, force=command.force), seen)
            if counts["redriven"] < command.limit:
                counts[outcome] += 1
                if outcome == "redriven" and (kept.letter.reason in reasons or len(reasons) < REASONS_MAX):
                    reasons[kept.letter.reason] += 1
                if counts["redriven"] == command.limit:
                    after = kept.cursor
            elif outcome == "redriven":
                more = True
                break
        if not counts and command.after is None:
            self._check_exists(command.subscription_id, command.wanted)
        shown = [ReasonCount(reason=reason, count=count) for reason, count in reasons.most_common()]
        return RedrivePreview(**counts, after=after, more=more, reasons=shown)

    def _check_exists(self, subscription_id: str, wanted: DeadLetterFilter) -> None:
        """Check that a filter which selects nothing names an event type and a partition of the subscription.

        Only then, since dead letters outlive their event types and partitions.

        Raises:
            Invalid: it does not, so an empty answer would be misleading.
        """
        names = self._registry.subscription(subscription_id).event_types
        if wanted.event_type is not None:
            if wanted.event_type not in names:
                near = self._compute(proposal, wanted.event_type, names)
                raise Invalid(f"event_type: the subscription does not read {wanted.event_type}{near}")
            names = (wanted.event_type,)
        if wanted.partition is None:
            return
        try:
            count = max(self._registry.timelines(name).active.partitions for name in names)
        except EventTypeNotFound:
            return
        if partition_number(wanted.partition, count) is None:
            raise Invalid(f"partition: there is no partition {wanted.partition}; there are 0 to {count - 1}")

    def _visible(self, subject: Subject, subscription_id: str) -> Visibility:
        """The visibility of a subscription's dead letters for a subject; its filter has chosen them before."""
        return Visibility(reader=self._access.visibility(subject, subscription_id).reader)

    def _redrivable(self, command: RedriveDeadLetters, subject: Subject) -> Iterator[KeptDeadLetter]:
        """The dead letters that are there now: those that consumers add meanwhile are not waited for without end."""
        visible = self._visible(subject, command.subscription_id)
        return self._scan(command.subscription_id, command.wanted, visible, command.after, bounded=True)

    def _outcome(self, kept: KeptDeadLetter, claims: Sequence[IdempotencyClaim], seen: set[str]) -> str:
        """The outcome that `_redrive` would have after those in `seen`; this one is added there."""
        name = kept.letter.event_type
        try:
            self._registry.event_type(name)
            for claim in claims:
                if claim.id not in seen and not self._timeline.has_stored(name, claim):
                    seen.add(claim.id)
                    return "redriven"
        except EventTypeNotFound:
            return "without_event_type"
        return "already_redriven"

    def _charged(self, kept: KeptDeadLetter, claims: Sequence[IdempotencyClaim], charge: Charge | None) -> str:
        """Redrive one that the client is charged for, if it was not published before; return the outcome."""
        if charge is None:
            return self._redrive(kept, claims)
        size = len(bytes(kept.letter.event))
        charge(1, size)
        outcome = self._redrive(kept, claims)
        if outcome != "redriven":
            charge(-1, -size)
        return outcome

    def _redrive(self, kept: KeptDeadLetter, claims: Sequence[IdempotencyClaim]) -> str:
        """Publish one again; return its outcome for the counts."""
        letter = kept.letter
        try:
            active = self._registry.timelines(letter.event_type).active
            compacted = self._registry.event_type(letter.event_type).cleanup_policy != "delete"
            headers = Headers(
                subscription_id=letter.subscription_id,
                owner=kept.owner,
                # A compaction key of its own: it must not supersede later events with the original key.
                key=stored_key(f"dead-letter:{letter.name}", kept.owner) if compacted else None,
            )
            batches = {int(letter.partition) % active.partitions: [bytes(letter.event)]}
            headers_by_partition = {number: [headers] for number in batches}
            for claim in claims:
                if not self._timeline.append(active, batches, headers=headers_by_partition, claim=claim).duplicates:
                    return "redriven"
        except EventTypeNotFound:
            return "without_event_type"
        return "already_redriven"

    def _scan(
        self,
        subscription_id: str,
        wanted: DeadLetterFilter,
        visibility: Visibility,
        after: Cursor | None = None,
        *,
        bounded: bool = False,
    ) -> Iterator[KeptDeadLetter]:
        """The dead letters of a subscription after a place in the queue, oldest first in each of its partitions.

        With `bounded`, only those that exist when it begins.
        """
        try:
            timelines = self._registry.timelines(DEAD_LETTER_QUEUE)
        except EventTypeNotFound:
            return
        ends = [newest(ranges) for ranges in offset_ranges_of(timelines, self._stores)]
        for number, begin in places_behind(timelines, after, ends):
            place = begin
            while not bounded or place < ends[number]:
                order, chunks = read_after(timelines, self._stores, number, place, SCAN_BYTES)
                if not chunks:
                    break
                first = place.position + 1 if place.order == order else 0
                for kept in letters_in(chunks, subscription_id, visibility, number, TimelinePosition(order, first)):
                    if bounded and kept.queue_position > ends[number]:
                        break
                    if wanted.includes(kept.letter):
                        yield kept
                place = TimelinePosition(order, chunks[-1].next - 1)
                # Long reads must let other greenlets run.
                time.sleep(0)


def _claims(kept: KeptDeadLetter, *, force: bool) -> Sequence[IdempotencyClaim]:
    """The claims that show that a dead letter was published again: one for each time that it may be."""
    ends = ("", *(f":{number}" for number in range(1, FORCED_MAX)))
    return [IdempotencyClaim(f"redriven:{kept.letter.name}{end}", _DIGEST) for end in (ends if force else ends[:1])]
