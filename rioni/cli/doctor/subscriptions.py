"""Subscriptions: the lag of consumers, their streams, cursors and dead letters."""

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice

import msgspec

from rioni.cli.doctor.diagnosis import ERROR, DoctorFinding, Site, check, error, listed, source, warning
from rioni.cli.doctor.registry import EventTypeFacts, in_time, partial, sample
from rioni.client import errors
from rioni.domain.subscriptions.dead_letters import policy_of
from rioni.wire.subscriptions import Subscription, SubscriptionStatistics


# --- Facts about subscriptions ---

LISTED_MAX = 1_000
"""The most subscriptions that are listed."""
SUBSCRIPTIONS_MAX = 200
"""The most subscriptions that are examined one by one; of more, these are chosen at random."""
LAGGING_MAX = 50
"""The most lagging subscriptions whose age of the lag is asked for, which reads an event of each partition."""


class SubscriptionLag(msgspec.Struct, frozen=True):
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
    lags: list[SubscriptionLag]
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
def subscriptions(site: Site) -> Subscriptions:
    """Poll the lag of subscriptions, and once more of those that lag; of many, some that are chosen at random."""
    began = datetime.now(UTC)
    known = list(islice(site.client.subscriptions.list(), LISTED_MAX))
    statistics: dict[str, list[SubscriptionStatistics]] = {}
    chosen = sample(known, SUBSCRIPTIONS_MAX)
    for each in in_time(site, chosen, site.scope.interval_s):
        if (found := _stats(site, each.id)) is not None:
            statistics[each.id] = found
    lagging = [name for name, found in statistics.items() if _lags(found) or _never_streamed(found)][:LAGGING_MAX]
    if lagging:
        site.pause()
    seconds = (datetime.now(UTC) - began).total_seconds()
    later = {name: _stats(site, name, again=True) for name in in_time(site, lagging)}
    kept = [each.id for each in chosen if (policy := policy_of(each.annotations)) and policy.keeps]
    dead_letters = {name: _dead_letter(site, name) for name in in_time(site, kept[:LAGGING_MAX])}
    items = [
        _subscription(each, statistics[each.id], later.get(each.id), dead_letters.get(each.id))
        for each in chosen
        if each.id in statistics
    ]
    what = "subscriptions" if len(known) < LISTED_MAX else "subscriptions or more"
    return Subscriptions(items, seconds, partial(len(items), len(known), what))


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
        for each in (first if second is not None else ())
        for partition in each.partitions
    }
    lags = []
    for each in second or first:
        for partition in each.partitions:
            unconsumed, earlier = partition.unconsumed_events, before.get((each.event_type, partition.partition))
            lags.append(
                SubscriptionLag(
                    each.event_type,
                    partition.partition,
                    bool(partition.stream_id),
                    unconsumed,
                    None if unconsumed is None or earlier is None else unconsumed - earlier,
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


# --- Checks of subscriptions: their lag, streams, cursors and dead letters ---

GROUP = "Consumers"
RETENTION_RATIO = 0.5
"""A fraction of the retention time: events older than that are soon lost for a consumer that has not read them."""
LATE_S = 600
"""A consumer is too slow if it lags by more than this, and its lag grows."""
WITHOUT_STREAMS_S = 3_600
"""Consumers that are deployed come back sooner."""
NEVER_AFTER_S = 7 * 86_400
_START = "Start its consumer, or delete the subscription if nobody needs it."


def _lagging(
    subscriptions: Subscriptions, lags: Callable[[SubscriptionLag], bool]
) -> Iterator[tuple[SubscriptionFacts, list[SubscriptionLag]]]:
    """The subscriptions that have such lags, with these."""
    for each in subscriptions.items:
        if found := list(filter(lags, each.lags)):
            yield each, found


def _never_streamed_for(subscriptions: Subscriptions, seconds: int) -> list[SubscriptionFacts]:
    before = datetime.now(UTC) - timedelta(seconds=seconds)
    return [
        each for each in subscriptions.items if each.never_streamed and each.created_at and each.created_at < before
    ]


def _event_types(lags: Iterable[SubscriptionLag]) -> str:
    return listed(sorted({each.event_type for each in lags}))


def _events(lags: Iterable[SubscriptionLag]) -> str:
    return f"{sum(each.unconsumed or 0 for each in lags):,} events"


def _age(lags: Iterable[SubscriptionLag]) -> str:
    return duration(max(each.lag_s or 0 for each in lags))


def duration(seconds: float) -> str:
    """A time in words, such as `36 hours`."""
    for size, unit in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= size * 2:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:,.0f} seconds"


@check(GROUP, ERROR)
def cursors(subscriptions: Subscriptions) -> Iterator[DoctorFinding]:
    """Whether committed cursors lie beyond the end of their partition, so that nothing is delivered."""
    for each, (lag, *_) in _lagging(subscriptions, lambda lag: bool(lag.error)):
        yield error(
            f"Subscription {each} gets nothing of {lag.event_type}, partition {lag.partition}: {lag.error}",
            "Reset its cursors: PATCH /subscriptions/ID/cursors, docs/operating/backup.md#cursors-beyond-the-end",
        )


@check(GROUP)
def expiring_lag(subscriptions: Subscriptions, event_types: list[EventTypeFacts]) -> Iterator[DoctorFinding]:
    """Whether consumers lag so far that retention is about to remove events that they have not read."""
    limits_s = {each.name: each.retention_ms / 1_000 for each in event_types if each.retention_ms}
    never = float("inf")
    for each, lags in _lagging(
        subscriptions, lambda lag: (lag.lag_s or 0) > RETENTION_RATIO * limits_s.get(lag.event_type, never)
    ):
        lag = max(lags, key=lambda lag: lag.lag_s or 0)
        yield warning(
            f"Subscription {each} is {_age([lag])} behind on {lag.event_type}, whose events are kept for "
            f"{duration(limits_s[lag.event_type])}.",
            "Add consumers, raise the retention time, or delete the subscription if nobody needs it.",
        )


@check(GROUP)
def growing_lag(subscriptions: Subscriptions) -> Iterator[DoctorFinding]:
    """Whether the lag of consumers that stream keeps growing."""
    for each, lags in _lagging(
        subscriptions, lambda lag: lag.streamed and (lag.growth or 0) > 0 and (lag.lag_s or 0) > LATE_S
    ):
        yield warning(
            f"Subscription {each} is {_age(lags)} behind, and had {sum(lag.growth or 0 for lag in lags):,} more events "
            f"to read after {subscriptions.seconds:.0f} s.",
            "Add consumers, up to one for each partition, or more partitions: docs/reference/timelines.md",
        )


@check(GROUP)
def without_streams(subscriptions: Subscriptions) -> Iterator[DoctorFinding]:
    """Whether subscriptions have unread events for an hour that no stream reads."""
    for each, lags in _lagging(
        subscriptions, lambda lag: not lag.streamed and bool(lag.unconsumed) and (lag.lag_s or 0) > WITHOUT_STREAMS_S
    ):
        if not each.never_streamed:
            text = f"No stream of subscription {each} reads {_event_types(lags)}: {_events(lags)} wait for up to"
            yield warning(f"{text} {_age(lags)}.", _START)


@check(GROUP)
def never_streamed(subscriptions: Subscriptions) -> Iterator[DoctorFinding]:
    """Whether events wait for subscriptions older than an hour that were never streamed."""
    for each in _never_streamed_for(subscriptions, WITHOUT_STREAMS_S):
        if lags := [lag for lag in each.lags if lag.unconsumed]:
            text = f"Subscription {each} was never streamed: {_events(lags)} of {_event_types(lags)} wait for up to"
            yield warning(f"{text} {_age(lags)}.", _START)


@check(GROUP)
def unused_subscriptions(subscriptions: Subscriptions) -> Iterator[DoctorFinding]:
    """Whether subscriptions older than a week were never streamed."""
    if unused := _never_streamed_for(subscriptions, NEVER_AFTER_S):
        yield warning(
            f"{len(unused):,} subscriptions were never streamed: {listed([str(each) for each in unused])}.",
            "Ask their owners whether they can be deleted.",
        )


@check(GROUP)
def dead_letters(subscriptions: Subscriptions) -> Iterator[DoctorFinding]:
    """Whether dead letters wait to be examined."""
    for each in subscriptions.items:
        if each.dead_letter_at is not None:
            yield warning(
                f"Subscription {each} has dead letters, the first one since {each.dead_letter_at:%Y-%m-%d %H:%M} UTC.",
                f"rioni dead-letters list {each.id}; docs/concepts/dead-letters.md",
            )
