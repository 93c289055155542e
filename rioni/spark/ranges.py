"""Splits what is to be read into ranges, one for each task."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from pyspark.sql.datasource import InputPartition

from rioni.domain.timelines.position import TimelinePosition
from rioni.spark.places import Locator, Places


@dataclass(frozen=True)
class Range(InputPartition):
    """Events of one partition: behind `after`, up to and including `to`."""

    event_type: str
    partition: str
    after: TimelinePosition
    to: TimelinePosition
    count: int
    """Positions in between; there may be fewer events."""
    created_at: str
    """When the event type was created: tells it from another one that gets its name while the range is read."""


def split(
    locator: Locator, starts: Places, ends: Places, identities: Mapping[str, str], events_max: int
) -> Iterator[Range]:
    """Split what lies between two places of each partition that has both.

    Args:
        locator: finds places.
        starts: the last places read.
        ends: the last places to be read.
        identities: when each event type was created.
        events_max: positions of a range at most.
    """
    for name, partitions in ends.items():
        for partition, to in partitions.items():
            after = starts.get(name, {}).get(partition)
            if after is not None and after < to:
                yield from _split(locator, Range(name, partition, after, to, 0, identities[name]), events_max)


def _split(locator: Locator, whole: Range, events_max: int) -> Iterator[Range]:
    name, partition = whole.event_type, whole.partition
    total = locator.broker.distance(name, partition, whole.after, whole.to)
    if total <= 0:
        return
    shifts = list(range(events_max, total, events_max))
    borders = [whole.after, *locator.shifted(name, partition, whole.after, shifts), whole.to]
    for number, (after, to) in enumerate(pairwise(borders)):
        yield Range(name, partition, after, to, min(events_max, total - number * events_max), whole.created_at)
