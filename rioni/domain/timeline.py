"""Timelines: which topic of which storage holds which offsets of an event type (registry 8, consumption 11)."""

import msgspec

from rioni.domain.events import DomainEvent


FIRST_ORDER = 1


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """The binding of an event type to a topic, from `switched_at` on."""

    id: str
    event_type: str
    order: int
    storage_id: str
    topic: str
    partitions: int
    created_at: str
    switched_at: str
    cleaned_up_at: str | None = None
    latest_position: tuple[int, ...] | None = None
    """For each partition the last position; None while the timeline is active."""


class Timelines(msgspec.Struct, frozen=True, kw_only=True):
    """All timelines of one event type, by order; the last one is active."""

    event_type: str
    timelines: tuple[Timeline, ...]

    @property
    def active(self) -> Timeline:
        """The timeline that is written to."""
        return self.timelines[-1]


class TimelineOpened(DomainEvent, frozen=True, kw_only=True):
    """Events are stored in this timeline from now on."""

    TOPIC = "timeline.opened"
    KEY = "event_type"

    event_type: str
    timeline: Timeline


class TimelinesDeleted(DomainEvent, frozen=True, kw_only=True):
    """The event type is gone, and its events with it."""

    TOPIC = "timeline.deleted"
    KEY = "event_type"

    event_type: str


def evolve(state: Timelines | None, event: DomainEvent) -> Timelines | None:
    """The state after an event; total."""
    match event:
        case TimelineOpened(event_type=name, timeline=timeline):
            return Timelines(event_type=name, timelines=(*(state.timelines if state else ()), timeline))
        case TimelinesDeleted():
            return None
        case _:
            return state
