"""System events: their event types, their publishing, and those that report the entries of the internal log."""

import contextlib
from collections.abc import Callable, Sequence
from itertools import groupby
from random import Random
from typing import NamedTuple
from uuid import uuid4

import msgspec

from rioni.commands.bus import CommandBus
from rioni.commands.event_types import CreateEventType
from rioni.commands.job_runner import LoggedJobRunner
from rioni.commands.unit_of_work import CommandContext
from rioni.domain.access.authorization import BROKER, Attribute
from rioni.domain.avro.binary import DatumError, datum_of
from rioni.domain.avro.envelopes import Envelope, Metadata
from rioni.domain.avro.event_schema import EventSchema
from rioni.domain.avro.publishing import prepare_avro
from rioni.domain.errors import Conflict, EventTypeNotFound, Invalid
from rioni.domain.event_types.event_type import Schema
from rioni.domain.events import Origin
from rioni.domain.ports.event_log import CheckpointedLogReader, RecordedChange, Registry
from rioni.domain.ports.event_store import EventStores
from rioni.domain.ports.host import Clock, Leadership, ThreadPool
from rioni.domain.publishing.batch import DEPTH_MAX, split
from rioni.domain.publishing.headers import Headers, IdempotencyClaim
from rioni.domain.publishing.pipeline import Prepared, prepare
from rioni.domain.publishing.rules import Publication, PublishRules
from rioni.domain.subscriptions.subscription import Subscription
from rioni.domain.system.settings import SETTINGS, FeatureSwitched, Settings
from rioni.domain.system.system_events import DEAD_LETTER_QUEUE, SystemEvent, SystemEventType, wants_dead_letters
from rioni.domain.timestamps import milliseconds, rfc3339


# --- Publishes system events: by the same rules as clients' events, but without permission checks ---

_UNLIMITED = 2**31
_WRAPPED = 2
"""Additional nesting depth of system events, which contain clients' data."""
_DIGEST = "own"
"""Digest of the claims of all batches: the key alone identifies a batch."""


class SystemEventPublisher:
    """Stores system events, each exactly once."""

    def __init__(self, registry: Registry, stores: EventStores, clock: Clock, random: Random) -> None:
        self._registry, self._stores, self._clock, self._random = registry, stores, clock, random

    def publish(
        self, event_type: str, events: Sequence[SystemEvent], *, name: str, owner: Attribute | None = None
    ) -> None:
        """Store a batch durably, once. Blocks on the event store.

        Args:
            event_type: a system event type.
            events: the events.
            name: idempotency key of the batch; a retry after a crash has the same events.
            owner: the owner of all events; None for no owner.

        Raises:
            EventTypeNotFound: there is no such event type.
            Invalid: an event breaks the rules of the event type, whose definition must have been changed.
            Unavailable: the store can't write; nothing was stored.
        """
        timelines = self._registry.timelines(event_type)
        claim = IdempotencyClaim(f"{event_type}:{name}", _DIGEST)
        if any(self._stores.of(each.storage_id).claimed(claim.id) is not None for each in timelines.readable):
            return
        store, topic = self._stores.of(timelines.active.storage_id), timelines.active.topic
        prepared = self._prepared(event_type, events)
        headers = prepared.headers
        if owner:
            headers = {number: [Headers(owner=owner)] * len(batch) for number, batch in prepared.batches.items()}
        store.append(topic, prepared.batches, headers=headers, claim=claim)

    def _prepared(self, event_type: str, events: Sequence[SystemEvent]) -> Prepared:
        publication = Publication(received_at=rfc3339(self._clock.now_ms()), flow_id="", publisher=BROKER.name)
        rules = _unlimited(self._registry.publish_rules(event_type))
        schema = self._registry.event_type(event_type).schema
        if schema.type == "avro_schema":
            envelopes = _envelopes(event_type, schema, events)
            schemas = {schema.version: EventSchema(schema.schema, _UNLIMITED)}
            prepared = prepare_avro(envelopes, schemas, rules, publication, self._random, bytes_max=_UNLIMITED)
        else:
            body = b"[" + b",".join([event.json() for event in events]) + b"]"
            batch = split(body, rules.limits, depth_max=DEPTH_MAX + _WRAPPED)
            prepared = prepare(batch, rules, publication, self._random)
        if prepared.rejected:
            detail = next(item.detail for item in prepared.rejected if item.publishing_status == "failed")
            raise _unfit(event_type, detail)
        return prepared


def _envelopes(event_type: str, schema: Schema, events: Sequence[SystemEvent]) -> list[Envelope]:
    try:
        return [
            Envelope(_metadata(event_type, schema.version, event), datum_of(schema.schema, event.members))
            for event in events
        ]
    except DatumError as ex:
        raise _unfit(event_type, str(ex)) from ex


def _metadata(event_type: str, version: str, event: SystemEvent) -> Metadata:
    return Metadata(
        occurred_at=milliseconds(event.occurred_at),
        eid=event.eid,
        flow_id=event.flow_id or None,
        version=version,
        event_type=event_type,
    )


def _unfit(event_type: str, detail: str) -> Invalid:
    return Invalid(f"The system event type {event_type} rejected system events: {detail}")


def _unlimited(rules: PublishRules) -> PublishRules:
    """The event type's rules, without the size limit of events: a report must hold anything accepted in a request."""
    limits = msgspec.structs.replace(
        rules.limits,
        event_bytes_max=_UNLIMITED,
        body_bytes_max=_UNLIMITED,
        batch_events_max=_UNLIMITED,
        batch_values_max=_UNLIMITED,
    )
    return msgspec.structs.replace(rules, limits=limits)


# --- Creates the system event types, with ordinary commands ---
#
# Source: reference system-event-types#audit-log.


class SystemEventTypes:
    """Knows the required system event types, and creates missing ones."""

    def __init__(
        self, own: Sequence[SystemEventType], registry: Registry, bus: CommandBus, now: Callable[[], str]
    ) -> None:
        """Keep the dependencies.

        Args:
            own: all system event types.
            registry: lists the existing event types.
            bus: runs the commands.
            now: returns the time, RFC 3339 with milliseconds.
        """
        self._own = {each.name: each for each in own}
        self._registry, self._bus, self._now = registry, bus, now

    def ensure(self) -> None:
        """Create those that enabled features require; raises as `ensure_one`. Cheap if none is missing."""
        self._registry.refresh()
        features = self._registry.settings.features
        for name, own in self._own.items():
            if own.feature in features:
                self.ensure_one(name)

    def ensure_for(self, subscription: Subscription) -> None:
        """Create those that a subscription requires; raises as `ensure_one`."""
        if wants_dead_letters(subscription):
            self.ensure_one(DEAD_LETTER_QUEUE)

    def ensure_one(self, name: str) -> None:
        """Create one of them if it is missing.

        Raises:
            ReadOnly: it is missing, and writing is switched off.
        """
        self._registry.refresh()
        try:
            self._registry.event_type(name)
        except EventTypeNotFound:
            # Another process may be faster.
            with contextlib.suppress(Conflict):
                self._bus.dispatch(CreateEventType(spec=self._own[name].spec), self._context())
            self._registry.refresh()

    def _context(self) -> CommandContext:
        origin = Origin(actor=BROKER.name, client="", flow_id="", command_id=str(uuid4()), recorded_at=self._now())
        return CommandContext(subject=BROKER, origin=origin)


# --- Consumers of the internal log that publish its entries as system events, each exactly once ---
#
# Each event is stored as a separate batch, with its id as idempotency key, so the event store stores it once. The
# checkpoint is saved after that. So a crash at any moment neither loses nor duplicates an event.

ENTRIES_PER_STEP = 500
REMEMBER_EVERY_ENTRIES = 1_000
"""Maximum number of entries without events that a new process reads again: the checkpoint is saved this often."""


class LogConsumer(NamedTuple):
    """Derives the events of one system event type from the log."""

    event_type: str
    feature: str
    """The feature that enables it; switching it on or off is reported too."""
    events: Callable[[Sequence[RecordedChange]], Sequence[SystemEvent]]
    """The events that report on the entries of one command, in their order."""

    @property
    def follower(self) -> str:
        """The name of its checkpoint."""
        return f"feed:{self.event_type}"


class LogConsumers:
    """Runs all consumers of the log, in one process of the broker."""

    def __init__(
        self,
        consumers: Sequence[LogConsumer],
        reader: CheckpointedLogReader,
        leadership: Leadership,
        system_event_types: SystemEventTypes,
        publisher: SystemEventPublisher,
        pool: ThreadPool,
    ) -> None:
        self._leadership, self._system_event_types = leadership, system_event_types
        self._followers = {
            feed.event_type: _Follower(feed, reader, system_event_types, publisher, pool) for feed in consumers
        }
        self._runner = LoggedJobRunner()

    def tick(self) -> None:
        """Process new entries. A consumer that fails is logged, and resumes at its checkpoint."""
        self._runner.run("feeds", self._go_on)

    def _go_on(self) -> bool:
        """Whether this process runs them."""
        if not self._leadership.held():
            return False
        self._runner.run("event types", self._system_event_types.ensure)
        for name, follower in self._followers.items():
            self._runner.run(name, follower.go_on)
        return True

    def close(self) -> None:
        """Let another process run them."""
        self._leadership.close()

    def behind(self) -> dict[str, int]:
        """The lag of each event type in log entries; 0 if another process runs the consumers."""
        return {name: follower.behind() for name, follower in self._followers.items()}


class _Follower:
    """Runs one consumer and keeps its checkpoint."""

    def __init__(
        self,
        feed: LogConsumer,
        reader: CheckpointedLogReader,
        system_event_types: SystemEventTypes,
        publisher: SystemEventPublisher,
        pool: ThreadPool,
    ) -> None:
        self._feed, self._reader, self._pool = feed, reader, pool
        self._system_event_types, self._publisher = system_event_types, publisher
        self._position: int | None = None
        """Position of the last processed entry; None until the checkpoint has been read."""
        self._head = self._remembered = 0
        self._on = False

    def behind(self) -> int:
        """Number of unprocessed entries when the head was last read."""
        return 0 if self._position is None else self._head - self._position

    def go_on(self) -> None:
        """Process all entries up to the head of the log."""
        if self._position is None:
            self._begin()
        self._head = self._reader.head()
        while self._head != self._position:
            self._step()
            self._head = self._reader.head()

    def _begin(self) -> None:
        self._remembered = position = self._pool(self._reader.checkpoint, self._feed.follower)
        settings = self._pool(self._reader.state, "settings", SETTINGS, position)
        self._on = settings is not None and self._feed.feature in msgspec.json.decode(settings, type=Settings).features
        self._position = position

    def _step(self) -> None:
        assert self._position is not None
        changes = self._pool(self._reader.changes, self._position, ENTRIES_PER_STEP)
        published, on = False, self._on
        for _, command in groupby(changes, key=lambda change: change.entry.origin.command_id):
            wanted = []
            for change in command:
                was_on, event = on, change.entry.event
                if isinstance(event, FeatureSwitched) and event.feature == self._feed.feature:
                    on = event.enabled
                if was_on or on:
                    wanted.append(change)
            for report in self._feed.events(wanted):
                self._system_event_types.ensure_one(self._feed.event_type)
                # One by one: after a crash the next process may read more of the command's transactions at once.
                self._publisher.publish(self._feed.event_type, [report], name=report.eid)
                published = True
        position = changes[-1].entry.position
        if published or position - self._remembered >= REMEMBER_EVERY_ENTRIES:
            self._pool(self._reader.save_checkpoint, self._feed.follower, position)
            self._remembered = position
        self._position, self._on = position, on
