"""Counts event types by owner, category, clean-up policy and label (reference event-types#facets)."""

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from rioni.domain.event_types.event_type import EventType


class Count(msgspec.Struct, frozen=True):
    """How many event types have a value."""

    value: str
    count: int


class Facet(msgspec.Struct, frozen=True):
    """The values of a member, the most frequent ones first, then by name."""

    values: tuple[Count, ...]
    distinct: int
    """How many values there are, which may be more than are listed."""


def facets_of(event_types: Sequence[EventType], values_max: int) -> Mapping[str, Facet]:
    """The facets by name.

    PERF: 15 ms for 10,000 event types with two labels each: call it in a thread pool.

    Args:
        event_types: to count.
        values_max: how many values of a facet are listed.
    """
    counters = {
        "owning_application": Counter(each.owning_application for each in event_types),
        "category": Counter(each.category for each in event_types),
        "cleanup_policy": Counter(each.cleanup_policy for each in event_types),
        "label": Counter(f"{key}:{value}" for each in event_types for key, value in each.labels.items()),
    }
    return {name: _facet(counter, values_max) for name, counter in counters.items()}


def _facet(counter: Counter[str], values_max: int) -> Facet:
    by_frequency = sorted(counter.items(), key=lambda pair: (-pair[1], pair[0]))
    return Facet(tuple(Count(*pair) for pair in by_frequency[:values_max]), len(counter))
