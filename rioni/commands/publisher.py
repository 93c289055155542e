"""Publishing, as JSON and in Avro: commands that yield no domain event, because the event store is their log."""

import contextlib
from collections.abc import Callable, Mapping, Sequence, Sized
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TypeVar

from rioni.commands.authorization import AccessPolicy
from rioni.commands.timeline_appender import TimelineAppender
from rioni.domain.access.authorization import Subject
from rioni.domain.avro.envelopes import Envelope, read_publishing_batch
from rioni.domain.avro.event_schema import AvroSchemas, EventSchema
from rioni.domain.avro.publishing import prepare_avro, prepare_avro_deletion
from rioni.domain.breaths import free
from rioni.domain.errors import IdempotencyKeyReused, Invalid, NotFound, PartiallyStored, TooLarge
from rioni.domain.event_types.event_type import EventType
from rioni.domain.limits import Limits
from rioni.domain.ports.event_log import Registry
from rioni.domain.ports.host import Charge, Clock, ThreadPool, direct
from rioni.domain.publishing.batch import Batch, split
from rioni.domain.publishing.headers import IdempotencyClaim, claim_id, claim_of
from rioni.domain.publishing.pipeline import Prepared, partial_results, prepare, prepare_deletion
from rioni.domain.publishing.results import ItemResult
from rioni.domain.publishing.rules import Publication, PublishRules
from rioni.domain.timestamps import rfc3339


# Source: reference publishing#publish-events.


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
    rejected: Sequence[ItemResult] = ()
    """One result per event if the batch was rejected: nothing was stored."""
    partly: Sequence[ItemResult] = ()
    """One result per event if not all of them are known to be stored."""


BODY_BYTES_SOON = 500_000
"""PERF: a batch of this size is prepared in about 5 ms."""
OBJECTS_SOON = 3_000
"""PERF: a batch with this many objects takes as long, even if they are empty."""

B = TypeVar("B", bound=Sized)
Prepare = Callable[[B, PublishRules, Publication, Random], Prepared]


class Publisher:
    """Checks, prepares and stores batches; blocks on the event store only."""

    def __init__(
        self,
        registry: Registry,
        access: AccessPolicy,
        timeline: TimelineAppender,
        clock: Clock,
        random: Random,
        limits: Limits,
        pool: ThreadPool,
    ) -> None:
        self._registry = registry
        self._access = access
        self._timeline = timeline
        self._clock = clock
        self._random = random
        self._limits = limits
        self._pool = pool

    def publish(self, command: PublishEvents, subject: Subject, charge: Charge | None = None) -> Published:
        """Store all events of a batch durably, or none.

        `charge` is called once the batch is read and permitted, unless it was stored before.

        Raises:
            Blocked: event type or application may not publish.
            Malformed: the body is not an array of events.
            EventTypeNotFound: there is no such event type.
            AccessDenied: the subject may not write to it.
            IdempotencyKeyReused: another batch was stored under the same idempotency key.
            QuotaExceeded: `charge` raises it; nothing was stored.
            Unavailable: the store can't write; nothing was stored.
        """
        return self._admit_and_publish(command, subject, prepare, charge)

    def delete(self, command: DeleteEvents, subject: Subject, charge: Charge | None = None) -> Published:
        """Store tombstones for all events of a batch, or none; raises as `publish` does.

        Raises:
            Invalid: the batch is empty, and no event of this event type can be deleted.
        """
        return self._admit_and_publish(command, subject, prepare_deletion, charge)

    def _admit_and_publish(
        self, command: PublishEvents, subject: Subject, prepare: Prepare[Batch], charge: Charge | None
    ) -> Published:
        # PERF: counting the objects of 100 events takes 8 µs.
        large = _is_large(command.body)
        batch = self._admit(command, subject, large=large)
        try:
            return self._publish(command, subject, batch, partial(self._prepare, prepare, large), charge)
        finally:
            if large:
                free(batch.raw, batch.values)

    def _admit(self, command: PublishEvents, subject: Subject, *, large: bool) -> Batch:
        """Read the batch and authorise the request, in the contract's order (reference publishing#steps)."""
        self._registry.refresh()
        self._access.blacklist("PRODUCER", subject, (command.event_type,))
        run = self._pool if large else direct
        batch = run(split, command.body, self._limits)
        self._access.event_type(subject, command.event_type, "WRITE")
        return batch

    def _prepare(
        self,
        prepare: Prepare[Batch],
        large: bool,  # noqa: FBT001 - of a partial
        batch: Batch,
        rules: PublishRules,
        publication: Publication,
        random: Random,
    ) -> Prepared:
        """Prepare a batch, in the thread pool if it takes long."""
        if large or rules.validator.takes_long(len(batch.body)):
            return self._pool(prepare, batch, rules, publication, random)
        return prepare(batch, rules, publication, random)

    def _publish(
        self, command: PublishEvents, subject: Subject, batch: B, prepare: Prepare[B], charge: Charge | None
    ) -> Published:
        """Prepare and store a batch that has been admitted, unless it was stored before."""
        timeline = self._registry.timelines(command.event_type).active
        rules = self._registry.publish_rules(command.event_type)
        publication = self._publication(command, subject, rules)
        claim, random = self._claim(command, subject, rules), self._random
        if claim is not None:
            if self._has_stored(command, subject, rules, claim):
                return Published(events=0, duplicates=len(batch))
            # If it is retried after it was stored in part, each event must go to the same partition again.
            random = Random(claim.id)  # noqa: S311 - it decides on partitions only
        if charge is not None:
            charge(len(batch), len(command.body))
        prepared = prepare(batch, rules, publication, random)
        if prepared.rejected:
            return Published(events=0, rejected=prepared.rejected)
        try:
            appended = self._timeline.append(
                timeline, prepared.batches, headers=prepared.headers, ids=prepared.ids, claim=claim
            )
        except PartiallyStored as ex:
            partly = partial_results(prepared.events, prepared.partitions, ex.failed)
            return Published(events=sum(item.publishing_status == "submitted" for item in partly), partly=partly)
        return Published(events=len(batch) - appended.duplicates, duplicates=appended.duplicates)

    def _claim(self, command: PublishEvents, subject: Subject, rules: PublishRules) -> IdempotencyClaim | None:
        if (key := command.idempotency_key) is None:
            return None
        # PERF: the digest of 50 MB takes 100 ms.
        run = self._pool if _is_large(command.body) else direct
        kind = f"{type(command).__name__} {command.subscription_id}"
        return run(claim_of, rules.scope, client=_client(subject), key=key, kind=kind, body=command.body)

    def _has_stored(
        self, command: PublishEvents, subject: Subject, rules: PublishRules, claim: IdempotencyClaim
    ) -> bool:
        """Whether the batch is stored, perhaps by a release before 0.1.1, whose keys forgot the realm of a client."""
        if self._timeline.has_stored(command.event_type, claim):
            return True
        if subject.unrestricted or command.idempotency_key is None:
            return False
        known = claim_id(rules.scope, client=subject.name, key=command.idempotency_key)
        # Another batch under this key is one of a namesake in another realm.
        with contextlib.suppress(IdempotencyKeyReused):
            return self._timeline.has_stored(command.event_type, claim._replace(id=known))
        return False

    def _publication(self, command: PublishEvents, subject: Subject, rules: PublishRules) -> Publication:
        owned = rules.owner is not None and "event_owner_selector_authz" in self._registry.settings.features
        return Publication(
            received_at=rfc3339(self._clock.now_ms()),
            flow_id=command.flow_id,
            publisher=subject.name,
            span_ctx=command.span_ctx,
            subscription_id=command.subscription_id,
            check_owner=self._access.event_owner(subject) if owned else None,
        )


def _is_large(body: bytes) -> bool:
    """Whether a batch takes long for any event type."""
    # PERF: an object has at least two characters, so most bodies need no counting.
    return len(body) > BODY_BYTES_SOON or (len(body) > 2 * OBJECTS_SOON and body.count(b"{") > OBJECTS_SOON)


def _client(subject: Subject) -> str:
    """The scope of a client's idempotency keys: never the name alone, as in releases before 0.1.1."""
    return subject.name if subject.unrestricted else f"{subject.name}\n{subject.realm}"


# Publishing binary batches: a command, as for JSON, with a body in Avro (reference publishing#binary-batches).

POOL_BYTES = 16_384
"""PERF: reading, checking and rendering this many bytes takes about 3 ms. Larger batches go to the thread pool."""
JSON_BYTES_AT_ONCE = 1_000_000
"""The maximum size of the output of a batch prepared at once: field names may expand a few bytes to many."""


class AvroPublisher(Publisher):
    """Checks, prepares and stores binary batches."""

    def __init__(
        self,
        registry: Registry,
        access: AccessPolicy,
        timeline: TimelineAppender,
        clock: Clock,
        random: Random,
        limits: Limits,
        *,
        schemas: AvroSchemas,
        pool: ThreadPool,
    ) -> None:
        super().__init__(registry, access, timeline, clock, random, limits, pool)
        self._schemas = schemas

    def publish(self, command: PublishEvents, subject: Subject, charge: Charge | None = None) -> Published:
        """Store all events of a batch durably, or none; raises as `Publisher.publish` does."""
        envelopes = self._admit_avro(command, subject)
        return self._publish(command, subject, envelopes, partial(self._prepare_avro, command.body), charge)

    def delete(self, command: DeleteEvents, subject: Subject, charge: Charge | None = None) -> Published:
        """Store tombstones for all events of a batch, or none; raises as `publish` does.

        Raises:
            Invalid: no event of this event type can be deleted.
        """
        envelopes = self._admit_avro(command, subject)
        return self._publish(command, subject, envelopes, partial(self._prepare_avro_deletion, command.body), charge)

    def _admit_avro(self, command: PublishEvents, subject: Subject) -> Sequence[Envelope]:
        """Authorise the request and read the batch: in binary publishing all of these checks come before the body."""
        self._registry.refresh()
        self._access.blacklist("PRODUCER", subject, (command.event_type,))
        rules = self._registry.publish_rules(command.event_type)
        if isinstance(command, DeleteEvents) and rules.undeletable:
            raise Invalid(rules.undeletable)
        self._access.event_type(subject, command.event_type, "WRITE")
        return self._runner(command.body)(read_publishing_batch, command.body, self._limits.batch_events_max)

    def _prepare_avro(
        self,
        body: bytes,
        envelopes: Sequence[Envelope],
        rules: PublishRules,
        publication: Publication,
        random: Random,
    ) -> Prepared:
        schemas = self._schemas_of(self._registry.event_type(rules.name), envelopes)
        prepare = partial(prepare_avro, envelopes, schemas, rules, publication, random)
        if len(body) <= POOL_BYTES:
            with suppress(TooLarge):
                return prepare(bytes_max=JSON_BYTES_AT_ONCE)
        return self._pool(prepare, bytes_max=self._limits.body_bytes_max)

    def _prepare_avro_deletion(
        self,
        body: bytes,
        envelopes: Sequence[Envelope],
        rules: PublishRules,
        publication: Publication,
        random: Random,
    ) -> Prepared:
        return self._runner(body)(prepare_avro_deletion, envelopes, rules, publication, random)

    def _runner(self, body: bytes) -> ThreadPool:
        return self._pool if len(body) > POOL_BYTES else direct

    def _schemas_of(self, event_type: EventType, envelopes: Sequence[Envelope]) -> dict[str, EventSchema | str]:
        """The schemas that the events name, up to the first event whose schema does not exist."""
        schemas: dict[str, EventSchema | str] = {}
        for envelope in envelopes:
            version = envelope.metadata.version
            if version in schemas:
                continue
            try:
                schemas[version] = self._schemas.of(event_type, version)
            except (NotFound, Invalid) as ex:
                schemas[version] = str(ex)
                break
        return schemas
