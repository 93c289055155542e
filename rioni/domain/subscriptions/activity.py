"""Client activity on event types and subscriptions, and the port that stores it."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import msgspec

from rioni.domain.event_types.event_type import EventType


PUBLISH, READ, STREAM, COMMIT = "publish", "read", "stream", "commit"
"""The first two are done with event types (`read` on the low-level API), the others with subscriptions."""

RETENTION_MS = 90 * 24 * 3_600_000
"""Who was not seen for so long is forgotten."""


class Sighting(NamedTuple):
    """What a client was seen to do."""

    deed: str
    """One of those above."""
    resource: str
    """What it did that with."""
    client: str
    """The name of the subject."""


class LastActivity(msgspec.Struct, frozen=True):
    """When, and how much, a client did something."""

    first_ms: int
    last_ms: int
    amount: int
    """Of events or cursors, from the first time on."""


class Activity(Protocol):
    """What clients were seen to do, shared by all processes. Calls block on the disk.

    It survives the death of processes; that of the machine may cost the last seconds. All raise Unavailable where
    nothing can be stored or read.
    """

    def add(self, sightings: Mapping[Sighting, LastActivity]) -> None:
        """Add to what is known: amounts add up, times widen."""

    def of(self, deed: str, resource: str) -> Mapping[str, LastActivity]:
        """What clients did with a resource, by their names, in order."""

    def forget(self, before_ms: int) -> None:
        """Forget who was not seen since this time."""

    def close(self) -> None:
        """Close all files."""


def resource_of(event_type: EventType) -> str:
    """What stands for an event type: another one that gets its name later is another resource."""
    return f"{event_type.name} {event_type.created_at}"


def joined(one: LastActivity, other: LastActivity) -> LastActivity:
    """Both sightings as one."""
    return LastActivity(
        min(one.first_ms, other.first_ms),
        max(one.last_ms, other.last_ms),
        one.amount + other.amount,
    )
