"""Event types, their users and timelines, and what administrators set: rights, blacklist, features, storages."""

import random
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import msgspec

from rioni.cli.doctor.diagnosis import ERROR, DoctorFinding, Site, check, error, listed, source, warning
from rioni.client import errors
from rioni.domain.access.authorization import WELL_KNOWN_ADMIN, Mode
from rioni.wire.access import Admins, Attribute
from rioni.wire.administration import Blacklist, Feature, Health, Storage


# --- Facts about event types ---

EVENT_TYPES_MAX = 200
"""The most event types that are examined one by one; of more, these are chosen at random."""
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


class Overdue(msgspec.Struct, frozen=True):
    """A timeline that still has events although it should have been cleaned up."""

    event_type: str
    order: int
    due_at: datetime


class Overdues(msgspec.Struct, frozen=True):
    """All overdue timelines."""

    timelines: list[Overdue]
    partial: str = ""


@source
def event_types(site: Site) -> list[EventTypeFacts]:
    """List all event types."""
    return [
        EventTypeFacts(
            each.name,
            each.owning_application,
            each.created_at,
            each.authorization is not None,
            [role for role in ("admins", "writers") if EVERYBODY in getattr(each.authorization, role, ())],
            each.options.retention_time,
        )
        for each in site.client.event_types.list()
    ]


@source
def unused(site: Site) -> list[str]:
    """Ask which event types nobody has used; the number of them first, as other servers ignore the filter of lists."""
    count = site.client.event_types.facets(unused_days=UNUSED_DAYS).unused
    found = site.client.event_types.list(unused_days=UNUSED_DAYS) if count is not None and count.count else []
    return [each.name for each in found]


@source
def overdue_timelines(site: Site, event_types: list[EventTypeFacts]) -> Overdues:
    """Look for timelines whose events should be gone; of many event types, some that are chosen at random."""
    found, looked_at = [], 0
    for each in in_time(site, sample(event_types, EVENT_TYPES_MAX)):
        looked_at += 1
        try:
            found += _overdue(site, each.name)
        except errors.NotFound:
            continue
    return Overdues(found, partial(looked_at, len(event_types), "event types"))


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


def sample(items: list[T], most: int) -> list[T]:
    """At most this number of the items, chosen at random."""
    return items if len(items) <= most else random.sample(items, most)


def in_time(site: Site, items: Iterable[T], reserve_s: float = 0.0) -> Iterator[T]:
    """The items, one after the other, until the time is nearly over."""
    for item in items:
        if site.deadline.left_s < RESERVE_S + reserve_s:
            return
        yield item


def partial(looked_at: int, total: int, what: str) -> str:
    """A note on how many of all resources were examined; empty if all were."""
    return "" if looked_at >= total else f"looked at {looked_at:,} of {total:,} {what}, others each time"


# --- Checks of event types, and of what administrators set while the broker runs ---

GROUP = "Registry"
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
def administrators(admins: Admins, ready: Health) -> Iterator[DoctorFinding]:
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
def blocked(blacklist: Blacklist) -> Iterator[DoctorFinding]:
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
def restrictions(features: list[Feature]) -> Iterator[DoctorFinding]:
    """Whether features are on that keep clients from creating, changing or deleting."""
    for each in features:
        if each.enabled and each.feature in RESTRICTING:
            yield warning(
                f"The feature {each.feature} is on: {RESTRICTING[each.feature]}.",
                f"Switch it off when the reason is over: rioni settings disable {each.feature}",
            )


@check(GROUP, ERROR)
def storage_safety(storages: list[Storage]) -> Iterator[DoctorFinding]:
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
def event_type_authorization(event_types: list[EventTypeFacts], ready: Health) -> Iterator[DoctorFinding]:
    """Whether event types are open to every client although there is authentication."""
    if auth_mode(ready) in {None, Mode.OFF.value}:
        return
    others = [each for each in event_types if not each.name.startswith(OWN)]
    if without := [each.name for each in others if not each.authorization]:
        yield warning(
            f"{len(without):,} event types have no authorization section, so every client may change, publish and "
            f"read them: {listed(without)}.",
            "Let their owners add one; the feature force_event_type_authz asks for it: docs/reference/authorization.md",
        )
    for role in ("admins", "writers"):
        if open_ones := [each.name for each in others if role in each.open_to]:
            yield warning(
                f"Every client is among the {role} of {len(open_ones):,} event types: {listed(open_ones)}.",
                "Name those who need it: docs/reference/authorization.md",
            )


@check(GROUP)
def event_type_owners(event_types: list[EventTypeFacts]) -> Iterator[DoctorFinding]:
    """Whether event types have an owning application."""
    if without := [each.name for each in event_types if not each.owner.strip()]:
        yield warning(
            f"{len(without):,} event types have no owning application: {listed(without)}.",
            "Ask who publishes to them (rioni event-types producers), and set owning_application.",
        )


@check(GROUP)
def unused_event_types(unused: list[str]) -> Iterator[DoctorFinding]:
    """Whether there are event types to which nobody published, and which nobody read, for 30 days."""
    if unused:
        yield warning(
            f"Nobody has used {len(unused):,} event types for {UNUSED_DAYS} days: {listed(unused)}.",
            f"Ask their owners whether they can be deleted: rioni event-types list --unused-days {UNUSED_DAYS}",
        )


@check(GROUP)
def timelines(overdue_timelines: Overdues) -> Iterator[DoctorFinding]:
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
