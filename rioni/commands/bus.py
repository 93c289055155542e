"""The one way to change anything: which command needs which right, and which handler runs it, in one transaction."""

from collections.abc import Callable
from typing import Any, NamedTuple

from rioni.commands import access, event_types, schemas, settings, storages, subscriptions
from rioni.commands.context import Context
from rioni.commands.repository import Repository
from rioni.domain.authorization import Attribute
from rioni.domain.errors import ReadOnly
from rioni.domain.limits import Limits
from rioni.domain.ports import Coordinator, EventLog, EventStore, ReadModels


class Route(NamedTuple):
    """What the bus knows of a command."""

    handler: Callable[[Any, Repository], Any]
    access: Callable[[Any, Repository], None]
    when_read_only: bool = False
    """Whether it runs while the feature `disable_db_write_operations` is on."""


ROUTES: dict[type, Route] = {
    event_types.CreateEventType: Route(event_types.create_event_type, access.anyone),
    event_types.ChangeEventType: Route(event_types.change_event_type, access.event_type_admin),
    event_types.DeleteEventType: Route(event_types.delete_event_type, access.event_type_admin),
    schemas.AddSchema: Route(schemas.add_schema, access.event_type_admin),
    subscriptions.CreateSubscription: Route(subscriptions.create_subscription, access.anyone),
    subscriptions.ChangeSubscription: Route(subscriptions.change_subscription, access.subscription_admin),
    subscriptions.DeleteSubscription: Route(subscriptions.delete_subscription, access.subscription_admin),
    subscriptions.RecordCursorsReset: Route(
        subscriptions.record_cursors_reset, access.subscription_admin, when_read_only=True
    ),
    settings.SetAdmins: Route(settings.set_admins, access.broker_admin),
    settings.AddBlacklistEntry: Route(settings.add_blacklist_entry, access.broker_writer, when_read_only=True),
    settings.RemoveBlacklistEntry: Route(settings.remove_blacklist_entry, access.broker_writer, when_read_only=True),
    settings.SwitchFeature: Route(settings.switch_feature, access.broker_writer, when_read_only=True),
    storages.CreateStorage: Route(storages.create_storage, access.broker_writer),
}


class Bus:
    """Runs commands.

    One command is one transaction: lock the head of the log, load what the command is about, decide, append the events,
    fold them into the read models, commit. A crash leaves all of it or nothing, and whoever was answered finds it in
    the next query.
    """

    def __init__(
        self,
        log: EventLog,
        models: ReadModels,
        *,
        store: EventStore,
        coordinator: Coordinator,
        limits: Limits,
        default_admin: Attribute,
    ) -> None:
        self._log = log
        self._models = models
        self._store = store
        self._coordinator = coordinator
        self._limits = limits
        self._default_admin = default_admin

    def dispatch(self, command: Any, context: Context) -> Any:
        """Run a command and return what its handler returns. Blocks on the database.

        Raises:
            Denied, AdminOnly: the subject lacks the right.
            ReadOnly: writing is switched off.
            RioniError: whatever the handler raises; nothing has changed then.
        """
        with self._log.transaction() as transaction:
            repository = Repository(
                transaction,
                self._models,
                context,
                store=self._store,
                coordinator=self._coordinator,
                limits=self._limits,
                default_admin=self._default_admin,
            )
            try:
                result = _run(command, repository)
            except BaseException:
                # Not when the commit itself fails: the facts may stand then, and an effect too many harms nobody.
                for undo in reversed(repository.undo):
                    undo()
                raise
        for effect in repository.after_commit:
            effect()
        return result


def _run(command: Any, repository: Repository) -> Any:
    route = ROUTES[type(command)]
    if not route.when_read_only and "disable_db_write_operations" in repository.settings().features:
        raise ReadOnly
    route.access(command, repository)
    return route.handler(command, repository)
