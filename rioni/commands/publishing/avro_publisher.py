"""Publishing binary batches: a command, as for JSON, with a body in Avro (reference publishing#binary-batches)."""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from random import Random

from rioni.commands.authorization import AccessPolicy
from rioni.commands.publishing.publisher import DeleteEvents, Published, Publisher, PublishEvents
from rioni.commands.publishing.timeline_appender import TimelineAppender
from rioni.domain.access.authorization import Subject
from rioni.domain.avro.envelopes import Envelope, read_publishing_batch
from rioni.domain.avro.event_schema import AvroSchemas, EventSchema
from rioni.domain.avro.publishing import prepare_avro, prepare_avro_deletion
from rioni.domain.errors import Invalid, NotFound, TooLarge
from rioni.domain.event_types.event_type import EventType
from rioni.domain.limits import Limits
from rioni.domain.ports.clock import Clock
from rioni.domain.ports.quota import Charge
from rioni.domain.ports.registry import Registry
from rioni.domain.ports.thread_pool import ThreadPool, direct
from rioni.domain.publishing.pipeline import Prepared
from rioni.domain.publishing.rules import Publication, PublishRules


POOL_BYTES = 16_384
"""PERF: reading, checking and rendering so many bytes takes about 3 ms. Larger batches go to the thread pool."""
JSON_BYTES_AT_ONCE = 1_000_000
"""The same limit for the output: field names may expand a few bytes to many."""


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
        """Store all events of a batch durably, or none.

        `charge` is called once the batch is read and permitted, unless it was stored before.

        Raises:
            Blocked: event type or application may not publish.
            EventTypeNotFound: there is no such event type.
            AccessDenied: the subject may not write to it.
            Malformed: the body is not a publishing batch.
            IdempotencyKeyReused: another batch was stored under the same idempotency key.
            QuotaExceeded: `charge` raises it; nothing was stored.
            Unavailable: the store can't write; nothing was stored.
        """
        envelopes = self._admit_avro(command, subject)
        return self._publish(command, subject, envelopes, partial(self._prepare_avro, command.body), charge)

    def delete(self, command: DeleteEvents, subject: Subject, charge: Charge | None = None) -> Published:
        """Store tombstones for all events of a batch, or none; raises what `publish` does.

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
