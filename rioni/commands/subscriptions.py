"""Commands that create, change and delete subscriptions (consumption contract 5)."""

from dataclasses import dataclass

from rioni.commands.event_types import forget_subscription
from rioni.commands.repository import Repository
from rioni.domain.cursor import BEFORE_FIRST, parse_offset
from rioni.domain.errors import Invalid, Unavailable, UnavailableCursor
from rioni.domain.subscription import (
    CursorsReset,
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
from rioni.domain.timeline import FIRST_ORDER, Timelines


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateSubscription:
    """Create a subscription, or find the one that is the same."""

    spec: SubscriptionSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSubscription:
    """Change a subscription's authorization, annotations or labels."""

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


def create_subscription(command: CreateSubscription, repository: Repository) -> tuple[Subscription, bool]:
    """Create a subscription.

    Returns:
        The subscription, and whether it is new.

    Raises:
        InvalidFields: a field breaks its constraint.
        Unavailable: creation is switched off.
        Invalid: a rule of consumption contract 5.2 is broken.
    """
    spec = command.spec
    check_fields(spec)
    key = natural_key(spec.owning_application or "", spec.consumer_group or "", spec.event_types or ())
    if (claim := repository.find("subscription-key", key)) is not None:
        return repository.subscription(claim.subscription_id), False
    _check_features(spec, repository)
    subscription = new(spec, subscription_id=repository.context.derive_id("subscription"), now=repository.context.now)
    timelines = _timelines_of(subscription, repository)
    total, most = sum(each.active.partitions for each in timelines), repository.limits.subscription_partitions_max
    if total > most:
        raise Invalid(f"total partition count for subscription is {total}, but the maximum partition count is {most}")
    if subscription.read_from == "cursors":
        _check_initial_cursors(subscription.initial_cursors, timelines, repository)
    repository.record(
        SubscriptionKeyClaimed(natural_key=key, subscription_id=subscription.id),
        SubscriptionCreated(id=subscription.id, subscription=subscription),
    )
    return subscription, True


def change_subscription(command: ChangeSubscription, repository: Repository) -> None:
    """Change a subscription; submitting what it is already changes nothing.

    Raises:
        Invalid: something would change that must not (consumption contract 5.5).
    """
    check_fields(command.spec)
    current = repository.subscription(command.subscription_id)
    subscription = changed(current, command.spec, now=repository.context.now)
    if subscription != current:
        repository.record(SubscriptionChanged(id=subscription.id, subscription=subscription))


def delete_subscription(command: DeleteSubscription, repository: Repository) -> None:
    """Delete a subscription."""
    forget_subscription(repository.subscription(command.subscription_id), repository)


def record_cursors_reset(command: RecordCursorsReset, repository: Repository) -> None:
    """Record where reading goes on."""
    subscription = repository.subscription(command.subscription_id)
    repository.record(CursorsReset(id=subscription.id, cursors=command.cursors))


def _check_features(spec: SubscriptionSpec, repository: Repository) -> None:
    features = repository.settings().features
    if "disable_subscription_creation" in features:
        raise Unavailable("Subscription creation is temporarily unavailable")
    if "force_subscription_authz" in features and spec.authorization is None:
        raise Invalid("Authorization section is mandatory")


def _timelines_of(subscription: Subscription, repository: Repository) -> list[Timelines]:
    found = {name: repository.find("timeline", name) for name in subscription.event_types}
    missing = ", ".join(f"'{name}'" for name, timelines in found.items() if timelines is None)
    if missing:
        raise Invalid(f"Failed to create subscription, event type(s) not found: {missing}")
    return list(found.values())


def _check_initial_cursors(
    cursors: tuple[InitialCursor, ...], timelines: list[Timelines], repository: Repository
) -> None:
    wanted = {
        (each.event_type, str(number)): (each, number) for each in timelines for number in range(each.active.partitions)
    }
    given = [(cursor.event_type, cursor.partition) for cursor in cursors]
    if set(wanted) - set(given):
        raise Invalid("initial_cursors should contain cursors for all partitions of subscription")
    if set(given) - set(wanted):
        raise Invalid("initial_cursors should contain cursors only for partitions of this subscription")
    if len(set(given)) < len(given):
        raise Invalid("there should be no more than 1 cursor for each partition in initial_cursors")
    for cursor in cursors:
        each, number = wanted[cursor.event_type, cursor.partition]
        _check_available(cursor, each, number, repository)


def _check_available(cursor: InitialCursor, timelines: Timelines, number: int, repository: Repository) -> None:
    place = parse_offset(cursor.offset, partition=cursor.partition, oldest_order=FIRST_ORDER)
    if place is None:
        return
    timeline = next((each for each in timelines.timelines if each.order == place.order), None)
    if timeline is None:
        raise UnavailableCursor(cursor.event_type, cursor.partition, cursor.offset)
    bounds = repository.store.bounds(timeline.topic)[number]
    if not bounds.oldest + BEFORE_FIRST <= place.position <= bounds.newest:
        raise UnavailableCursor(cursor.event_type, cursor.partition, str(place.position))
