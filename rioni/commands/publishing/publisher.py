"""Publishing: commands that yield no domain event, because the event store is their log.

Source: reference publishing#publish-events.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

from rioni.commands.authorization import AccessPolicy
from rioni.commands.publishing.deduplicated_append import RemainingBatch, is_duplicate
from rioni.commands.publishing.timeline_appender import TimelineAppender
from rioni.domain.access.authorization import Subject
from rioni.domain.errors import AccessDenied, EventTypeNotFound, PartiallyStored, RioniError
from rioni.domain.limits import Limits
from rioni.domain.ports.clock import Clock
from rioni.domain.ports.event_store import Appended, EventStore, IdempotencyClaim
from rioni.domain.ports.registry import Registry
from rioni.domain.ports.thread_pool import ThreadPool, direct
from rioni.domain.publishing import idempotency
from rioni.domain.publishing.batch import Batch, split
from rioni.domain.publishing.pipeline import Prepared, prepare, prepare_deletion
from rioni.domain.publishing.results import ItemResult, stored_or_not
from rioni.domain.publishing.rules import PublishRules, is_large
from rioni.domain.publishing.steps import Publication
from rioni.domain.timelines.timeline import Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishEvents:
    """Store a batch of events."""

    event_type: str
    body: bytes
    """A JSON array of events."""
    flow_id: str
    span_ctx: Mapping[str, str] | None = None
    """The request's span context."""
    subscription_id: str | None = None
    """The only subscription that may read the events; None for all readers."""
    idempotency_key: str | None = None
    """The client's idempotency key: batches with the same key are stored once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteEvents(PublishEvents):
    """Store a batch of tombstones, which delete the events with these keys from a compacted event type.

    Source: reference publishing#delete-events.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Outcome of publishing a batch."""

    events: int
    """Number of stored events."""
    duplicates: int = 0
    """Number of events left out as duplicates."""
    refused: Sequence[ItemResult] = ()
    """One result per event if the batch was rejected: nothing was stored."""
    partly: Sequence[ItemResult] = ()
    """One result per event if not all of them are known to be stored."""


Prepare = Callable[[bytes, PublishRules, Publication, Random], Prepared]


class Publisher:
    """Checks, prepares and stores batches; blocks on the event store only."""

    def __init__(
        self,
        registry: Registry,
        gate: AccessPolicy,
        timeline: TimelineAppender,
        clock: Clock,
        random: Random,
        limits: Limits,
        offload: ThreadPool,
    ) -> None:
        self._registry = registry
        self._gate = gate
        self._timeline = timeline
        self._clock = clock
        self._random = random
        self._limits = limits
        self._offload = offload

    def publish(self, command: PublishEvents, subject: Subject) -> Published:
        """Store all events of a batch durably, or none.

        Raises:
            Blocked: event type or application may not publish.
            Malformed: the body is not an array of events.
            EventTypeNotFound: there is no such event type.
            AccessDenied: the subject may not write to it.
            IdempotencyKeyReused: another batch was stored under the same idempotency key.
            Unavailable: the store can't write; nothing was stored.
        """
        return self._run(command, subject, partial(self._prepare_json, prepare))

    def delete(self, command: DeleteEvents, subject: Subject) -> Published:
        """Store tombstones for all events of a batch, or none; raises what `publish` does.

        Raises:
            Invalid: the batch is empty, and no event of this event type can be deleted.
        """
        return self._run(command, subject, partial(self._prepare_json, prepare_deletion))

    def _run(self, command: PublishEvents, subject: Subject, prepare: Prepare) -> Published:
        self._admit(command, subject)
        timeline = self._registry.timelines(command.event_type).active
        rules = self._registry.publish_rules(command.event_type)
        claim = None
        if command.idempotency_key is not None:
            # PERF: the digest of 50 MB takes 100 ms.
            run = self._offload if is_large(command.body) else direct
            claim = run(_claim, command, command.idempotency_key, subject, rules)
            if is_duplicate(claim, self._timeline.stores(command.event_type)):
                return Published(events=0, duplicates=self._count(command))
        # If it is retried after it was stored in part, each event must go to the same partition again.
        random = self._random if claim is None else Random(claim.id)  # noqa: S311 - it decides on partitions only
        prepared = prepare(command.body, rules, self._publication(command, subject, rules), random)
        if prepared.refused:
            return Published(events=0, refused=prepared.refused)
        return self._append(timeline, prepared, claim)

    def _prepare_json(
        self, prepare: Prepare, body: bytes, rules: PublishRules, publication: Publication, random: Random
    ) -> Prepared:
        """Prepare a batch, in the thread pool if it takes long."""
        if rules.takes_long(body):
            return self._offload(prepare, body, rules, publication, random)
        return prepare(body, rules, publication, random)

    def _admit(self, command: PublishEvents, subject: Subject) -> None:
        """Authorise the request, in the contract's order (reference publishing#steps)."""
        self._registry.refresh()
        self._gate.blacklist("PRODUCER", subject, (command.event_type,))
        try:
            self._gate.event_type(subject, command.event_type, "WRITE")
        except (EventTypeNotFound, AccessDenied):
            # A malformed body is rejected first, whatever the event type.
            self._split(command)
            raise

    def _count(self, command: PublishEvents) -> int:
        return len(self._split(command).values)

    def _split(self, command: PublishEvents) -> Batch:
        limits = self._limits
        work = partial(
            split,
            command.body,
            events_max=limits.batch_events_max,
            bytes_max=limits.body_bytes_max,
            values_max=limits.batch_values_max,
        )
        return self._offload(work) if is_large(command.body) else work()

    def _publication(self, command: PublishEvents, subject: Subject, rules: PublishRules) -> Publication:
        owned = rules.owner is not None and "event_owner_selector_authz" in self._registry.settings.features
        return Publication(
            now_ms=self._clock.now_ms(),
            flow_id=command.flow_id,
            publisher=subject.name,
            span_ctx=command.span_ctx,
            subscription_id=command.subscription_id,
            check_owner=self._gate.event_owner(subject) if owned else None,
        )

    def _append(self, timeline: Timeline, prepared: Prepared, claim: IdempotencyClaim | None) -> Published:
        if not prepared.batches:
            return Published(events=0)

        left = RemainingBatch(prepared.batches, prepared.headers, prepared.ids)

        def append(store: EventStore, topic: str) -> Appended:
            once = claim is not None or prepared.ids is not None
            others = self._timeline.stores(timeline.event_type, without=store) if once else ()
            return left.append(store, topic, claim, others)

        try:
            appended = self._timeline.write(timeline, append)
        except PartiallyStored as ex:
            return _partly(prepared, ex.failed)
        except RioniError:
            if not left.begun:
                raise
            # The next timeline did not come in time, or at all.
            return _partly(prepared, dict.fromkeys(left.batches, "interrupted"))
        return Published(events=len(prepared.events) - appended.left_out, duplicates=appended.left_out)


def _partly(prepared: Prepared, failed: Mapping[int, str]) -> Published:
    partly = stored_or_not(prepared.events, prepared.partitions, failed)
    return Published(events=sum(item.publishing_status == "submitted" for item in partly), partly=partly)


def _claim(command: PublishEvents, key: str, subject: Subject, rules: PublishRules) -> IdempotencyClaim:
    kind = f"{type(command).__name__} {command.subscription_id}"
    return idempotency.claim(rules.scope, client=subject.name, key=key, kind=kind, body=command.body)
