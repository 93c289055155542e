"""Event types, their users, their timelines, and subscriptions with their lag."""

import random
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import TypeVar

import msgspec

from rioni.cli.doctor.model import Site, source
from rioni.client import errors
from rioni.domain.subscriptions.dead_letters import policy_of
from rioni.wire.access import Attribute
from rioni.wire.event_types import EventType
from rioni.wire.subscriptions import Subscription, SubscriptionStatistics


EVENT_TYPES_MAX = 200
"""The most event types that are examined one by one; of more, these are chosen at random."""
LISTED_MAX = 1_000
"""The most subscriptions that are listed."""
SUBSCRIPTIONS_MAX = 200
"""The most subscriptions that are examined one by one; of more, these are chosen at random."""
LAGGING_MAX = 50
"""The most lagging subscriptions whose age of the lag is asked for, which reads an event of each partition."""
UNUSED_DAYS = 30
RESERVE_S = 2.0
"""Seconds left until the deadline at which examining one resource after the other ends."""
EVERYBODY = Attribute("*", "*")
OWN = "nakadi."
"""The prefix of the names of the broker's own event types."""

T = TypeVar("T")


class EventTypeFacts(msgspec.Struct, frozen=True):
    """The facts about an event type that checks need."""

    name: str
    owner: str
    created_at: datetime | None
    authorization: bool
    """Whether it has such a section."""
    open_to: list[str]
    """The lists that include everybody: `admins`, `writers`."""
    retention_ms: int | None

    @property
    def own(self) -> bool:
        """Whether it is one of the broker's own."""
        return self.name.startswith(OWN)


class Unused(msgspec.Struct, frozen=True):
    """Event types that nobody uses."""

    names: list[str]
    days: int
    """The days for which they were not used."""


class Overdue(msgspec.Struct, frozen=True):
    """A timeline that still has events although it should have been cleaned up."""

    event_type: str
    order: int
    due_at: datetime


class Overdues(msgspec.Struct, frozen=True):
    """All overdue timelines."""

    timelines: list[Overdue]
    partial: str = ""


class Lag(msgspec.Struct, frozen=True):
    """The lag of a subscription in a partition."""

    event_type: str
    partition: str
    streamed: bool
    """Whether a stream reads it."""
    unconsumed: int | None
    """Unconsumed events; if it was never streamed, those from where it would begin; None if that was not asked for."""
    growth: int | None = None
    """The growth between the two polls; None if it was polled once."""
    lag_s: int | None = None
    """Age of the first unconsumed event."""
    error: str = ""
    """The error of the cursor; empty if the cursor is valid."""


class SubscriptionFacts(msgspec.Struct, frozen=True):
    """The facts about a subscription that checks need."""

    id: str
    owner: str
    group: str
    created_at: datetime | None
    lags: list[Lag]
    dead_letter_at: datetime | None = None
    """When the oldest dead letter that was not redriven was kept; None if there is none, or it may not be seen."""
    never_streamed: bool = False

    def __str__(self) -> str:
        return f"{self.id} ({self.owner}, {self.group})"


class Subscriptions(msgspec.Struct, frozen=True):
    """Subscriptions with their lag."""

    items: list[SubscriptionFacts]
    seconds: float = 0.0
    """Seconds between the two polls of the lag."""
    partial: str = ""


@source
def event_types(site: Site) -> list[EventTypeFacts]:
    """List all event types."""
    return [facts_of(each) for each in site.client.event_types.list()]


def facts_of(event_type: EventType) -> EventTypeFacts:
    """Return the facts about an event type that checks need."""
    section = event_type.authorization
    lists = {"admins": section.admins, "writers": section.writers} if section else {}
    return EventTypeFacts(
        event_type.name,
        event_type.owning_application,
        event_type.created_at,
        section is not None,
        [name for name, attributes in lists.items() if EVERYBODY in attributes],
        event_type.options.retention_time,
    )


@source
def unused(site: Site) -> Unused:
    """Ask which event types nobody has used; the number of them first, as other servers ignore the filter of lists."""
    count = site.client.event_types.facets(unused_days=UNUSED_DAYS).unused
    listed = site.client.event_types.list(unused_days=UNUSED_DAYS) if count is not None and count.count else []
    return Unused([each.name for each in listed], UNUSED_DAYS)


@source
def overdue_timelines(site: Site, event_types: list[EventTypeFacts]) -> Overdues:
    """Look for timelines whose events should be gone; of many event types, some that are chosen at random."""
    found, looked_at = [], 0
    for each in _in_time(site, _chosen(event_types, EVENT_TYPES_MAX)):
        looked_at += 1
        try:
            found += _overdue(site, each.name)
        except errors.NotFound:
            continue
    return Overdues(found, _partial(looked_at, len(event_types), "event types"))


def _overdue(site: Site, name: str) -> list[Overdue]:
    now = datetime.now(UTC)
    # For a timeline that was not cleaned up, the broker reports when that is due.
    due = {
        each.order: each.cleaned_up_at
        for each in site.client.timelines.list(name)
        if each.cleaned_up_at is not None and each.cleaned_up_at < now
    }
    if not due:
        return []
    offsets = [each.oldest_available_offset for each in site.client.partitions.list(name)]
    orders = {int(offset.split("-")[1]) for offset in offsets if offset.count("-") > 1}
    return [Overdue(name, order, due[order]) for order in sorted(orders & due.keys())]


@source
def subscriptions(site: Site) -> Subscriptions:
    """Poll the lag of subscriptions, and once more of those that lag; of many, some that are chosen at random."""
    began = datetime.now(UTC)
    listed = list(islice(site.client.subscriptions.list(), LISTED_MAX))
    statistics: dict[str, list[SubscriptionStatistics]] = {}
    chosen = _chosen(listed, SUBSCRIPTIONS_MAX)
    for each in _in_time(site, chosen, site.scope.interval_s):
        if (found := _stats(site, each.id)) is not None:
            statistics[each.id] = found
    lagging = [name for name, found in statistics.items() if _lags(found) or _never_streamed(found)][:LAGGING_MAX]
    if lagging:
        site.pause()
    seconds = (datetime.now(UTC) - began).total_seconds()
    later = {name: _stats(site, name, again=True) for name in _in_time(site, lagging)}
    kept = [each.id for each in chosen if (policy := policy_of(each.annotations)) and policy.keeps]
    dead_letters = {name: _dead_letter(site, name) for name in _in_time(site, kept[:LAGGING_MAX])}
    items = [
        _subscription(each, statistics[each.id], later.get(each.id), dead_letters.get(each.id))
        for each in chosen
        if each.id in statistics
    ]
    what = "subscriptions" if len(listed) < LISTED_MAX else "subscriptions or more"
    return Subscriptions(items, seconds, _partial(len(items), len(listed), what))


def _stats(site: Site, subscription_id: str, *, again: bool = False) -> list[SubscriptionStatistics] | None:
    """The statistics; at the second poll with ages, and with the lag of subscriptions that were never streamed."""
    try:
        return list(site.client.subscriptions.stats(subscription_id, show_time_lag=again, show_initial_lag=again))
    except errors.NotFound:
        return None


def _dead_letter(site: Site, subscription_id: str) -> datetime | None:
    """When the oldest dead letter that was not redriven was kept; the event itself is not read."""
    try:
        letters = site.client.subscriptions.dead_letters(subscription_id, limit=1, only_open=True)
    except (errors.NotFound, errors.Forbidden):
        return None
    return letters[0].kept_at or datetime.fromtimestamp(0, UTC) if letters else None


def _lags(statistics: Iterable[SubscriptionStatistics]) -> bool:
    return any(partition.unconsumed_events for each in statistics for partition in each.partitions)


def _never_streamed(statistics: Iterable[SubscriptionStatistics]) -> bool:
    """Whether a subscription has no cursors yet, by its statistics without the initial lag."""
    partitions = [partition for each in statistics for partition in each.partitions]
    return bool(partitions) and all(
        each.unconsumed_events is None and not each.stream_id and not each.cursor_error for each in partitions
    )


def _subscription(
    subscription: Subscription,
    first: list[SubscriptionStatistics],
    second: list[SubscriptionStatistics] | None,
    dead_letter_at: datetime | None,
) -> SubscriptionFacts:
    before = {
        (each.event_type, partition.partition): partition.unconsumed_events
        for each in first
        for partition in each.partitions
    }
    lags = []
    for each in second or first:
        for partition in each.partitions:
            unconsumed, earlier = partition.unconsumed_events, before.get((each.event_type, partition.partition))
            growth = None
            if second is not None and unconsumed is not None and earlier is not None:
                growth = unconsumed - earlier
            lags.append(
                Lag(
                    each.event_type,
                    partition.partition,
                    bool(partition.stream_id),
                    unconsumed,
                    growth,
                    partition.consumer_lag_seconds,
                    partition.cursor_error or "",
                )
            )
    return SubscriptionFacts(
        subscription.id,
        subscription.owning_application,
        subscription.consumer_group,
        subscription.created_at,
        lags,
        dead_letter_at,
        _never_streamed(first),
    )


def _chosen(items: list[T], most: int) -> list[T]:
    return items if len(items) <= most else random.sample(items, most)


def _in_time(site: Site, items: Iterable[T], reserve_s: float = 0.0) -> Iterator[T]:
    """The items, one after the other, until the time is nearly over."""
    for item in items:
        if site.deadline.left_s < RESERVE_S + reserve_s:
            return
        yield item


def _partial(looked_at: int, total: int, what: str) -> str:
    return "" if looked_at >= total else f"looked at {looked_at:,} of {total:,} {what}, others each time"
