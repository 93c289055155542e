"""Reads event types, their schemas, and their events up to the ends of partitions: each with its offset and its day."""

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import UTC, date, datetime
from itertools import islice
from typing import NamedTuple

from rioni.client import Client, EventType, UnexpectedAnswer, ranges
from rioni.client.encoding import CATEGORY_WITHOUT_METADATA
from rioni.client.ranges import Place, Range, RangePart
from rioni.domain.event_types.event_type import MATERIALIZE
from rioni.domain.event_types.rules import is_event_type_name
from rioni.domain.timestamps import time_of as received_or_occurred


SCHEMAS_MAX = 1_000
"""The most versions of the schema of an event type that are read, the newest ones."""
QUIET_MAX = 1
"""Keep-alives, about a second apart, after which a partition counts as read to its end, for the time being."""


def marked_event_types(client: Client) -> list[str]:
    """The names of the event types whose annotations ask to keep their events in the data lake, unchecked."""
    return [each.name for each in client.event_types.list(annotations=[f"{MATERIALIZE}:on"])]


def event_type(client: Client, name: str) -> EventType:
    """An event type as it is now; its name can become a path or the name of a table. Blocks until the broker answers.

    Raises:
        UnexpectedAnswer: event types can't have such a name, or the broker answers with another event type.
        ClientError: the broker does not answer, or refuses.
    """
    if not is_event_type_name(name):
        raise UnexpectedAnswer(f"{client.url} has no event type {name!r:.100}: event types can't have such a name.")
    found = client.event_types.get(name)
    if found.name != name:
        raise UnexpectedAnswer(f"{client.url} was asked for {name}, and answered with {found.name!r:.100}.")
    created(found)
    return found


def created(found: EventType) -> datetime:
    """When an event type was created, which distinguishes it from others that had its name.

    Raises:
        UnexpectedAnswer: the broker does not report it.
    """
    if found.created_at is None:
        raise UnexpectedAnswer(f"The broker does not report when {found.name} was created.")
    return found.created_at


def created_at_ms(found: EventType) -> int:
    """When an event type was created, as tables keep it."""
    return round(created(found).timestamp() * 1_000)


def schema_versions(client: Client, name: str) -> list[tuple[str, str]]:
    """The versions of the schema of an event type as pairs of type and text, the oldest first."""
    found = [(each.type, each.schema) for each in islice(client.schemas.list(name), SCHEMAS_MAX)]
    return found[::-1]


class Read(NamedTuple):
    """An event as the broker stores it."""

    partition: str
    place: Place
    event: bytes
    day: date


class RowBuffer:
    """The events that were read and will be committed together; not thread-safe."""

    def __init__(self, category: str, places: Mapping[str, Place] | None = None) -> None:
        self._category = category
        self.begun_s = time.monotonic()
        self.events: list[Read] = []
        self.places: dict[str, Place] = dict(places or {})
        """The last place read, by partition."""
        self.ended: set[str] = set()
        """The partitions that were read to their end."""
        self.expired = 0
        """Events that retention had removed while this was read."""
        self.bytes = 0
        self.oldest: datetime | None = None
        """The time of the oldest event."""

    def add(self, piece: RangePart) -> None:
        """Add the events of a piece, which follows those that were added before."""
        now = datetime.now(UTC)
        for number, raw in enumerate(piece.events):
            event = bytes(raw)
            time_ = time_of(event, self._category, now)
            self.oldest = time_ if self.oldest is None else min(time_, self.oldest)
            self.events.append(Read(piece.partition, piece.place(number), event, time_.date()))
            self.bytes += len(event)
        self.expired += piece.expired
        if piece.events or piece.expired:
            self.places[piece.partition] = piece.read_to


class LakeReader:
    """Reads one event type up to the ends of its partitions."""

    def __init__(self, client: Client, event_type: EventType, targets: Mapping[str, Place]) -> None:
        """Prepare to read.

        Args:
            client: of the broker.
            event_type: which one.
            targets: where each partition ends.
        """
        self._reader = ranges.Reader(client, event_type.name, created_at=created(event_type), quiet_max=QUIET_MAX)
        self._category, self._targets = event_type.category, targets

    def read(
        self, places: Mapping[str, Place], is_full: Callable[[RowBuffer], bool], is_stopped: Callable[[], bool]
    ) -> RowBuffer:
        """Read after some places until the buffer is full, all is read, or `is_stopped`; blocks until then.

        Raises:
            ClientError: the broker can't be read.
        """
        buffer = RowBuffer(self._category)
        for partition, after in places.items():
            to = self._targets[partition]
            part = Range(partition, after, to, self._reader.locator.distance(partition, after, to))
            with closing(self._reader.read(part)) as pieces:
                for piece in pieces:
                    buffer.add(piece)
                    if piece.read_to < to and (is_full(buffer) or is_stopped()):
                        return buffer
            # Positions after the last event may hold deletions and the like, which streams do not deliver.
            buffer.ended.add(partition)
            if is_full(buffer) or is_stopped():
                break
        return buffer


def time_of(event: bytes, category: str, now: datetime) -> datetime:
    """The time at which the broker received an event, otherwise its own time, otherwise now; in UTC."""
    try:
        # Near the first and the last day of all years there may be none in UTC.
        found = None if category == CATEGORY_WITHOUT_METADATA else received_or_occurred(event)
        return (found or now).astimezone(UTC)
    except OverflowError:
        return now
