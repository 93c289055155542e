"""Subscriptions: submitted definition, domain events, state, and natural key.

Source: reference subscriptions#fields.
"""

from collections.abc import Iterator, Mapping

import msgspec
from msgspec import UNSET, UnsetType

from rioni.domain.access.authorization import SubscriptionAuthorization, check_duplicates
from rioni.domain.errors import Invalid, InvalidFields
from rioni.domain.event_types.event_type import annotation_violations, label_violations
from rioni.domain.events import DomainEvent
from rioni.domain.limits import (
    EVENT_TYPES_MAX,
    INITIAL_CURSORS_MAX,
    authorization_violations,
    nul_violations,
    size_violations,
)
from rioni.domain.subscriptions.cursor_spec import CursorSpec
from rioni.domain.subscriptions.cursor_spec import violations as place_violations
from rioni.domain.subscriptions.dead_letters import DeadLetterFilter, policy_error
from rioni.domain.subscriptions.event_filter import event_filter


READ_FROM = ("begin", "end", "cursors")


class InitialCursor(msgspec.Struct, frozen=True, kw_only=True):
    """Initial cursor of a partition."""

    partition: str
    offset: str
    event_type: str

    @property
    def named(self) -> CursorSpec:
        """An initial cursor as submitted."""
        return CursorSpec(event_type=self.event_type, partition=self.partition, offset=self.offset)


class SubscriptionSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription as submitted; None means null or absent."""

    owning_application: str | None = None
    event_types: tuple[str, ...] | None = None
    consumer_group: str | None = "default"
    read_from: str | None = "end"
    initial_cursors: tuple[CursorSpec, ...] | None = None
    authorization: SubscriptionAuthorization | None = None
    annotations: Mapping[str, str] | None = None
    labels: Mapping[str, str] | None = None
    filter: str | None = None


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a subscription. Its JSON is the API's representation, members in the order that clients know."""

    id: str
    owning_application: str
    event_types: tuple[str, ...]
    """Sorted by name."""
    consumer_group: str
    read_from: str
    initial_cursors: tuple[InitialCursor, ...]
    created_at: str
    updated_at: str
    authorization: SubscriptionAuthorization | None
    annotations: Mapping[str, str]
    labels: Mapping[str, str]
    filter: str | UnsetType = UNSET
    """The filter of its events, see `rioni.domain.subscriptions.event_filter`; None for all events."""

    @property
    def resource(self) -> str:
        """The name of this subscription as a resource, in errors."""
        return f"subscription:{self.id}"

    @property
    def natural_key(self) -> str:
        """The natural key: JSON of owning application, consumer group, sorted event types."""
        return natural_key(self.owning_application, self.consumer_group, self.event_types)


def natural_key(owning_application: str, consumer_group: str, event_types: tuple[str, ...]) -> str:
    """The natural key of a subscription, as unambiguous text."""
    return msgspec.json.encode([owning_application, consumer_group, sorted(set(event_types))]).decode()


class SubscriptionCreated(DomainEvent, frozen=True, kw_only=True):
    """A subscription was created."""

    TOPIC = "subscription.created"
    KEY = "id"

    id: str
    subscription: Subscription


class SubscriptionChanged(DomainEvent, frozen=True, kw_only=True):
    """Authorization, annotations, labels or the filter are different; the event holds the whole new state."""

    TOPIC = "subscription.changed"
    KEY = "id"

    id: str
    subscription: Subscription


class CursorsReset(DomainEvent, frozen=True, kw_only=True):
    """The cursors were reset; the coordinator keeps the cursors themselves."""

    TOPIC = "subscription.cursors-reset"
    KEY = "id"

    id: str
    cursors: tuple[InitialCursor, ...]
    """Offsets in their canonical form."""
    previous: tuple[InitialCursor, ...] = ()
    """The cursors committed before in the same partitions; empty in log entries older than this field."""


class DeadLettersRedriven(DomainEvent, frozen=True, kw_only=True):
    """Events that consumers had never committed were published again, for this subscription alone."""

    TOPIC = "subscription.dead-letters-redriven"
    KEY = "id"

    id: str
    wanted: DeadLetterFilter
    forced: bool
    """Whether dead letters that were published again before were included."""
    redriven: int
    """How many there were."""


class SubscriptionDeleted(DomainEvent, frozen=True, kw_only=True):
    """The subscription was deleted, with its cursors."""

    TOPIC = "subscription.deleted"
    KEY = "id"

    id: str


def evolve(state: Subscription | None, event: DomainEvent) -> Subscription | None:
    """The state after an event; total."""
    match event:
        case SubscriptionCreated(subscription=subscription) | SubscriptionChanged(subscription=subscription):
            return subscription
        case SubscriptionDeleted():
            return None
        case _:
            return state


class SubscriptionKey(msgspec.Struct, frozen=True, kw_only=True):
    """The subscription that holds a natural key."""

    natural_key: str
    subscription_id: str


class SubscriptionKeyClaimed(DomainEvent, frozen=True, kw_only=True):
    """A natural key belongs to a subscription; a concurrent identical creation finds it taken."""

    TOPIC = "subscription-key.claimed"
    KEY = "natural_key"

    natural_key: str
    subscription_id: str


class SubscriptionKeyReleased(DomainEvent, frozen=True, kw_only=True):
    """A natural key was released."""

    TOPIC = "subscription-key.released"
    KEY = "natural_key"

    natural_key: str


def evolve_claim(state: SubscriptionKey | None, event: DomainEvent) -> SubscriptionKey | None:
    """The holder of a natural key after an event; total."""
    match event:
        case SubscriptionKeyClaimed(natural_key=key, subscription_id=subscription_id):
            return SubscriptionKey(natural_key=key, subscription_id=subscription_id)
        case SubscriptionKeyReleased():
            return None
        case _:
            return state


# --- Rules ---


def check_fields(spec: SubscriptionSpec) -> None:
    """Check each field by itself (reference subscriptions#creation-checks).

    Raises:
        InvalidFields: names every field that breaks its constraint.
    """
    InvalidFields.check(_field_violations(spec))


def _field_violations(spec: SubscriptionSpec) -> Iterator[tuple[str, str]]:
    for name in ("owning_application", "consumer_group"):
        value = getattr(spec, name)
        if value is None:
            yield name, "must not be null"
        elif not value:
            yield name, "must contain at least one character"
        yield from nul_violations(name, value)
    if spec.event_types is None:
        yield "event_types", "must not be null"
    elif not spec.event_types:
        yield "event_types", "must contain at least one element"
    yield from size_violations("event_types", spec.event_types, EVENT_TYPES_MAX)
    yield from size_violations("initial_cursors", spec.initial_cursors, INITIAL_CURSORS_MAX)
    if spec.read_from is None:
        yield "read_from", "must not be null"
    yield from _cursor_violations(spec)
    yield from authorization_violations(spec.authorization)
    yield from annotation_violations(spec.annotations or {})
    yield from label_violations(spec.labels or {})


def _cursor_violations(spec: SubscriptionSpec) -> Iterator[tuple[str, str]]:
    for index, named in enumerate((spec.initial_cursors or ())[:INITIAL_CURSORS_MAX]):
        path = f"initial_cursors[{index}]"
        violations = list(place_violations(named, path))
        yield from violations
        if not violations and spec.read_from != "cursors" and not (named.is_offset and named.partition):
            yield path, "must name a partition and an offset, unless read_from is cursors"


def new(
    spec: SubscriptionSpec, *, subscription_id: str, now: str, initial_cursors: tuple[InitialCursor, ...] = ()
) -> Subscription:
    """Build the state of a new subscription from a checked submission.

    Args:
        spec: the submission.
        subscription_id: the id of the subscription.
        now: the time of its creation.
        initial_cursors: the cursors meant by those of the submission.

    Raises:
        Invalid: an attribute occurs twice in the authorization section, the filter can't be used, or the
            annotations about dead letters are not valid.
    """
    if (section := spec.authorization) is not None:
        check_duplicates((("admins", section.admins), ("readers", section.readers)))
    if problem := policy_error(spec.annotations or {}):
        raise Invalid(problem)
    if spec.filter:
        event_filter(spec.filter)
    return Subscription(
        id=subscription_id,
        owning_application=spec.owning_application or "",
        event_types=tuple(sorted(set(spec.event_types or ()))),
        consumer_group=spec.consumer_group or "",
        read_from=spec.read_from or "end",
        initial_cursors=initial_cursors,
        created_at=now,
        updated_at=now,
        authorization=spec.authorization,
        annotations=spec.annotations or {},
        labels=spec.labels or {},
        filter=spec.filter or UNSET,
    )


def changed(current: Subscription, spec: SubscriptionSpec, *, now: str) -> Subscription:
    """Build the updated state of a subscription from a checked submission (reference subscriptions#change).

    Raises:
        Invalid: something other than authorization, annotations, labels or the filter would change.
    """
    wanted = new(spec, subscription_id=current.id, now=now)
    for field in ("consumer_group", "event_types", "owning_application", "read_from"):
        if getattr(wanted, field) != getattr(current, field):
            raise Invalid(f"Not allowed to change subscription {field.replace('_', ' ')}")
    if (spec.initial_cursors or ()) != tuple(each.named for each in current.initial_cursors):
        raise Invalid("Not allowed to change subscription initial cursors")
    if current.authorization is not None and spec.authorization is None:
        raise Invalid("Changing authorization object to `null` is not possible due to existing one")
    result = msgspec.structs.replace(
        current,
        authorization=spec.authorization,
        annotations=current.annotations if spec.annotations is None else spec.annotations,
        labels=current.labels if spec.labels is None else spec.labels,
        filter=current.filter if spec.filter is None else wanted.filter,
    )
    return current if result == current else msgspec.structs.replace(result, updated_at=now)
