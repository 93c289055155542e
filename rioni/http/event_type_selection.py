"""Selects the event types that a request asks about, by the filters of its query string."""

from collections.abc import Iterable, Sequence

import falcon

from rioni.domain.errors import Malformed
from rioni.domain.event_types.event_type import EventType
from rioni.domain.event_types.filters import EventTypeFilter
from rioni.domain.event_types.rules import CATEGORIES, CLEANUP_POLICIES
from rioni.domain.subscriptions.activity import DAY_MS, RETENTION_DAYS
from rioni.domain.system.unused_event_types import unused
from rioni.domain.timestamps import rfc3339
from rioni.http.dependencies import Dependencies
from rioni.http.history import AS_OF
from rioni.http.request_parsing import attribute, integer_within, listed


UNUSED_DAYS = "unused_days"


def filter_from(req: falcon.Request) -> EventTypeFilter:
    """The filters of a query string, except `unused_days`.

    Raises:
        Malformed: a value is none of those that there are, or no attribute.
    """
    attributes = [(f"{each}s", attribute(req, each)) for each in ("admin", "reader", "writer")]
    return EventTypeFilter(
        name=req.get_param("name"),
        owning_application=req.get_param("owning_application"),
        category=_one_of(req, "category", CATEGORIES),
        cleanup_policy=_one_of(req, "cleanup_policy", CLEANUP_POLICIES),
        attributes=tuple((list_, listed) for list_, listed in attributes if listed is not None),
        # Other than names and labels the value of an annotation may contain commas.
        annotations=_pairs(req.get_param_as_list("annotation") or ()),
        labels=_pairs(listed(req, "label")),
    )


def unused_days_from(req: falcon.Request) -> int | None:
    """For how many days event types must be unused to be selected; None if they need not be.

    Raises:
        Malformed: it is no number, or out of range, or the request asks about the past.
    """
    if req.get_param(UNUSED_DAYS) is None:
        return None
    if req.get_param(AS_OF) is not None:
        raise Malformed(f"{UNUSED_DAYS} can't be combined with {AS_OF}: when clients were active is not in the log")
    return integer_within(req, UNUSED_DAYS, 0, 1, RETENTION_DAYS)


def unused_for(days: int, event_types: Sequence[EventType], dependencies: Dependencies) -> list[EventType]:
    """Those of some event types that were not used for so many days; blocks on the disk.

    Raises:
        Unavailable: what clients did can't be read.
    """
    active = dependencies.activity.active_within(days)
    before = rfc3339(dependencies.clock.now_ms() - days * DAY_MS)
    return dependencies.compute_pool(unused, event_types, dependencies.registry.subscriptions(), active, before)


def _one_of(req: falcon.Request, name: str, literals: Sequence[str]) -> str | None:
    text = req.get_param(name)
    if text is not None and text.lower() not in literals:
        raise Malformed(f"Illegal enum value: '{text}'. Possible values: [{', '.join(literals)}]")
    return text and text.lower()


def _pairs(texts: Iterable[str]) -> tuple[tuple[str, str | None], ...]:
    """Keys with their values, `key:value`, or without."""
    parts = [text.partition(":") for text in texts]
    return tuple((key, value if colon else None) for key, colon, value in parts)
