"""The one way to change anything: which command needs which right, and which handler runs it, in one transaction."""

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

from rioni.commands import abandoned_topics, access, event_types, schemas, settings, storages, subscriptions, timelines
from rioni.commands.context import Context
from rioni.commands.repository import Repository
from rioni.domain.authorization import Attribute
from rioni.domain.coordination_ports import Coordinator
from rioni.domain.errors import CommitUnknown, NothingWritten, ReadOnly
from rioni.domain.limits import Limits
from rioni.domain.log_ports import EventLog, LogTransaction, ReadModels
from rioni.domain.ports import EventStores


def _nothing(_command: Any, _repository: Repository) -> None:
    """No check."""


class Route(NamedTuple):
    """What the bus knows of a command."""

    handler: Callable[[Any, Repository], Any]
    access: Callable[[Any, Repository], None]
    when_read_only: bool = False
    """Whether it runs while the feature `disable_db_write_operations` is on."""
    first: Callable[[Any, Repository], None] = _nothing
    """What is refused before anything else is asked: rights, and whether what the command is about exists."""


ROUTES: dict[type, Route] = {
    event_types.CreateEventType: Route(
        event_types.create_event_type, access.event_type_creator, first=event_types.check_creation
    ),
    event_types.ChangeEventType: Route(
        event_types.change_event_type, access.event_type_admin, first=event_types.check_change
    ),
    event_types.DeleteEventType: Route(
        event_types.delete_event_type, access.event_type_admin, first=event_types.check_deletion
    ),
    schemas.AddSchema: Route(schemas.add_schema, access.event_type_admin, when_read_only=True),
    # It changes nothing where the subscription exists already, and looks at the feature behind that.
    subscriptions.CreateSubscription: Route(subscriptions.create_subscription, access.anyone, when_read_only=True),
    subscriptions.ChangeSubscription: Route(subscriptions.change_subscription, access.subscription_admin),
    subscriptions.DeleteSubscription: Route(subscriptions.delete_subscription, access.subscription_admin),
    subscriptions.RecordCursorsReset: Route(
        subscriptions.record_cursors_reset, access.subscription_admin, when_read_only=True
    ),
    subscriptions.RecordDeadLettersRedriven: Route(
        subscriptions.record_dead_letters_redriven, access.subscription_admin, when_read_only=True
    ),
    settings.SetAdmins: Route(settings.set_admins, access.broker_admin),
    settings.AddBlacklistEntry: Route(settings.add_blacklist_entry, access.broker_writer, when_read_only=True),
    settings.RemoveBlacklistEntry: Route(settings.remove_blacklist_entry, access.broker_writer, when_read_only=True),
    settings.SwitchFeature: Route(settings.switch_feature, access.broker_writer, when_read_only=True),
    timelines.StartSwitch: Route(timelines.start_switch, access.event_type_operator),
    timelines.CompleteSwitch: Route(timelines.complete_switch, access.broker_writer, when_read_only=True),
    timelines.AbortSwitch: Route(timelines.abort_switch, access.broker_writer, when_read_only=True),
    timelines.CleanUpTimeline: Route(timelines.clean_up_timeline, access.broker_writer),
    # It changes no fact.
    timelines.DeleteForsakenTopics: Route(timelines.delete_forsaken_topics, access.broker_writer, when_read_only=True),
    timelines.Repartition: Route(timelines.repartition, access.event_type_operator),
    abandoned_topics.RecordTopicsDeleted: Route(abandoned_topics.record_topics_deleted, access.broker_writer),
    storages.CreateStorage: Route(storages.create_storage, access.broker_writer),
    storages.SetDefaultStorage: Route(storages.set_default_storage, access.broker_writer),
    storages.MoveStorage: Route(storages.move_storage, access.broker_writer, when_read_only=True),
    storages.DeleteStorage: Route(storages.delete_storage, access.broker_writer),
}


ATTEMPTS_MAX = 5
"""How often a command is run that gets in the way of others, or whose transaction was lost."""


class Bus:
    """Runs commands.

    One command is one transaction: lock the head of the log, load what the command is about, decide, append the events,
    fold them into the read models, commit. A crash leaves all of it or nothing, and whoever was answered finds it in
    the next query. Where the database goes away in the commit, the log tells afterwards whether it stands: by the
    command's id.
    """

    def __init__(
        self,
        log: EventLog,
        models: ReadModels,
        *,
        stores: EventStores,
        coordinator: Coordinator,
        limits: Limits,
        default_admin: Attribute,
    ) -> None:
        self._log = log
        self._models = models
        self._stores = stores
        self._coordinator = coordinator
        self._limits = limits
        self._default_admin = default_admin

    def dispatch(self, command: Any, context: Context) -> Any:
        """Run a command and return what its handler returns. Blocks on the database.

        Raises:
            Denied, AdminOnly: the subject lacks the right.
            ReadOnly: writing is switched off.
            CommitUnknown: the database went away in the commit, and has not come back.
            RioniError: whatever the handler raises; nothing has changed then.
        """
        for _ in range(ATTEMPTS_MAX - 1):
            with contextlib.suppress(NothingWritten):
                return self._attempt(command, context)
        return self._attempt(command, context)

    def _attempt(self, command: Any, context: Context) -> Any:
        before: int | None = None
        try:
            with self._log.transaction() as transaction:
                before = transaction.head.position
                repository = self._repository(transaction, context)
                try:
                    result = _run(command, repository)
                except BaseException:
                    # Not when the commit itself fails: the facts may stand then, and an effect too many harms nobody.
                    for undo in reversed(repository.undo):
                        undo()
                    raise
        except CommitUnknown:
            if before is None or not self._log.recorded(context.origin.command_id, before):
                raise NothingWritten from None
        for effect in repository.after_commit:
            effect()
        return result

    def _repository(self, transaction: LogTransaction, context: Context) -> Repository:
        return Repository(
            transaction,
            self._models,
            context,
            stores=self._stores,
            coordinator=self._coordinator,
            limits=self._limits,
            default_admin=self._default_admin,
        )


def _run(command: Any, repository: Repository) -> Any:
    route = ROUTES[type(command)]
    route.first(command, repository)
    if not route.when_read_only and "disable_db_write_operations" in repository.settings().features:
        raise ReadOnly
    route.access(command, repository)
    return route.handler(command, repository)
