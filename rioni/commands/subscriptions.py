"""Commands that create, change and delete subscriptions (consumption contract 5)."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from rioni.commands.event_types import forget_subscription
from rioni.commands.named_places import NamedPlaces
from rioni.commands.repository import Repository
from rioni.domain.errors import Invalid, ReadOnly, Unavailable
from rioni.domain.event_type_rules import check_owning_application
from rioni.domain.named_place import NamedPlace, for_each_partition
from rioni.domain.subscription import (
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
from rioni.domain.timeline import Timelines
from rioni.domain.unprocessable import DeadLetterFilter


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateSubscription:
    """Create a subscription, or find the one that is the same."""

    spec: SubscriptionSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSubscription:
    """Change a subscription's authorization, annotations, labels or filter."""

    subscription_id: str
    spec: SubscriptionSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteSubscription:
    """Delete a subscription with its cursors; its streams end."""

    subscription_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordCursorsReset:
    """Remember that cursors were reset; see `rioni.commands.positions`."""

    subscription_id: str
    cursors: tuple[InitialCursor, ...]
    previous: tuple[InitialCursor, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordDeadLettersRedriven:
    """Remember that dead letters were published again; see `rioni.commands.dead_letters`."""

    subscription_id: str
    wanted: DeadLetterFilter
    forced: bool
    redriven: int


def create_subscription(command: CreateSubscription, repository: Repository) -> tuple[Subscription, bool]:
    """Create a subscription.

    Returns:
        The subscription, and whether it is new.

    Raises:
        InvalidFields: a field breaks its constraint.
        Unavailable: creation is switched off.
        ReadOnly: writing is switched off.
        Invalid: a rule of consumption contract 5.2 is broken.
    """
    spec = command.spec
    check_fields(spec)
    key = natural_key(spec.owning_application or "", spec.consumer_group or "", spec.event_types or ())
    if (claim := repository.find("subscription-key", key)) is not None:
        return repository.subscription(claim.subscription_id), False
    _check_features(spec, repository)
    names = sorted(set(spec.event_types or ()))
    # Each has a partition at least: nobody else waits until thousands of them are looked up.
    _check_partitions(len(names), repository)
    timelines = _timelines_of(names, repository)
    _check_partitions(sum(each.active.partitions for each in timelines), repository)
    cursors = _initial_cursors(spec, timelines, repository)
    subscription = new(
        spec,
        subscription_id=repository.context.derive_id("subscription"),
        now=repository.context.now,
        initial_cursors=cursors,
    )
    if "validate_subscription_owning_application" in repository.settings().features:
        check_owning_application(subscription.owning_application, repository.limits)
    repository.record(
        SubscriptionKeyClaimed(natural_key=key, subscription_id=subscription.id),
        SubscriptionCreated(id=subscription.id, subscription=subscription),
    )
    return subscription, True


def change_subscription(command: ChangeSubscription, repository: Repository) -> Subscription:
    """Change a subscription; submitting what it is already changes nothing.

    Raises:
        Invalid: something would change that must not (consumption contract 5.5).
    """
    check_fields(command.spec)
    current = repository.subscription(command.subscription_id)
    subscription = changed(current, command.spec, now=repository.context.now)
    if subscription != current:
        repository.record(SubscriptionChanged(id=subscription.id, subscription=subscription))
    return subscription


def delete_subscription(command: DeleteSubscription, repository: Repository) -> None:
    """Delete a subscription."""
    forget_subscription(repository.subscription(command.subscription_id), repository)


def record_cursors_reset(command: RecordCursorsReset, repository: Repository) -> None:
    """Record where reading goes on."""
    subscription = repository.subscription(command.subscription_id)
    repository.record(CursorsReset(id=subscription.id, cursors=command.cursors, previous=command.previous))


def record_dead_letters_redriven(command: RecordDeadLettersRedriven, repository: Repository) -> None:
    """Record which dead letters were meant, and how many were published again."""
    subscription = repository.subscription(command.subscription_id)
    repository.record(
        DeadLettersRedriven(id=subscription.id, wanted=command.wanted, forced=command.forced, redriven=command.redriven)
    )


def _check_features(spec: SubscriptionSpec, repository: Repository) -> None:
    features = repository.settings().features
    if "disable_subscription_creation" in features:
        raise Unavailable("Subscription creation is temporarily unavailable")
    if "disable_db_write_operations" in features:
        raise ReadOnly
    if "force_subscription_authz" in features and spec.authorization is None:
        raise Invalid("Authorization section is mandatory")


def _check_partitions(total: int, repository: Repository) -> None:
    most = repository.limits.subscription_partitions_max
    if total > most:
        raise Invalid(f"total partition count for subscription is {total}, but the maximum partition count is {most}")


def _timelines_of(event_types: Sequence[str], repository: Repository) -> list[Timelines]:
    found = {name: repository.find("timeline", name) for name in event_types}
    missing = ", ".join(f"'{name}'" for name, timelines in found.items() if timelines is None)
    if missing:
        raise Invalid(f"Failed to create subscription, event type(s) not found: {missing}")
    return list(found.values())


def _initial_cursors(
    spec: SubscriptionSpec, timelines: Sequence[Timelines], repository: Repository
) -> tuple[InitialCursor, ...]:
    """Where reading begins: offsets as they were given, what other names stand for now (consumption contract 5.2)."""
    if spec.read_from != "cursors":
        return tuple(map(_as_given, spec.initial_cursors or ()))
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
    places = {each.event_type: NamedPlaces(each, repository.stores) for each in timelines}
    found = [(named, places[event_type].readable(named)) for (event_type, _), named in names]
    return tuple(
        _as_given(named if named.is_offset else msgspec.structs.replace(named, offset=place.offset))
        for named, place in found
    )


def _as_given(named: NamedPlace) -> InitialCursor:
    return InitialCursor(event_type=named.event_type or "", partition=named.partition or "", offset=named.offset or "")
