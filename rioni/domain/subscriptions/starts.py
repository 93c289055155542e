"""Where a subscription that was never streamed starts, as long as it has no cursors of its own; pure.

Source: reference subscriptions#initialisation.
"""

from collections.abc import Mapping, Sequence

from rioni.domain.subscriptions.cursor_arithmetic import OffsetRanges, begin
from rioni.domain.subscriptions.subscription import Subscription
from rioni.domain.timelines.position import EventTypePartition, TimelinePosition, parse_offset
from rioni.domain.timelines.timeline import FIRST_ORDER


def start_places(
    subscription: Subscription, ranges: Mapping[str, Sequence[OffsetRanges]]
) -> dict[EventTypePartition, TimelinePosition]:
    """The places behind which it would begin to read now.

    Args:
        subscription: what it asks for counts.
        ranges: what the partitions of event types hold, by number; of others nothing is said.
    """
    found = {}
    for name, of_partitions in ranges.items():
        for number, each in enumerate(of_partitions):
            last = TimelinePosition(each[-1].order, each[-1].newest)
            found[EventTypePartition(name, str(number))] = last if subscription.read_from == "end" else begin(each)
    if subscription.read_from == "cursors":
        for cursor in subscription.initial_cursors:
            key = EventTypePartition(cursor.event_type, cursor.partition)
            given = parse_offset(cursor.offset, partition=cursor.partition, oldest_order=FIRST_ORDER)
            if given is not None and key in found:
                found[key] = given
    return found


def start_offsets(
    subscription: Subscription, event_type: str, ranges: Sequence[OffsetRanges]
) -> dict[EventTypePartition, str]:
    """The same for one event type, as offsets."""
    return {key: place.offset for key, place in start_places(subscription, {event_type: ranges}).items()}
