"""Checks of subscriptions: their lag, streams, cursors and dead letters."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from rioni.cli.doctor.checks.administration import listed
from rioni.cli.doctor.facts.registry import EventTypeFacts, Lag, Subscriptions
from rioni.cli.doctor.model import ERROR, Finding, check, error, warning


GROUP = "Consumers"
RETENTION_RATIO = 0.5
"""Of the retention time: events older than that are soon lost for a consumer that has not read them."""
LATE_S = 600
"""A consumer that is further behind, and falls back, is too slow."""
WITHOUT_STREAMS_S = 3_600
"""Consumers that are deployed come back sooner."""
NEVER_AFTER = timedelta(days=7)


@check(GROUP, ERROR)
def cursors(subscriptions: Subscriptions) -> Iterator[Finding]:
    """Whether committed cursors lie behind the end of their partition, so that nothing is delivered."""
    for each in [each for each in subscriptions.items if any(lag.error for lag in each.lags)]:
        broken = next(lag for lag in each.lags if lag.error)
        yield error(
            f"Subscription {each} gets nothing of {broken.event_type}, partition {broken.partition}: {broken.error}",
            "Reset its cursors: PATCH /subscriptions/ID/cursors, docs/operating/backup.md#cursors-beyond-the-end",
        )


@check(GROUP)
def expiring_lag(subscriptions: Subscriptions, event_types: list[EventTypeFacts]) -> Iterator[Finding]:
    """Whether consumers are so far behind that retention is about to remove what they have not read."""
    limits_s = {each.name: each.retention_ms / 1_000 for each in event_types if each.retention_ms}

    def expires(lag: Lag) -> bool:
        limit_s = limits_s.get(lag.event_type)
        return limit_s is not None and lag.lag_s is not None and lag.lag_s > RETENTION_RATIO * limit_s

    for each in [each for each in subscriptions.items if any(map(expires, each.lags))]:
        lag = max(filter(expires, each.lags), key=lambda lag: lag.lag_s or 0)
        yield warning(
            f"Subscription {each} is {_duration(lag.lag_s)} behind on {lag.event_type}, whose events are kept for "
            f"{_duration(limits_s[lag.event_type])}.",
            "Add consumers, raise the retention time, or delete the subscription if nobody needs it.",
        )


@check(GROUP)
def growing_lag(subscriptions: Subscriptions) -> Iterator[Finding]:
    """Whether consumers that stream fall further behind."""

    def grows(lag: Lag) -> bool:
        return lag.streamed and (lag.growth or 0) > 0 and (lag.lag_s or 0) > LATE_S

    for each in [each for each in subscriptions.items if any(map(grows, each.lags))]:
        growing = [lag for lag in each.lags if grows(lag)]
        yield warning(
            f"Subscription {each} is {_duration(max(lag.lag_s or 0 for lag in growing))} behind, and had "
            f"{sum(lag.growth or 0 for lag in growing):,} more events to read after {subscriptions.seconds:.0f} s.",
            "Add consumers, up to one for each partition, or more partitions: docs/reference/timelines.md",
        )


@check(GROUP)
def without_streams(subscriptions: Subscriptions) -> Iterator[Finding]:
    """Whether subscriptions have unread events for an hour that no stream reads."""

    def waits(lag: Lag) -> bool:
        return not lag.streamed and bool(lag.unconsumed) and (lag.lag_s or 0) > WITHOUT_STREAMS_S

    for each in [each for each in subscriptions.items if any(map(waits, each.lags)) and not each.never_streamed]:
        waiting = [lag for lag in each.lags if waits(lag)]
        yield warning(
            f"No stream of subscription {each} reads {listed(sorted({lag.event_type for lag in waiting}))}: "
            f"{sum(lag.unconsumed or 0 for lag in waiting):,} events wait for up to "
            f"{_duration(max(lag.lag_s or 0 for lag in waiting))}.",
            "Start its consumer, or delete the subscription if nobody needs it.",
        )


@check(GROUP)
def never_streamed(subscriptions: Subscriptions) -> Iterator[Finding]:
    """Whether events wait for subscriptions older than an hour that were never streamed."""
    before = datetime.now(UTC) - timedelta(seconds=WITHOUT_STREAMS_S)
    for each in subscriptions.items:
        waiting = [lag for lag in each.lags if lag.unconsumed]
        if each.never_streamed and waiting and each.created_at is not None and each.created_at < before:
            yield warning(
                f"Subscription {each} was never streamed: {sum(lag.unconsumed or 0 for lag in waiting):,} events of "
                f"{listed(sorted({lag.event_type for lag in waiting}))} wait for up to "
                f"{_duration(max(lag.lag_s or 0 for lag in waiting))}.",
                "Start its consumer, or delete the subscription if nobody needs it.",
            )


@check(GROUP)
def unused_subscriptions(subscriptions: Subscriptions) -> Iterator[Finding]:
    """Whether subscriptions older than a week were never streamed."""
    before = datetime.now(UTC) - NEVER_AFTER
    unused = [
        str(each)
        for each in subscriptions.items
        if each.never_streamed and each.created_at is not None and each.created_at < before
    ]
    if unused:
        yield warning(
            f"{len(unused):,} subscriptions were never streamed: {listed(unused)}.",
            "Ask their owners whether they can be deleted.",
        )


@check(GROUP)
def dead_letters(subscriptions: Subscriptions) -> Iterator[Finding]:
    """Whether dead letters wait to be looked at."""
    for each in [each for each in subscriptions.items if each.dead_letter_at is not None]:
        yield warning(
            f"Subscription {each} has dead letters, the first one since {each.dead_letter_at:%Y-%m-%d %H:%M} UTC.",
            f"rioni dead-letters list {each.id}; docs/concepts/dead-letters.md",
        )


def _duration(seconds: float | None) -> str:
    seconds = seconds or 0
    for size, unit in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= size * 2:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:,.0f} seconds"
