"""Commands that create, change and delete event types (reference event-types#definition)."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, Self

import msgspec

from rioni.commands.timelines.timelines import topics_to_delete
from rioni.commands.timelines.topics import abandon, end_topic_creation, start_topic_creation
from rioni.commands.unit_of_work import Outside, UnitOfWork
from rioni.domain.access.authorization import BROKER, permits
from rioni.domain.errors import (
    AccessDenied,
    AdminOnly,
    Conflict,
    FeatureDisabled,
    Invalid,
    InvalidFields,
    PreconditionFailed,
)
from rioni.domain.event_types import rules
from rioni.domain.event_types.event_type import (
    EventType,
    EventTypeChanged,
    EventTypeCreated,
    EventTypeDeleted,
    EventTypeSpec,
    Schema,
    SchemaAdded,
    SubmittedSchema,
    check_data_lake,
)
from rioni.domain.event_types.rules import schema_violations
from rioni.domain.schema_changes import check_submitted_schema, evolved_schema
from rioni.domain.subscriptions.subscription import Subscription, SubscriptionDeleted, SubscriptionKeyReleased
from rioni.domain.timelines.timeline import FIRST_ORDER, Timeline, TimelineOpened, TimelinesDeleted


# --- The versions of an event type's schema (reference schemas#endpoints) ---


@dataclass(frozen=True, slots=True, kw_only=True)
class AddSchema:
    """Validate events against a new version of the schema from now on."""

    name: str
    schema: SubmittedSchema
    evolved: "EvolvedSchema | None" = None
    """Set by the command itself."""


class EvolvedSchema(NamedTuple):
    """The version that a submitted schema becomes, computed without a lock; valid while the event type is unchanged."""

    current: EventType
    """The event type that the schema was compared with."""
    wanted: EventType
    """The requested event type, except for its schema."""
    added: Schema | None
    """The new version, None if the schema is unchanged."""

    @classmethod
    def of(cls, current: EventType, submitted: SubmittedSchema, wanted: EventType, *, now: str) -> Self:
        """Check and compare; slow for large schemas; raises as `evolved_schema` does."""
        return cls(current, wanted, evolved_schema(current, submitted, wanted, now=now))

    def is_of(self, current: EventType, wanted: EventType) -> bool:
        """Whether this result is valid for the current state of an event type."""
        return self.current == current and self.wanted == wanted


def add_schema(command: AddSchema, unit_of_work: UnitOfWork) -> tuple[Schema, bool] | Outside:
    """Add a version, unless the schema is unchanged.

    Returns:
        The current schema, and whether it is new.

    Raises:
        InvalidFields: type or schema is missing.
        Invalid: the schema is not valid, or the compatibility mode forbids the change.
    """
    InvalidFields.check(schema_violations(command.schema))
    current = unit_of_work.event_type(command.name)
    evolved = command.evolved
    if evolved is None or not evolved.is_of(current, current):
        return Outside(partial(_evolved, command, current, unit_of_work))
    if evolved.added is None:
        return current.schema, False
    unit_of_work.record(SchemaAdded(name=current.name, schema=evolved.added))
    return evolved.added, True


def _evolved(command: AddSchema, current: EventType, unit_of_work: UnitOfWork) -> AddSchema:
    evolve = partial(EvolvedSchema.of, current, command.schema, current, now=unit_of_work.context.now)
    return replace(command, evolved=unit_of_work.compute(evolve))


def why_incompatible(event_type: EventType, known: Schema, submitted: SubmittedSchema) -> str | None:
    """Why a schema could not follow a version of an event type's schema; None if it could."""
    try:
        evolved_schema(msgspec.structs.replace(event_type, schema=known), submitted, event_type, now=known.created_at)
    except Invalid as ex:
        return str(ex)
    return None


# --- Event types ---


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateEventType:
    """Create an event type, with its topic and first timeline."""

    spec: EventTypeSpec
    is_schema_checked: bool = False
    """Set by the command itself, as is `timeline`."""
    timeline: Timeline | None = None
    """The first timeline, whose topic exists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeEventType:
    """Update an event type to the submitted definition."""

    name: str
    spec: EventTypeSpec
    expected_tags: Collection[str] | None = None
    """Entity tags: if given, the event type must have one of them, that is, be unchanged."""
    evolved: EvolvedSchema | None = None
    """Set by the command itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteEventType:
    """Delete an event type with its schemas, timelines and events."""

    name: str


DELETABLE_SUBSCRIPTION = ("nakadi_archiver", "nakadi_to_s3")
"""Owning application and consumer group of the subscriptions that never prevent the deletion of an event type."""


def check_creation(command: CreateEventType, unit_of_work: UnitOfWork) -> None:
    """Check the submission before anything else (reference event-types#create-checks).

    Raises:
        FeatureDisabled: creation is switched off.
        InvalidFields: a field breaks its constraint.
    """
    if "disable_event_type_creation" in unit_of_work.settings().features and unit_of_work.subject != BROKER:
        raise FeatureDisabled("Event Type creation is disabled")
    rules.check_fields(command.spec)


def create_event_type(command: CreateEventType, unit_of_work: UnitOfWork) -> EventType | Outside:
    """Create an event type, after its schema was checked and its topic created.

    Raises:
        Invalid: a rule of reference event-types#create-checks is broken.
        Conflict: the name is taken.
        Unavailable: the storage can't create the topic.
    """
    spec, now = command.spec, unit_of_work.context.now
    rules.check_retention(spec.options, unit_of_work.limits)
    _check_annotations(spec, unit_of_work)
    event_type = rules.new(spec, now=now, limits=unit_of_work.limits)
    if not command.is_schema_checked:
        return Outside(partial(_schema_checked, command, event_type, unit_of_work))
    rules.check_strategies(event_type)
    _check_authorization(event_type, unit_of_work)
    _check_owning_application(event_type, unit_of_work)
    if unit_of_work.find("event-type", event_type.name) is not None:
        raise Conflict(f"EventType {event_type.name} already exists.")
    if command.timeline is None:
        timeline = Timeline(
            id=unit_of_work.context.derive_id("timeline"),
            event_type=event_type.name,
            order=FIRST_ORDER,
            storage_id=unit_of_work.default_storage().id,
            topic=unit_of_work.context.topic,
            partitions=rules.partition_count(event_type.default_statistic, unit_of_work.limits),
            created_at=now,
            switched_at=now,
        )
        return start_topic_creation(timeline, unit_of_work, partial(replace, command, timeline=timeline))
    end_topic_creation(command.timeline, unit_of_work)
    unit_of_work.record(
        EventTypeCreated(name=event_type.name, event_type=event_type),
        TimelineOpened(event_type=event_type.name, timeline=command.timeline),
    )
    return event_type


def _schema_checked(command: CreateEventType, event_type: EventType, unit_of_work: UnitOfWork) -> CreateEventType:
    unit_of_work.compute(check_submitted_schema, event_type)
    return replace(command, is_schema_checked=True)


def check_change(command: ChangeEventType, _unit_of_work: UnitOfWork) -> None:
    """Check the submission before anything else (reference event-types#update-checks).

    Raises:
        InvalidFields: a field breaks its constraint.
    """
    rules.check_fields(command.spec)


def change_event_type(command: ChangeEventType, unit_of_work: UnitOfWork) -> EventType | Outside:
    """Update an event type; submitting its current definition changes nothing.

    Raises:
        PreconditionFailed: the client does not expect its entity tag.
        Invalid: a rule of reference event-types#update-checks is broken.
    """
    spec, now = command.spec, unit_of_work.context.now
    current = unit_of_work.event_type(command.name)
    if command.expected_tags is not None and current.entity_tag not in command.expected_tags:
        raise PreconditionFailed(
            f"EventType {current.name} was modified concurrently (ETag mismatch). Reload it and retry."
        )
    by_admin = unit_of_work.is_admin("WRITE")
    if not by_admin:
        rules.check_retention(spec.options, unit_of_work.limits)
        _check_annotations(spec, unit_of_work)
    section = current.authorization
    by_its_admin = section is not None and permits(section.admins, unit_of_work.subject)
    wanted = rules.changed(
        current, spec, now=now, limits=unit_of_work.limits, by_admin=by_admin, by_its_admin=by_its_admin
    )
    rules.check_strategies(wanted)
    _check_authorization(wanted, unit_of_work)
    if wanted.owning_application != current.owning_application:
        _check_owning_application(wanted, unit_of_work)
    assert spec.schema is not None
    if command.evolved is None or not command.evolved.is_of(current, wanted):
        return Outside(partial(_with_schema, command, current, spec.schema, wanted, unit_of_work))
    if wanted != current:
        unit_of_work.record(EventTypeChanged(name=wanted.name, event_type=wanted))
    if command.evolved.added is not None:
        unit_of_work.record(SchemaAdded(name=wanted.name, schema=command.evolved.added))
    return unit_of_work.event_type(command.name)


def _with_schema(
    command: ChangeEventType,
    current: EventType,
    submitted: SubmittedSchema,
    wanted: EventType,
    unit_of_work: UnitOfWork,
) -> ChangeEventType:
    evolved = unit_of_work.compute(EvolvedSchema.of, current, submitted, wanted, now=unit_of_work.context.now)
    return replace(command, evolved=evolved)


def check_deletion(_command: DeleteEventType, unit_of_work: UnitOfWork) -> None:
    """Check whether deletion is allowed (reference event-types#delete-checks).

    Raises:
        AdminOnly: deletion is switched off for all but the broker's administrators.
    """
    if "disable_event_type_deletion" in unit_of_work.settings().features and not unit_of_work.is_admin("WRITE"):
        raise AdminOnly("Event Type deletion is disabled")


def delete_event_type(command: DeleteEventType, unit_of_work: UnitOfWork) -> None:
    """Delete an event type and the subscriptions that may be deleted with it.

    Raises:
        AccessDenied: authorization is forced, and the event type has no authorization section.
        Conflict: it has subscriptions.
    """
    features = unit_of_work.settings().features
    event_type = unit_of_work.event_type(command.name)
    if "force_event_type_authz" in features and event_type.authorization is None:
        raise AccessDenied("ADMIN", event_type.resource, "You cannot delete event-type without authorization.")
    subscriptions = unit_of_work.subscriptions_of(event_type.name)
    if "delete_event_type_with_subscriptions" not in features and not all(map(_is_deletable, subscriptions)):
        raise Conflict(f"Can't remove event type {event_type.name}, as it has subscriptions")
    for subscription in subscriptions:
        forget_subscription(subscription, unit_of_work)
    timelines = unit_of_work.timelines(event_type.name)
    unit_of_work.record(TimelinesDeleted(event_type=event_type.name), EventTypeDeleted(name=event_type.name))
    for timeline in topics_to_delete(timelines):
        abandon(timeline, unit_of_work)


def forget_subscription(subscription: Subscription, unit_of_work: UnitOfWork) -> None:
    """Record a subscription's deletion, and delete its sessions and cursors."""
    unit_of_work.record(
        SubscriptionDeleted(id=subscription.id),
        SubscriptionKeyReleased(natural_key=subscription.natural_key),
    )
    unit_of_work.after_commit.append(partial(unit_of_work.coordinator.delete, subscription.id))


def _is_deletable(subscription: Subscription) -> bool:
    return (subscription.owning_application, subscription.consumer_group) == DELETABLE_SUBSCRIPTION


def _check_annotations(spec: EventTypeSpec, unit_of_work: UnitOfWork) -> None:
    check_data_lake(spec.annotations or {}, mandatory="force_data_lake_annotations" in unit_of_work.settings().features)


def _check_owning_application(event_type: EventType, unit_of_work: UnitOfWork) -> None:
    if "validate_event_type_owning_application" in unit_of_work.settings().features:
        rules.check_owning_application(event_type.owning_application, unit_of_work.limits)


def _check_authorization(event_type: EventType, unit_of_work: UnitOfWork) -> None:
    if event_type.authorization is None and "force_event_type_authz" in unit_of_work.settings().features:
        raise Invalid("Authorization section is mandatory")
    rules.check_authorization(event_type)
