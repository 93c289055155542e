"""Checks of what administrators and consumers do: rights, blacklist, features, storages, event types, subscriptions."""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from rioni.cli.doctor.checks.registry import EVERYBODY, EventTypeFacts, Lag, Overdues, Subscriptions, Unused
from rioni.cli.doctor.model import ERROR, Finding, check, error, warning
from rioni.config.server_settings import WELL_KNOWN_ADMIN
from rioni.domain.access.authentication import Mode
from rioni.wire.administration import Admins, Blacklist, Feature, Health, Storage


# Checks of the values that administrators set while the broker runs: rights, blacklist, features, storages, event
# types.

GROUP = "Registry"
NAMES_MAX = 5
"""Names that a finding lists."""
RESTRICTING = {
    "disable_db_write_operations": "nothing can be created, changed or deleted, and no timeline is cleaned up",
    "disable_event_type_creation": "no event type can be created",
    "disable_event_type_deletion": "only administrators can delete event types",
    "disable_subscription_creation": "no subscription can be created",
}
"""Features that keep clients from their work, which are off by default."""
LATE = timedelta(hours=2)
"""Retention runs each minute; a broker that was stopped catches up."""


@check(GROUP, ERROR)
def administrators(admins: Admins, ready: Health) -> Iterator[Finding]:
    """Whether everybody, or the well-known default, administers the broker although there is authentication."""
    if auth_mode(ready) in {None, Mode.OFF.value}:
        return
    for role in ("admins", "writers", "readers"):
        attributes = getattr(admins, role)
        if EVERYBODY in attributes:
            finding = warning if role == "readers" else error
            yield finding(f"Every client is among the {role} of the broker.", _admins_advice(role))
        if any(str(each) == WELL_KNOWN_ADMIN for each in attributes):
            yield error(
                f"{WELL_KNOWN_ADMIN}, whose name everybody knows, is among the {role} of the broker.",
                "Set default_admin to an identity that your token sources give to nobody else: "
                "docs/operating/security.md#modes",
            )


def _admins_advice(role: str) -> str:
    return f"Name the right {role}: rioni settings set-admins; docs/reference/settings-and-storages.md#set-admins"


def auth_mode(ready: Health) -> str | None:
    """The setting `auth_mode`, as the broker reports it; None if it does not."""
    access = ready.checks.get("access")
    found = re.match(r"auth_mode (\w+)", access.detail) if access else None
    return found[1] if found else None


@check(GROUP)
def blocked(blacklist: Blacklist) -> Iterator[Finding]:
    """Whether applications or event types are on the blacklist."""
    for what, lists in (("publishing", blacklist.producers), ("consuming", blacklist.consumers)):
        for kind, names in (("applications", lists.apps), ("event types", lists.event_types)):
            if names:
                yield warning(
                    f"{what.capitalize()} is blocked for the {kind} {listed(names)}.",
                    "Unblock what was blocked for an incident that is over: rioni settings unblock; "
                    "docs/reference/settings-and-storages.md#blacklist",
                )


@check(GROUP)
def restrictions(features: list[Feature]) -> Iterator[Finding]:
    """Whether features are on that keep clients from creating, changing or deleting."""
    for each in features:
        if each.enabled and each.feature in RESTRICTING:
            yield warning(
                f"The feature {each.feature} is on: {RESTRICTING[each.feature]}.",
                f"Switch it off when the reason is over: rioni settings disable {each.feature}",
            )


@check(GROUP, ERROR)
def storage_safety(storages: list[Storage]) -> Iterator[Finding]:
    """Whether there is a default storage, and whether storages in Kafka keep several copies."""
    if not any(each.default for each in storages):
        yield error("No storage is the default: event types can't be created.", "rioni storages set-default ID")
    for each in storages:
        options = each.kafka_configuration or {}
        if options.get("replication_factor") == 1 or options.get("min_insync_replicas") == 1:
            yield warning(
                f"One broker of Kafka is enough for events of the storage {each.id}, which are lost with it.",
                "Use a replication factor of 3 and two replicas in sync: docs/operating/kafka.md#guarantees",
            )


@check(GROUP)
def event_type_authorization(event_types: list[EventTypeFacts], ready: Health) -> Iterator[Finding]:
    """Whether event types are open to every client although there is authentication."""
    if auth_mode(ready) in {None, Mode.OFF.value}:
        return
    own = [each for each in event_types if not each.own]
    if without := [each.name for each in own if not each.authorization]:
        yield warning(
            f"{len(without):,} event types have no authorization section, so every client may change, publish and "
            f"read them: {listed(without)}.",
            "Let their owners add one; the feature force_event_type_authz asks for it: docs/reference/authorization.md",
        )
    for role in ("admins", "writers"):
        if open_ones := [each.name for each in own if role in each.open_to]:
            yield warning(
                f"Every client is among the {role} of {len(open_ones):,} event types: {listed(open_ones)}.",
                "Name those who need it: docs/reference/authorization.md",
            )


@check(GROUP)
def event_type_owners(event_types: list[EventTypeFacts]) -> Iterator[Finding]:
    """Whether event types have an owning application."""
    if without := [each.name for each in event_types if not each.owner.strip()]:
        yield warning(
            f"{len(without):,} event types have no owning application: {listed(without)}.",
            "Ask who publishes to them (rioni event-types producers), and set owning_application.",
        )


@check(GROUP)
def unused_event_types(unused: Unused) -> Iterator[Finding]:
    """Whether there are event types to which nobody published, and which nobody read, for 30 days."""
    if unused.names:
        yield warning(
            f"Nobody has used {len(unused.names):,} event types for {unused.days} days: {listed(unused.names)}.",
            f"Ask their owners whether they can be deleted: rioni event-types list --unused-days {unused.days}",
        )


@check(GROUP)
def timelines(overdue_timelines: Overdues) -> Iterator[Finding]:
    """Whether closed timelines still have events that retention should have removed."""
    late = [each for each in overdue_timelines.timelines if datetime.now(UTC) - each.due_at > LATE]
    if late:
        first = min(late, key=lambda each: each.due_at)
        yield warning(
            f"{len(late):,} closed timelines still have events, first of all timeline {first.order} of "
            f"{first.event_type}, which was due on {first.due_at:%Y-%m-%d %H:%M} UTC.",
            "See whether disable_db_write_operations is on, the storage can be reached, and the log of the broker "
            "says that retention fails: docs/reference/timelines.md",
        )


def listed(names: Sequence[str]) -> str:
    """The first few names."""
    more = f", and {len(names) - NAMES_MAX:,} more" if len(names) > NAMES_MAX else ""
    return ", ".join(names[:NAMES_MAX]) + more


# --- Checks of subscriptions: their lag, streams, cursors and dead letters ---

CONSUMERS = "Consumers"
RETENTION_RATIO = 0.5
"""A fraction of the retention time: events older than that are soon lost for a consumer that has not read them."""
LATE_S = 600
"""A consumer is too slow if it lags by more than this, and its lag grows."""
WITHOUT_STREAMS_S = 3_600
"""Consumers that are deployed come back sooner."""
NEVER_AFTER = timedelta(days=7)


@check(CONSUMERS, ERROR)
def cursors(subscriptions: Subscriptions) -> Iterator[Finding]:
    """Whether committed cursors lie beyond the end of their partition, so that nothing is delivered."""
    for each in [each for each in subscriptions.items if any(lag.error for lag in each.lags)]:
        broken = next(lag for lag in each.lags if lag.error)
        yield error(
            f"Subscription {each} gets nothing of {broken.event_type}, partition {broken.partition}: {broken.error}",
            "Reset its cursors: PATCH /subscriptions/ID/cursors, docs/operating/backup.md#cursors-beyond-the-end",
        )


@check(CONSUMERS)
def expiring_lag(subscriptions: Subscriptions, event_types: list[EventTypeFacts]) -> Iterator[Finding]:
    """Whether consumers lag so far that retention is about to remove events that they have not read."""
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


@check(CONSUMERS)
def growing_lag(subscriptions: Subscriptions) -> Iterator[Finding]:
    """Whether the lag of consumers that stream keeps growing."""

    def grows(lag: Lag) -> bool:
        return lag.streamed and (lag.growth or 0) > 0 and (lag.lag_s or 0) > LATE_S

    for each in [each for each in subscriptions.items if any(map(grows, each.lags))]:
        growing = [lag for lag in each.lags if grows(lag)]
        yield warning(
            f"Subscription {each} is {_duration(max(lag.lag_s or 0 for lag in growing))} behind, and had "
            f"{sum(lag.growth or 0 for lag in growing):,} more events to read after {subscriptions.seconds:.0f} s.",
            "Add consumers, up to one for each partition, or more partitions: docs/reference/timelines.md",
        )


@check(CONSUMERS)
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


@check(CONSUMERS)
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


@check(CONSUMERS)
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


@check(CONSUMERS)
def dead_letters(subscriptions: Subscriptions) -> Iterator[Finding]:
    """Whether dead letters wait to be examined."""
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
