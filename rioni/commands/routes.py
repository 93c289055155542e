"""The table of commands: the permission and the handler of each. Source: reference authorization#rights."""

from typing import Any

from rioni.commands import event_types
from rioni.commands.bus import Route
from rioni.commands.subscriptions import subscriptions
from rioni.commands.system import anchoring, checkpoint_signer, storages
from rioni.commands.timelines import timelines, topics
from rioni.commands.unit_of_work import UnitOfWork
from rioni.domain.access.authorization import check
from rioni.domain.errors import AccessDenied, AdminOnly
from rioni.domain.system.system_events import NAMES as OWN_EVENT_TYPES


def anyone(_command: Any, _unit_of_work: UnitOfWork) -> None:
    """Every authenticated client."""


def event_type_creator(command: Any, unit_of_work: UnitOfWork) -> None:
    """Every authenticated client but auditors; system event types by the broker's administrators only."""
    if unit_of_work.is_admin("WRITE"):
        return
    name = command.spec.name
    if unit_of_work.is_auditor():
        raise AccessDenied("ADMIN", f"event-type:{name}", "auditors read, and create no event types")
    if name in OWN_EVENT_TYPES:
        raise AccessDenied("ADMIN", f"event-type:{name}", "the broker itself publishes to it")


def event_type_admin(command: Any, unit_of_work: UnitOfWork) -> None:
    """Administrators of the event type that the command names, and of the broker."""
    event_type = unit_of_work.event_type(command.name)
    check(unit_of_work.grants.event_type(event_type, "ADMIN"), unit_of_work.subject, "ADMIN", event_type.resource)


def subscription_admin(command: Any, unit_of_work: UnitOfWork) -> None:
    """Administrators of the subscription that the command names, and of the broker."""
    subscription = unit_of_work.subscription(command.subscription_id)
    check(unit_of_work.grants.subscription(subscription, "ADMIN"), unit_of_work.subject, "ADMIN", subscription.resource)


def broker_writer(_command: Any, unit_of_work: UnitOfWork) -> None:
    """The broker's administrators who may write."""
    _broker_admin(unit_of_work, "WRITE")


def event_type_operator(command: Any, unit_of_work: UnitOfWork) -> None:
    """The broker's administrators who may write: those of the event type may not choose the storage of its events."""
    if not unit_of_work.is_admin("WRITE"):
        raise AccessDenied("ADMIN", f"event-type:{command.event_type}")


def broker_admin(_command: Any, unit_of_work: UnitOfWork) -> None:
    """The broker's administrators who may change the list of administrators."""
    _broker_admin(unit_of_work, "ADMIN")


def _broker_admin(unit_of_work: UnitOfWork, operation: str) -> None:
    if not unit_of_work.is_admin(operation):
        raise AdminOnly("Admin privileges are required to perform this operation")


ROUTES: dict[type, Route] = {
    event_types.CreateEventType: Route(
        event_types.create_event_type, event_type_creator, precheck=event_types.check_creation
    ),
    event_types.ChangeEventType: Route(
        event_types.change_event_type, event_type_admin, precheck=event_types.check_change
    ),
    event_types.DeleteEventType: Route(
        event_types.delete_event_type, event_type_admin, precheck=event_types.check_deletion
    ),
    event_types.AddSchema: Route(event_types.add_schema, event_type_admin, allowed_in_read_only=True),
    # If the subscription exists already it changes nothing; the feature is checked after that.
    subscriptions.CreateSubscription: Route(subscriptions.create_subscription, anyone, allowed_in_read_only=True),
    subscriptions.ChangeSubscription: Route(subscriptions.change_subscription, subscription_admin),
    subscriptions.DeleteSubscription: Route(subscriptions.delete_subscription, subscription_admin),
    subscriptions.RecordCursorsReset: Route(
        subscriptions.record_cursors_reset, subscription_admin, allowed_in_read_only=True
    ),
    subscriptions.RecordDeadLettersRedriven: Route(
        subscriptions.record_dead_letters_redriven, subscription_admin, allowed_in_read_only=True
    ),
    storages.SetAdmins: Route(storages.set_admins, broker_admin),
    storages.AddBlacklistEntry: Route(storages.add_blacklist_entry, broker_writer, allowed_in_read_only=True),
    storages.RemoveBlacklistEntry: Route(storages.remove_blacklist_entry, broker_writer, allowed_in_read_only=True),
    storages.SwitchFeature: Route(storages.switch_feature, broker_writer, allowed_in_read_only=True),
    storages.AcceptLoss: Route(storages.accept_loss, broker_writer, allowed_in_read_only=True),
    timelines.StartSwitch: Route(timelines.start_switch, event_type_operator),
    timelines.CloseTimeline: Route(timelines.close_timeline, broker_writer, allowed_in_read_only=True),
    timelines.CompleteSwitch: Route(timelines.complete_switch, broker_writer, allowed_in_read_only=True),
    timelines.AbortSwitch: Route(timelines.abort_switch, broker_writer, allowed_in_read_only=True),
    timelines.CleanUpTimeline: Route(timelines.clean_up_timeline, broker_writer),
    timelines.FindOrphanedTopics: Route(timelines.find_orphaned_topics, broker_writer, allowed_in_read_only=True),
    timelines.Repartition: Route(timelines.repartition, event_type_operator),
    # It rolls back the records of a command, whatever that one's subject.
    topics.AbandonTopicCreation: Route(topics.abandon_topic_creation, anyone, allowed_in_read_only=True),
    topics.RecordTopicsDeleted: Route(topics.record_topics_deleted, broker_writer),
    anchoring.RecordDigests: Route(anchoring.record_digests, broker_writer, allowed_in_read_only=True),
    storages.CreateStorage: Route(storages.create_storage, broker_writer),
    storages.SetDefaultStorage: Route(storages.set_default_storage, broker_writer),
    storages.MoveStorage: Route(storages.move_storage, broker_writer, allowed_in_read_only=True),
    anchoring.AnchorEventChains: Route(anchoring.anchor_event_chains, broker_writer, allowed_in_read_only=True),
    checkpoint_signer.AddLogKey: Route(checkpoint_signer.add_log_key, broker_writer, allowed_in_read_only=True),
    storages.DeleteStorage: Route(storages.delete_storage, broker_writer),
}
