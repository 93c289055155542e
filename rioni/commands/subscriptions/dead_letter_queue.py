"""The queue of dead letters: stores events that consumers never commit, and reads them.

Source: reference streams#dead-letter-handling.
"""

from collections.abc import Iterator, Sequence
from uuid import UUID

import msgspec

from rioni.commands.system.system_events import SystemEventPublisher, SystemEventTypes
from rioni.domain.access.authorization import Attribute
from rioni.domain.errors import InvalidCursor, UnavailableCursor
from rioni.domain.ports.event_store import Chunk
from rioni.domain.ports.host import Clock
from rioni.domain.streaming.batching import Slice, Visibility
from rioni.domain.subscriptions.dead_letters import DeadLetter
from rioni.domain.system.system_events import DEAD_LETTER_QUEUE, SystemEvent, derived_eid
from rioni.domain.timelines.position import (
    BEFORE_FIRST,
    Cursor,
    EventTypePartition,
    TimelinePosition,
    parse_offset,
    partition_number,
)
from rioni.domain.timelines.timeline import FIRST_ORDER, Timelines
from rioni.domain.timestamps import rfc3339


class KeptDeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter in the queue."""

    letter: DeadLetter
    kept_at_ms: int
    owner: Attribute | None
    """The owner of the event; None if it has none."""
    queue_partition: int
    queue_position: TimelinePosition
    redriven: bool | None = None
    """Whether it was published again within the idempotency window; None if that was not requested."""

    @property
    def cursor(self) -> Cursor:
        """The place of the dead letter in the queue."""
        return Cursor(partition=str(self.queue_partition), offset=self.queue_position.offset)


class DeadLetterQueue:
    """Writes to the dead letter queue; blocks on event stores."""

    def __init__(self, system_event_types: SystemEventTypes, publisher: SystemEventPublisher, clock: Clock) -> None:
        self._system_event_types, self._publisher, self._clock = system_event_types, publisher, clock

    def keep(
        self, subscription_id: str, partition: EventTypePartition, event: Slice, sent: int, reason: str = ""
    ) -> None:
        """Store an event in the queue durably, once.

        Args:
            subscription_id: the subscription whose consumers do not commit it.
            partition: the partition of the event.
            event: a range of this event alone.
            sent: how often it was sent without being committed.
            reason: why its consumer could not process it; empty if it gave no reason.

        Raises:
            RioniError: it can't be stored now.
        """
        self._system_event_types.ensure_one(DEAD_LETTER_QUEUE)
        letter = DeadLetter(
            subscription_id=subscription_id,
            event_type=partition.event_type,
            partition=partition.partition,
            offset=event.last.offset,
            error={
                "message": f"The event was sent {sent} times without being committed",
                **({"reason": reason} if reason else {}),
            },
            event=msgspec.Raw(event.chunk.cut(event.start, event.stop)),
        )
        kept = SystemEvent(
            eid=derived_eid(UUID(subscription_id), f"dead-letter:{letter.name}"),
            occurred_at=rfc3339(self._clock.now_ms()),
            flow_id="",
            members=msgspec.structs.asdict(letter),
        )
        self._publisher.publish(DEAD_LETTER_QUEUE, [kept], name=letter.name, owner=_owner(event.chunk, event.start))


def letters_in(
    chunks: Sequence[Chunk], subscription_id: str, visibility: Visibility, partition: int, begin: TimelinePosition
) -> Iterator[KeptDeadLetter]:
    """The dead letters of a subscription in chunks of a partition of the queue, from a place on in the first chunk.

    Those that were stored together are in one chunk.
    """
    order, first = begin.order, begin.position
    # PERF: most of the queue belongs to other subscriptions, and is not even decoded.
    mark = subscription_id.encode()
    for chunk in chunks:
        ranges = visibility.ranges(chunk, first)
        for start, stop in [(max(first, chunk.first), chunk.next)] if ranges is None else ranges:
            for position in range(start, stop):
                event = chunk.cut(position, position + 1)
                if mark in event and (letter := _decode(event)).subscription_id == subscription_id:
                    yield KeptDeadLetter(
                        letter=letter,
                        kept_at_ms=chunk.recorded_at_ms,
                        owner=_owner(chunk, position),
                        queue_partition=partition,
                        queue_position=TimelinePosition(order, position),
                    )


def places_behind(
    timelines: Timelines, after: Cursor | None, ends: Sequence[TimelinePosition]
) -> Iterator[tuple[int, TimelinePosition]]:
    """The partitions of the queue from a place in it on, with the start of reading in each; raises InvalidCursor."""
    count, first = timelines.active.partitions, 0
    begin = TimelinePosition(timelines.readable[0].order, BEFORE_FIRST)
    if after is not None:
        number = partition_number(after.partition, count)
        if number is None:
            raise InvalidCursor(f"non existing partition {after.partition}")
        place = parse_offset(after.offset, partition=after.partition, oldest_order=FIRST_ORDER) or begin
        if timelines.is_beyond_end(place, ends[number]):
            raise UnavailableCursor(DEAD_LETTER_QUEUE, after.partition, str(place.position), end=ends[number].offset)
        yield number, place
        first = number + 1
    yield from ((number, begin) for number in range(first, count))


def _owner(chunk: Chunk, position: int) -> Attribute | None:
    return chunk.headers[position - chunk.first].owner if chunk.headers else None


_decode = msgspec.json.Decoder(DeadLetter).decode
