"""Commands that create, change and delete event types (reference event-types#definition)."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial

from rioni.commands.context import Outside
from rioni.commands.schemas import EvolvedSchema, check_submitted_schema
from rioni.commands.timelines.timelines import topics_to_delete
from rioni.commands.timelines.topic_creation import end_topic_creation, start_topic_creation
from rioni.commands.timelines.topic_deletion import abandon
from rioni.commands.unit_of_work import UnitOfWork
from rioni.domain.access.authorization import BROKER, permits
from rioni.domain.errors import AccessDenied, AdminOnly, Conflict, FeatureDisabled, Invalid, PreconditionFailed
from rioni.domain.event_types import rules
from rioni.domain.event_types.data_lake import check_data_lake
from rioni.domain.event_types.event_type import (
    EventType,
    EventTypeChanged,
    EventTypeCreated,
    EventTypeDeleted,
    EventTypeSpec,
    SchemaAdded,
    SubmittedSchema,
)
from rioni.domain.subscriptions.subscription import Subscription, SubscriptionDeleted, SubscriptionKeyReleased
from rioni.domain.timelines.timeline import FIRST_ORDER, Timeline, TimelineOpened, TimelinesDeleted


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
    """If given, the event type must have one of these entity tags, that is, be unchanged."""
    evolved: EvolvedSchema | None = None
    """Set by the command itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteEventType:
    """Delete an event type with its schemas, timelines and events."""

    name: str


DELETABLE_SUBSCRIPTION = ("nakadi_archiver", "nakadi_to_s3")
"""Owning application and consumer group of the subscriptions that never prevent the deletion of an event type."""


def check_creation(command: CreateEventType, repository: UnitOfWork) -> None:
    """Check the submission before anything else (reference event-types#create-checks).

    Raises:
        FeatureDisabled: creation is switched off.
        InvalidFields: a field breaks its constraint.
    """
    if "disable_event_type_creation" in repository.settings().features and repository.subject != BROKER:
        raise FeatureDisabled("Event Type creation is disabled")
    rules.check_fields(command.spec)


def create_event_type(command: CreateEventType, repository: UnitOfWork) -> EventType | Outside:
    """Create an event type, after its schema was checked and its topic created.

    Raises:
        Invalid: a rule of reference event-types#create-checks is broken.
        Conflict: the name is taken.
        Unavailable: the storage can't create the topic.
    """
    spec, now = command.spec, repository.context.now
    rules.check_retention(spec.options, repository.limits)
    _check_annotations(spec, repository)
    event_type = rules.new(spec, now=now, limits=repository.limits)
    if not command.is_schema_checked:
        return Outside(partial(_schema_checked, command, event_type, repository))
    rules.check_strategies(event_type)
    _check_authorization(event_type, repository)
    _check_owning_application(event_type, repository)
    if repository.find("event-type", event_type.name) is not None:
        raise Conflict(f"EventType {event_type.name} already exists.")
    if command.timeline is None:
        timeline = Timeline(
            id=repository.context.derive_id("timeline"),
            event_type=event_type.name,
            order=FIRST_ORDER,
            storage_id=repository.default_storage().id,
            topic=repository.context.topic,
            partitions=rules.partition_count(event_type.default_statistic, repository.limits),
            created_at=now,
            switched_at=now,
        )
        return start_topic_creation(timeline, repository, partial(replace, command, timeline=timeline))
    end_topic_creation(command.timeline, repository)
    repository.record(
        EventTypeCreated(name=event_type.name, event_type=event_type),
        TimelineOpened(event_type=event_type.name, timeline=command.timeline),
    )
    return event_type


def _schema_checked(command: CreateEventType, event_type: EventType, repository: UnitOfWork) -> CreateEventType:
    repository.compute(check_submitted_schema, event_type)
    return replace(command, is_schema_checked=True)


def check_change(command: ChangeEventType, _repository: UnitOfWork) -> None:
    """Check the submission before anything else (reference event-types#update-checks).

    Raises:
        InvalidFields: a field breaks its constraint.
    """
    rules.check_fields(command.spec)


def change_event_type(command: ChangeEventType, repository: UnitOfWork) -> EventType | Outside:
    """Update an event type; submitting its current definition changes nothing.

    Raises:
        PreconditionFailed: its entity tag is none of those that the client expects.
        Invalid: a rule of reference event-types#update-checks is broken.
    """
    spec, now = command.spec, repository.context.now
    current = repository.event_type(command.name)
    if command.expected_tags is not None and current.entity_tag not in command.expected_tags:
        raise PreconditionFailed(
            f"EventType {current.name} was modified concurrently (ETag mismatch). Reload it and retry."
        )
    by_admin = repository.is_admin("WRITE")
    if not by_admin:
        rules.check_retention(spec.options, repository.limits)
        _check_annotations(spec, repository)
    section = current.authorization
    by_its_admin = section is not None and permits(section.admins, repository.subject)
    wanted = rules.changed(
        current, spec, now=now, limits=repository.limits, by_admin=by_admin, by_its_admin=by_its_admin
    )
    rules.check_strategies(wanted)
    _check_authorization(wanted, repository)
    if wanted.owning_application != current.owning_application:
        _check_owning_application(wanted, repository)
    assert spec.schema is not None
    if command.evolved is None or not command.evolved.is_of(current, wanted):
        return Outside(partial(_with_schema, command, current, spec.schema, wanted, repository))
    if wanted != current:
        repository.record(EventTypeChanged(name=wanted.name, event_type=wanted))
    if command.evolved.added is not None:
        repository.record(SchemaAdded(name=wanted.name, schema=command.evolved.added))
    return repository.event_type(command.name)


def _with_schema(
    command: ChangeEventType, current: EventType, submitted: SubmittedSchema, wanted: EventType, repository: UnitOfWork
) -> ChangeEventType:
    evolved = repository.compute(EvolvedSchema.of, current, submitted, wanted, now=repository.context.now)
    return replace(command, evolved=evolved)


def check_deletion(_command: DeleteEventType, repository: UnitOfWork) -> None:
    """Check whether deletion is allowed (reference event-types#delete-checks).

    Raises:
        AdminOnly: deletion is switched off for all but the broker's administrators.
    """
    if "disable_event_type_deletion" in repository.settings().features and not repository.is_admin("WRITE"):
        raise AdminOnly("Event Type deletion is disabled")


def delete_event_type(command: DeleteEventType, repository: UnitOfWork) -> None:
    """Delete an event type and the subscriptions that may be deleted with it.

    Raises:
        AccessDenied: authorization is forced, and the event type has no authorization section.
        Conflict: it has subscriptions.
    """
    features = repository.settings().features
    event_type = repository.event_type(command.name)
    if "force_event_type_authz" in features and event_type.authorization is None:
        raise AccessDenied("ADMIN", event_type.resource, "You cannot delete event-type without authorization.")
    subscriptions = repository.subscriptions_of(event_type.name)
    if "delete_event_type_with_subscriptions" not in features and not all(map(_is_deletable, subscriptions)):
        raise Conflict(f"Can't remove event type {event_type.name}, as it has subscriptions")
    for subscription in subscriptions:
        forget_subscription(subscription, repository)
    timelines = repository.timelines(event_type.name)
    repository.record(TimelinesDeleted(event_type=event_type.name), EventTypeDeleted(name=event_type.name))
    for timeline in topics_to_delete(timelines):
        abandon(timeline, repository)


def forget_subscription(subscription: Subscription, repository: UnitOfWork) -> None:
    """Record a subscription's deletion, and delete its sessions and cursors."""
    repository.record(
        SubscriptionDeleted(id=subscription.id),
        SubscriptionKeyReleased(natural_key=subscription.natural_key),
    )
    repository.after_commit.append(partial(repository.coordinator.forget, subscription.id))


def _is_deletable(subscription: Subscription) -> bool:
    return (subscription.owning_application, subscription.consumer_group) == DELETABLE_SUBSCRIPTION


def _check_annotations(spec: EventTypeSpec, repository: UnitOfWork) -> None:
    check_data_lake(spec.annotations or {}, mandatory="force_data_lake_annotations" in repository.settings().features)


def _check_owning_application(event_type: EventType, repository: UnitOfWork) -> None:
    if "validate_event_type_owning_application" in repository.settings().features:
        rules.check_owning_application(event_type.owning_application, repository.limits)


def _check_authorization(event_type: EventType, repository: UnitOfWork) -> None:
    if event_type.authorization is None and "force_event_type_authz" in repository.settings().features:
        raise Invalid("Authorization section is mandatory")
    rules.check_authorization(event_type)
