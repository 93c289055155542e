"""Publishing: a command that yields no domain event, because the event store is its log (registry contract 6)."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from rioni.commands.gate import Gate
from rioni.domain.authorization import Subject
from rioni.domain.batch import split
from rioni.domain.errors import EventTypeNotFound
from rioni.domain.limits import Limits
from rioni.domain.ports import Clock, EventStore, Registry
from rioni.domain.publishing import ItemResult, prepare


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishEvents:
    """Store a batch of events."""

    event_type: str
    body: bytes
    """A JSON array of events."""
    flow_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What became of a batch."""

    events: int
    """How many events were stored: all or none."""
    refused: Sequence[ItemResult] = ()
    """For each event what became of it, if the batch was refused."""


class Publisher:
    """Checks, prepares and stores batches; blocks on the event store only."""

    def __init__(
        self, registry: Registry, gate: Gate, store: EventStore, clock: Clock, random: Random, limits: Limits
    ) -> None:
        self._registry = registry
        self._gate = gate
        self._store = store
        self._clock = clock
        self._random = random
        self._limits = limits

    def publish(self, command: PublishEvents, subject: Subject) -> Published:
        """Store all events of a batch durably, or none.

        Raises:
            Blocked: event type or application may not publish.
            Malformed: the body is not an array of events.
            EventTypeNotFound: there is no such event type.
            Denied: the subject may not write to it.
            Unavailable: the store can't write; nothing was stored.
        """
        self._registry.refresh()
        self._gate.blacklist("PRODUCER", subject, (command.event_type,))
        try:
            self._gate.event_type(subject, command.event_type, "WRITE")
        except EventTypeNotFound:
            # What can't be read is refused first, whatever it was meant for.
            limits = self._limits
            split(command.body, events_max=limits.batch_events_max, bytes_max=limits.body_bytes_max)
            raise
        rules = self._registry.publish_rules(command.event_type)
        prepared = prepare(
            command.body,
            rules,
            now_ms=self._clock.now_ms(),
            flow_id=command.flow_id,
            publisher=subject.name,
            random=self._random,
        )
        if prepared.refused:
            return Published(events=0, refused=prepared.refused)
        if prepared.batches:
            self._store.append(self._registry.timelines(command.event_type).active.topic, prepared.batches)
        return Published(events=len(prepared.events))
