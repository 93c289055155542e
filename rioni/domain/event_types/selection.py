"""Selects event types by what a client asks for, and counts them by their members."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from operator import attrgetter

import msgspec

from rioni.domain.access.authorization import Attribute
from rioni.domain.event_types.event_type import EventType


# --- Selects event types by the filters of a request (reference event-types#list-filters) ---

Check = Callable[[EventType], bool]


class EventTypeFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of event types: one matches if all of these conditions hold."""

    name: str | None = None
    """`*` matches any text."""
    owning_application: str | None = None
    category: str | None = None
    cleanup_policy: str | None = None
    attributes: tuple[tuple[str, Attribute], ...] = ()
    """Pairs of `admins`, `readers` or `writers` and the attribute that this list must name explicitly; wildcards do not
    count."""
    annotations: tuple[tuple[str, str | None], ...] = ()
    """Keys and their values; None for any value."""
    labels: tuple[tuple[str, str | None], ...] = ()


EVERYTHING = EventTypeFilter()


def matcher(wanted: EventTypeFilter) -> Check:
    """Whether an event type matches. PERF: about 1 µs."""
    checks = [*_checks(wanted)]
    return lambda event_type: all(check(event_type) for check in checks)


def page(
    event_types: Iterable[EventType], wanted: EventTypeFilter, offset: int = 0, limit: int | None = None
) -> tuple[list[str], bool]:
    """The names of the event types that match, in order, and whether there are more after the page.

    PERF: 3 ms for 10,000 event types, and 1 µs for each that is checked: call it in a thread pool.
    """
    by_name = sorted(event_types, key=attrgetter("name"))
    end = None if limit is None else offset + limit + 1
    found = [each.name for each in islice(filter(matcher(wanted), by_name), offset, end)]
    return found[:limit], limit is not None and len(found) > limit


def _checks(wanted: EventTypeFilter) -> Iterator[Check]:
    for member in ("owning_application", "category", "cleanup_policy"):
        if (value := getattr(wanted, member)) is not None:
            yield partial(_is, member, value)
    if wanted.name is not None:
        yield partial(_is_called, wanted.name.split("*"))
    yield from (partial(_lists, list_, attribute) for list_, attribute in wanted.attributes)
    yield from (partial(_has, "annotations", *each) for each in wanted.annotations)
    yield from (partial(_has, "labels", *each) for each in wanted.labels)


def _is(member: str, value: str, event_type: EventType) -> bool:
    return bool(getattr(event_type, member) == value)


def _is_called(pieces: Sequence[str], event_type: EventType) -> bool:
    """Whether the name consists of these pieces, with any text between them.

    Each piece is looked for once, at the first place that it has: no pattern takes more than linear time.
    """
    name = event_type.name
    if len(pieces) == 1:
        return name == pieces[0]
    first, *middle, last = pieces
    if not name.startswith(first) or not name.endswith(last) or len(name) < len(first) + len(last):
        return False
    at, end = len(first), len(name) - len(last)
    for piece in middle:
        at = name.find(piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return True


def _lists(list_: str, attribute: Attribute, event_type: EventType) -> bool:
    return event_type.authorization is not None and attribute in getattr(event_type.authorization, list_)


def _has(member: str, key: str, value: str | None, event_type: EventType) -> bool:
    texts: Mapping[str, str] = getattr(event_type, member)
    return key in texts and value in (None, texts[key])


# --- Counts event types by owner, category, clean-up policy and label (reference event-types#facets) ---


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
