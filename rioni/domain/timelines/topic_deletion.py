"""Topics pending deletion, until their stores have deleted them."""

import msgspec

from rioni.domain.events import DomainEvent


class AbandonedTopic(msgspec.Struct, frozen=True, kw_only=True):
    """A topic that is to be deleted."""

    topic: str
    storage_id: str
    event_type: str
    """The event type of its events."""


class TopicAbandoned(DomainEvent, frozen=True, kw_only=True):
    """A topic is to be deleted: its event type or timeline was deleted, or never created."""

    TOPIC = "topic.abandoned"
    KEY = "topic"

    topic: str
    storage_id: str
    event_type: str


class TopicDeleted(DomainEvent, frozen=True, kw_only=True):
    """An abandoned topic was deleted, with its events."""

    TOPIC = "topic.deleted"
    KEY = "topic"

    topic: str


def evolve(state: AbandonedTopic | None, event: DomainEvent) -> AbandonedTopic | None:
    """The state after an event; total."""
    match event:
        case TopicAbandoned(topic=topic, storage_id=storage_id, event_type=event_type):
            return AbandonedTopic(topic=topic, storage_id=storage_id, event_type=event_type)
        case TopicDeleted():
            return None
        case _:
            return state
