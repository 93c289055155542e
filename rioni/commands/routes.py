"""The table of commands: the permission and the handler of each."""

from rioni.commands import command_permissions, event_types, schemas
from rioni.commands.bus import Route
from rioni.commands.subscriptions import subscriptions
from rioni.commands.system import checkpoint_signer, event_chains, settings, storages
from rioni.commands.timelines import timelines, topic_digests, topics


ROUTES: dict[type, Route] = {
    event_types.CreateEventType: Route(
        event_types.create_event_type, command_permissions.event_type_creator, precheck=event_types.check_creation
    ),
    event_types.ChangeEventType: Route(
        event_types.change_event_type, command_permissions.event_type_admin, precheck=event_types.check_change
    ),
    event_types.DeleteEventType: Route(
        event_types.delete_event_type, command_permissions.event_type_admin, precheck=event_types.check_deletion
    ),
    schemas.AddSchema: Route(schemas.add_schema, command_permissions.event_type_admin, allowed_in_read_only=True),
    # If the subscription exists already it changes nothing; the feature is checked after that.
    subscriptions.CreateSubscription: Route(
        subscriptions.create_subscription, command_permissions.anyone, allowed_in_read_only=True
    ),
    subscriptions.ChangeSubscription: Route(subscriptions.change_subscription, command_permissions.subscription_admin),
    subscriptions.DeleteSubscription: Route(subscriptions.delete_subscription, command_permissions.subscription_admin),
    subscriptions.RecordCursorsReset: Route(
        subscriptions.record_cursors_reset, command_permissions.subscription_admin, allowed_in_read_only=True
    ),
    subscriptions.RecordDeadLettersRedriven: Route(
        subscriptions.record_dead_letters_redriven, command_permissions.subscription_admin, allowed_in_read_only=True
    ),
    settings.SetAdmins: Route(settings.set_admins, command_permissions.broker_admin),
    settings.AddBlacklistEntry: Route(
        settings.add_blacklist_entry, command_permissions.broker_writer, allowed_in_read_only=True
    ),
    settings.RemoveBlacklistEntry: Route(
        settings.remove_blacklist_entry, command_permissions.broker_writer, allowed_in_read_only=True
    ),
    settings.SwitchFeature: Route(
        settings.switch_feature, command_permissions.broker_writer, allowed_in_read_only=True
    ),
    settings.AcceptLoss: Route(settings.accept_loss, command_permissions.broker_writer, allowed_in_read_only=True),
    timelines.StartSwitch: Route(timelines.start_switch, command_permissions.event_type_operator),
    timelines.CloseTimeline: Route(
        timelines.close_timeline, command_permissions.broker_writer, allowed_in_read_only=True
    ),
    timelines.CompleteSwitch: Route(
        timelines.complete_switch, command_permissions.broker_writer, allowed_in_read_only=True
    ),
    timelines.AbortSwitch: Route(timelines.abort_switch, command_permissions.broker_writer, allowed_in_read_only=True),
    timelines.CleanUpTimeline: Route(timelines.clean_up_timeline, command_permissions.broker_writer),
    timelines.FindOrphanedTopics: Route(
        timelines.find_orphaned_topics, command_permissions.broker_writer, allowed_in_read_only=True
    ),
    timelines.Repartition: Route(timelines.repartition, command_permissions.event_type_operator),
    # It rolls back the records of a command, whatever that one's subject.
    topics.AbandonTopicCreation: Route(
        topics.abandon_topic_creation, command_permissions.anyone, allowed_in_read_only=True
    ),
    topics.RecordTopicsDeleted: Route(topics.record_topics_deleted, command_permissions.broker_writer),
    topic_digests.RecordDigests: Route(
        topic_digests.record_digests, command_permissions.broker_writer, allowed_in_read_only=True
    ),
    storages.CreateStorage: Route(storages.create_storage, command_permissions.broker_writer),
    storages.SetDefaultStorage: Route(storages.set_default_storage, command_permissions.broker_writer),
    storages.MoveStorage: Route(storages.move_storage, command_permissions.broker_writer, allowed_in_read_only=True),
    event_chains.AnchorEventChains: Route(
        event_chains.anchor_event_chains, command_permissions.broker_writer, allowed_in_read_only=True
    ),
    checkpoint_signer.AddLogKey: Route(
        checkpoint_signer.add_log_key, command_permissions.broker_writer, allowed_in_read_only=True
    ),
    storages.DeleteStorage: Route(storages.delete_storage, command_permissions.broker_writer),
}
