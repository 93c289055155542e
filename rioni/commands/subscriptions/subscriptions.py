"""Commands that create, change and delete subscriptions (reference subscriptions#fields)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import msgspec

from rioni.commands.event_types import forget_subscription
from rioni.commands.subscriptions.cursors import CursorResolver
from rioni.commands.unit_of_work import Outside, UnitOfWork
from rioni.domain.avro.event_schema import schemas_in_json
from rioni.domain.errors import Invalid, ReadOnly, Unavailable
from rioni.domain.event_types.event_type import EventType
from rioni.domain.event_types.rules import check_owning_application
from rioni.domain.subscriptions.cursor_spec import CursorSpec, for_each_partition
from rioni.domain.subscriptions.dead_letters import DeadLetterFilter
from rioni.domain.subscriptions.filter_check import check_filter
from rioni.domain.subscriptions.subscription import (
    CursorsReset,
    DeadLettersRedriven,
    InitialCursor,
    Subscription,
    SubscriptionChanged,
    SubscriptionCreated,
    SubscriptionKeyClaimed,
    SubscriptionSpec,
    changed,
    check_fields,
    natural_key,
    new,
)
from rioni.domain.timelines.timeline import Timelines


class LookedUp(NamedTuple):
    """Results of the store queries for a new subscription; valid while the timelines are the same."""

    timelines: Sequence[Timelines]
    initial_cursors: tuple[InitialCursor, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateSubscription:
    """Create a subscription, or find the identical one."""

    spec: SubscriptionSpec
    looked_up: LookedUp | None = None
    """Set by the command itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSubscription:
    """Change a subscription's authorization, annotations, labels or filter."""

    subscription_id: str
    spec: SubscriptionSpec
    is_filter_checked: bool = False
    """Set by the command itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteSubscription:
    """Delete a subscription with its cursors; its streams end."""

    subscription_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordCursorsReset:
    """Record that cursors were reset; see `rioni.commands.subscriptions.initial_cursors`."""

    subscription_id: str
    cursors: tuple[InitialCursor, ...]
    previous: tuple[InitialCursor, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordDeadLettersRedriven:
    """Record that dead letters were published again; see `rioni.commands.subscriptions.dead_letters`."""

    subscription_id: str
    wanted: DeadLetterFilter
    forced: bool
    redriven: int


def create_subscription(command: CreateSubscription, unit_of_work: UnitOfWork) -> tuple[Subscription, bool] | Outside:
    """Create a subscription.

    Returns:
        The subscription, and whether it is new.

    Raises:
        InvalidFields: a field breaks its constraint.
        Unavailable: creation is switched off.
        ReadOnly: writing is switched off.
        Invalid: a rule of reference subscriptions#creation-checks is broken.
    """
    spec = command.spec
    check_fields(spec)
    key = natural_key(spec.owning_application or "", spec.consumer_group or "", spec.event_types or ())
    if (claim := unit_of_work.find("subscription-key", key)) is not None:
        return unit_of_work.subscription(claim.subscription_id), False
    _check_features(spec, unit_of_work)
    names = sorted(set(spec.event_types or ()))
    # Each event type has at least one partition: don't look up thousands of them while holding the lock.
    _check_partitions(len(names), unit_of_work)
    timelines = _timelines_of(names, unit_of_work)
    _check_partitions(sum(each.active.partitions for each in timelines), unit_of_work)
    named = _named_cursors(spec, timelines) if spec.read_from == "cursors" else []
    known = command.looked_up
    if (named or spec.filter) and (known is None or known.timelines != timelines):
        event_types = [unit_of_work.event_type(name) for name in names] if spec.filter else []
        return Outside(partial(_looked_up, command, timelines, named, event_types, unit_of_work))
    cursors = known.initial_cursors if named and known else tuple(map(_as_given, spec.initial_cursors or ()))
    subscription = new(
        spec,
        subscription_id=unit_of_work.context.derive_id("subscription"),
        now=unit_of_work.context.now,
        initial_cursors=cursors,
    )
    if "validate_subscription_owning_application" in unit_of_work.settings().features:
        check_owning_application(subscription.owning_application, unit_of_work.limits)
    unit_of_work.record(
        SubscriptionKeyClaimed(natural_key=key, subscription_id=subscription.id),
        SubscriptionCreated(id=subscription.id, subscription=subscription),
    )
    return subscription, True


def change_subscription(command: ChangeSubscription, unit_of_work: UnitOfWork) -> Subscription | Outside:
    """Update a subscription; submitting its current state changes nothing.

    Raises:
        Invalid: an immutable field would change (reference subscriptions#change).
    """
    check_fields(command.spec)
    current = unit_of_work.subscription(command.subscription_id)
    # A filter that was accepted once stays valid, whatever the schemas are today.
    if command.spec.filter and command.spec.filter != current.filter and not command.is_filter_checked:
        event_types = [unit_of_work.event_type(name) for name in current.event_types]
        return Outside(partial(_filter_checked, command, event_types, unit_of_work))
    subscription = changed(current, command.spec, now=unit_of_work.context.now)
    if subscription != current:
        unit_of_work.record(SubscriptionChanged(id=subscription.id, subscription=subscription))
    return subscription


def delete_subscription(command: DeleteSubscription, unit_of_work: UnitOfWork) -> None:
    """Delete a subscription."""
    forget_subscription(unit_of_work.subscription(command.subscription_id), unit_of_work)


def record_cursors_reset(command: RecordCursorsReset, unit_of_work: UnitOfWork) -> None:
    """Record the new cursors."""
    subscription = unit_of_work.subscription(command.subscription_id)
    unit_of_work.record(CursorsReset(id=subscription.id, cursors=command.cursors, previous=command.previous))


def record_dead_letters_redriven(command: RecordDeadLettersRedriven, unit_of_work: UnitOfWork) -> None:
    """Record which dead letters were selected, and how many were published again."""
    subscription = unit_of_work.subscription(command.subscription_id)
    unit_of_work.record(
        DeadLettersRedriven(id=subscription.id, wanted=command.wanted, forced=command.forced, redriven=command.redriven)
    )


def _check_features(spec: SubscriptionSpec, unit_of_work: UnitOfWork) -> None:
    features = unit_of_work.settings().features
    if "disable_subscription_creation" in features:
        raise Unavailable("Subscription creation is temporarily unavailable")
    if "disable_db_write_operations" in features:
        raise ReadOnly
    if "force_subscription_authz" in features and spec.authorization is None:
        raise Invalid("Authorization section is mandatory")


def _check_partitions(total: int, unit_of_work: UnitOfWork) -> None:
    most = unit_of_work.limits.subscription_partitions_max
    if total > most:
        raise Invalid(f"total partition count for subscription is {total}, but the maximum partition count is {most}")


def _timelines_of(event_types: Sequence[str], unit_of_work: UnitOfWork) -> list[Timelines]:
    found = {name: unit_of_work.find("timeline", name) for name in event_types}
    missing = ", ".join(f"'{name}'" for name, timelines in found.items() if timelines is None)
    if missing:
        raise Invalid(f"Failed to create subscription, event type(s) not found: {missing}")
    return list(found.values())


def _named_cursors(
    spec: SubscriptionSpec, timelines: Sequence[Timelines]
) -> Sequence[tuple[tuple[str, str], CursorSpec]]:
    """The submitted initial cursor spec of each partition, by event type and number."""
    partitions = {each.event_type: each.active.partitions for each in timelines}
    names = list(for_each_partition(spec.initial_cursors or (), partitions))
    wanted = {(name, str(number)) for name, count in partitions.items() for number in range(count)}
    given = [key for key, _ in names]
    if wanted - set(given):
        raise Invalid("initial_cursors should contain cursors for all partitions of subscription")
    foreign = {named.event_type for named in spec.initial_cursors or ()} - {None, *partitions}
    if foreign or set(given) - wanted:
        raise Invalid("initial_cursors should contain cursors only for partitions of this subscription")
    if len(set(given)) < len(given):
        raise Invalid("there should be no more than 1 cursor for each partition in initial_cursors")
    return names


def _looked_up(
    command: CreateSubscription,
    timelines: Sequence[Timelines],
    named: Sequence[tuple[tuple[str, str], CursorSpec]],
    event_types: Sequence[EventType],
    unit_of_work: UnitOfWork,
) -> CreateSubscription:
    """Check the filter, and resolve the initial cursors: offsets are kept, other specs resolved by querying stores.

    Source: reference subscriptions#creation-checks.
    """
    places = {each.event_type: CursorResolver(each, unit_of_work.stores) for each in timelines} if named else {}
    found = [(name, places[event_type].readable(name)) for (event_type, _), name in named]
    cursors = tuple(
        _as_given(name if name.is_offset else msgspec.structs.replace(name, offset=place.offset))
        for name, place in found
    )
    if command.spec.filter:
        unit_of_work.compute(lambda: check_filter(command.spec.filter or "", schemas_in_json(event_types)))
    return replace(command, looked_up=LookedUp(timelines, cursors))


def _filter_checked(
    command: ChangeSubscription, event_types: Sequence[EventType], unit_of_work: UnitOfWork
) -> ChangeSubscription:
    # Compiled once: the transaction finds it.
    unit_of_work.compute(lambda: check_filter(command.spec.filter or "", schemas_in_json(event_types)))
    return replace(command, is_filter_checked=True)


def _as_given(named: CursorSpec) -> InitialCursor:
    return InitialCursor(event_type=named.event_type or "", partition=named.partition or "", offset=named.offset or "")
