"""Topics of new event types that are being created in a storage: recorded before the storage is asked to make them."""

import msgspec

from rioni.domain.events import DomainEvent


class TopicCreation(msgspec.Struct, frozen=True, kw_only=True):
    """A topic that a process is about to create, or has created, for an event type that does not exist yet."""

    topic: str
    storage_id: str
    event_type: str
    """The name of the event type that is to be created."""
    worker: str
    """The process that creates it; if it dies, the topic is abandoned."""


class TopicCreationStarted(DomainEvent, frozen=True, kw_only=True):
    """A process is about to ask a storage for the first topic of a new event type."""

    TOPIC = "topic-creation.started"
    KEY = "topic"

    topic: str
    storage_id: str
    event_type: str
    worker: str


class TopicCreationEnded(DomainEvent, frozen=True, kw_only=True):
    """The topic belongs to a timeline, or was abandoned: other events of the same command say which."""

    TOPIC = "topic-creation.ended"
    KEY = "topic"

    topic: str


def evolve(state: TopicCreation | None, event: DomainEvent) -> TopicCreation | None:
    """The state after an event; total."""
    match event:
        case TopicCreationStarted(topic=topic, storage_id=storage_id, event_type=event_type, worker=worker):
            return TopicCreation(topic=topic, storage_id=storage_id, event_type=event_type, worker=worker)
        case TopicCreationEnded():
            return None
        case _:
            return state
